//===- Combine.cpp - how reductions combine elements ----------------------===//

#include "passes/Conversion/TileToNVVM/Combine.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

Value nsa::cuda::combine(ThreadBuilder &b, ReduceKind kind, Value x, Value y) {
  bool isFloat = isa<FloatType>(x.getType());
  switch (kind) {
  case ReduceKind::Add:
    return isFloat ? Value(arith::AddFOp::create(b, x, y))
                   : Value(arith::AddIOp::create(b, x, y));
  case ReduceKind::Max:
    return isFloat ? Value(arith::MaxNumFOp::create(b, x, y))
                   : Value(arith::MaxSIOp::create(b, x, y));
  case ReduceKind::Min:
    return isFloat ? Value(arith::MinNumFOp::create(b, x, y))
                   : Value(arith::MinSIOp::create(b, x, y));
  }
  llvm_unreachable("unknown reduction");
}

Value nsa::cuda::getMaximum(ThreadBuilder &b, Value x, Value y) {
  return LLVM::MaxNumOp::create(b, x, y);
}

Value nsa::cuda::getMinimum(ThreadBuilder &b, Value x, Value y) {
  return LLVM::MinNumOp::create(b, x, y);
}

Value nsa::cuda::neutralElement(ThreadBuilder &b, ReduceKind kind,
                                Type element) {
  if (kind == ReduceKind::Add)
    return b.constant(element, 0);
  bool isMax = kind == ReduceKind::Max;
  if (isa<FloatType>(element)) {
    double infinity = std::numeric_limits<double>::infinity();
    return b.constant(element, isMax ? -infinity : infinity);
  }
  return b.constant(element, double(isMax ? INT32_MIN : INT32_MAX));
}
