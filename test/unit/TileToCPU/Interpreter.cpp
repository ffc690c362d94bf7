//===- Interpreter.cpp - what a tile kernel means -------------------------===//

#include "test/unit/TileToCPU/Interpreter.h"
#include "lib/Support/Float16.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

double nsa::test::roundTo(Type type, double value) {
  auto number = static_cast<float>(value);
  if (type.isBF16())
    return bf16ToFloat(floatToBF16(number));
  return type.isF16() ? f16ToFloat(floatToF16(number)) : number;
}

void Interpreter::run() {
  for (program = 0; program < kernel.getNumPrograms(); ++program)
    runBlock(kernel.getBody().front());
}

void Interpreter::runBlock(Block &block) {
  for (Operation &op : block)
    runOp(&op);
}

Interpreter::Tile Interpreter::makeTile(Value value) const {
  Tile tile;
  if (auto type = dyn_cast<TileType>(value.getType())) {
    tile.rows = type.getRows();
    tile.cols = type.getCols();
  }
  tile.elements.resize(tile.rows * tile.cols);
  return tile;
}

std::vector<double> &Interpreter::memoryOf(Value ref) {
  return memory[cast<BlockArgument>(ref).getArgNumber()];
}

int64_t Interpreter::place(Value ref, ValueRange indices, int64_t row,
                           int64_t col) {
  int64_t place = 0;
  for (auto [index, extent] :
       llvm::zip(indices, cast<MemRefType>(ref.getType()).getShape())) {
    auto coordinate = static_cast<int64_t>(values[index].at(row, col));
    if (coordinate < 0 || coordinate >= extent)
      return -1;
    place = place * extent + coordinate;
  }
  return place;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Visits every element of a tile with its row and column.
template <typename TileT, typename Function>
static void forEach(TileT &tile, Function function) {
  for (int64_t row = 0; row < tile.rows; ++row)
    for (int64_t col = 0; col < tile.cols; ++col)
      function(row, col, tile.elements[row * tile.cols + col]);
}

void Interpreter::runOp(Operation *op) {
  if (isa<YieldOp, ReturnOp>(op))
    return;
  if (auto map = dyn_cast<MapOp>(op))
    return runMap(map);
  if (auto dot = dyn_cast<DotOp>(op))
    return runDot(dot);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return runReduce(reduce);
  if (auto store = dyn_cast<StoreOp>(op)) {
    forEach(values[store.getValue()], [&](int64_t row, int64_t col, double v) {
      int64_t at = place(store.getRef(), store.getIndices(), row, col);
      if (at >= 0)
        memoryOf(store.getRef())[at] = v;
    });
    return;
  }

  Tile tile = makeTile(op->getResult(0));
  if (auto id = dyn_cast<ProgramIdOp>(op)) {
    int64_t rest = program;
    for (unsigned axis = 0; axis < id.getAxis(); ++axis)
      rest /= kernel.getGrid()[axis];
    tile.elements[0] = rest % kernel.getGrid()[id.getAxis()];
  } else if (auto range = dyn_cast<RangeOp>(op)) {
    for (auto [i, element] : llvm::enumerate(tile.elements))
      element = scalar(range.getStart()) +
                static_cast<double>(i) * static_cast<int32_t>(range.getStep());
  } else if (auto splat = dyn_cast<SplatOp>(op)) {
    llvm::fill(tile.elements, scalar(splat.getValue()));
  } else if (auto load = dyn_cast<LoadOp>(op)) {
    forEach(tile, [&](int64_t row, int64_t col, double &v) {
      int64_t at = place(load.getRef(), load.getIndices(), row, col);
      v = at >= 0 ? memoryOf(load.getRef())[at] : 0;
    });
  } else {
    tile.elements[0] = evaluate(op);
  }
  values[op->getResult(0)] = std::move(tile);
}

void Interpreter::runMap(MapOp op) {
  Block &body = op.getBody().front();
  SmallVector<Tile> results;
  for (Value result : op.getResults())
    results.push_back(makeTile(result));
  Tile shape = makeTile(op.getResult(0));
  forEach(shape, [&](int64_t row, int64_t col, double) {
    for (auto [argument, input] :
         llvm::zip(body.getArguments(), op.getInputs())) {
      double element = values[input].at(row, col);
      values[argument] = {1, 1, {element}};
    }
    runBlock(body);
    for (auto [result, yielded] : llvm::zip(results, op.getYielded()))
      result.elements[row * shape.cols + col] = scalar(yielded);
  });
  for (auto [value, result] : llvm::zip(op.getResults(), results))
    values[value] = std::move(result);
}

void Interpreter::runDot(DotOp op) {
  Tile result = values[op.getAcc()];
  Tile &a = values[op.getA()], &b = values[op.getB()];
  int64_t depth = op.getTransposeA() ? a.rows : a.cols;
  forEach(result, [&](int64_t row, int64_t col, double &sum) {
    for (int64_t k = 0; k < depth; ++k)
      sum +=
          a.elements[op.getTransposeA() ? k * a.cols + row : row * a.cols + k] *
          b.elements[op.getTransposeB() ? col * b.cols + k : k * b.cols + col];
  });
  values[op.getResult()] = std::move(result);
}

void Interpreter::runReduce(ReduceOp op) {
  Tile result = makeTile(op.getResult());
  bool first = true;
  auto combine = [&](double x, double y) {
    switch (op.getKind()) {
    case ReduceKind::Add:
      return x + y;
    case ReduceKind::Max:
      return std::max(x, y);
    case ReduceKind::Min:
      return std::min(x, y);
    }
    return x;
  };
  forEach(values[op.getInput()], [&](int64_t row, int64_t col, double v) {
    first = op.getAxis() == 1 ? col == 0 : row == 0;
    double &sum = result.elements[op.getAxis() == 1 ? row : col];
    sum = first ? v : combine(sum, v);
  });
  values[op.getResult()] = std::move(result);
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static bool compare(arith::CmpIPredicate predicate, int64_t x, int64_t y) {
  auto ux = static_cast<uint32_t>(x), uy = static_cast<uint32_t>(y);
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return x == y;
  case arith::CmpIPredicate::ne:
    return x != y;
  case arith::CmpIPredicate::slt:
    return x < y;
  case arith::CmpIPredicate::sle:
    return x <= y;
  case arith::CmpIPredicate::sgt:
    return x > y;
  case arith::CmpIPredicate::sge:
    return x >= y;
  case arith::CmpIPredicate::ult:
    return ux < uy;
  case arith::CmpIPredicate::ule:
    return ux <= uy;
  case arith::CmpIPredicate::ugt:
    return ux > uy;
  case arith::CmpIPredicate::uge:
    return ux >= uy;
  }
  return false;
}

static bool compare(arith::CmpFPredicate predicate, double x, double y) {
  switch (predicate) {
  case arith::CmpFPredicate::OEQ:
    return x == y;
  case arith::CmpFPredicate::OLT:
    return x < y;
  case arith::CmpFPredicate::OLE:
    return x <= y;
  case arith::CmpFPredicate::OGT:
    return x > y;
  case arith::CmpFPredicate::OGE:
    return x >= y;
  case arith::CmpFPredicate::UNE:
    return x != y;
  default:
    ADD_FAILURE() << "unknown comparison";
    return false;
  }
}

double Interpreter::evaluate(Operation *op) {
  auto in = [&](unsigned i) { return scalar(op->getOperand(i)); };
  auto integer = [&](unsigned i) { return static_cast<int64_t>(in(i)); };
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case([](arith::ConstantOp constant) -> double {
        if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
          return number.getValueAsDouble();
        APInt number = cast<IntegerAttr>(constant.getValue()).getValue();
        return number.getBitWidth() == 1
                   ? static_cast<double>(number.getZExtValue())
                   : static_cast<double>(number.getSExtValue());
      })
      .Case([&](arith::CmpIOp cmp) {
        return compare(cmp.getPredicate(), integer(0), integer(1));
      })
      .Case([&](arith::CmpFOp cmp) {
        return compare(cmp.getPredicate(), in(0), in(1));
      })
      .Case([&](arith::SelectOp) { return in(0) != 0 ? in(1) : in(2); })
      .Case<arith::AddFOp, arith::AddIOp>([&](auto) { return in(0) + in(1); })
      .Case<arith::SubFOp, arith::SubIOp>([&](auto) { return in(0) - in(1); })
      .Case<arith::MulFOp, arith::MulIOp>([&](auto) { return in(0) * in(1); })
      .Case<arith::MaxNumFOp, arith::MaxSIOp>(
          [&](auto) { return std::fmax(in(0), in(1)); })
      .Case<arith::MinNumFOp, arith::MinSIOp>(
          [&](auto) { return std::fmin(in(0), in(1)); })
      .Case([&](arith::DivFOp) { return in(0) / in(1); })
      .Case([&](arith::NegFOp) { return -in(0); })
      .Case([&](arith::DivSIOp) -> double { return integer(0) / integer(1); })
      .Case([&](arith::RemSIOp) -> double { return integer(0) % integer(1); })
      .Case([&](arith::AndIOp) -> double { return integer(0) & integer(1); })
      .Case([&](arith::OrIOp) -> double { return integer(0) | integer(1); })
      .Case([&](arith::XOrIOp) -> double { return integer(0) ^ integer(1); })
      .Case<arith::ExtFOp, arith::ExtUIOp, arith::SIToFPOp, arith::UIToFPOp>(
          [&](auto) { return in(0); })
      .Case([&](arith::TruncFOp op) { return roundTo(op.getType(), in(0)); })
      .Case([&](math::ExpOp) { return std::exp(in(0)); })
      .Case([&](math::Exp2Op) { return std::exp2(in(0)); })
      .Case([&](math::LogOp) { return std::log(in(0)); })
      .Case([&](math::SqrtOp) { return std::sqrt(in(0)); })
      .Case([&](math::RsqrtOp) { return 1 / std::sqrt(in(0)); })
      .Case([&](math::TanhOp) { return std::tanh(in(0)); })
      .Case([&](math::SinOp) { return std::sin(in(0)); })
      .Case([&](math::CosOp) { return std::cos(in(0)); })
      .Case([&](math::AbsFOp) { return std::fabs(in(0)); })
      .Default([](Operation *op) {
        ADD_FAILURE() << "unknown operation "
                      << op->getName().getStringRef().str();
        return 0.0;
      });
}
