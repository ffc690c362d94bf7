//===- VectorBuilder.cpp - short vectors and raw memory -------------------===//

#include "passes/TileToCPU/VectorBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa::cpu;
using nsa::tile::TileType;

unsigned nsa::cpu::lanesFor(int64_t extent, unsigned width) {
  return extent >= width ? width : llvm::PowerOf2Ceil(extent);
}

bool nsa::cpu::isHalf(Type elementType) {
  return elementType.isBF16() || elementType.isF16();
}

Type nsa::cpu::registerType(Type elementType) {
  return isHalf(elementType) ? IntegerType::get(elementType.getContext(), 16)
                             : elementType;
}

Type nsa::cpu::memoryType(Type elementType) {
  return elementType.isInteger(1)
             ? IntegerType::get(elementType.getContext(), 8)
             : registerType(elementType);
}

unsigned nsa::cpu::memoryBytes(Type elementType) {
  return memoryType(elementType).getIntOrFloatBitWidth() / 8;
}

TileLayout::TileLayout(TileType type, unsigned width)
    : rows(type.getRows()), cols(type.getCols()),
      elementType(type.getElementType()) {
  rowStride = cols == 1 ? 1 : roundUp(cols, lanesFor(cols, width));
  size = roundUp(rows * rowStride, lanesFor(rows * rowStride, width));
}

//===----------------------------------------------------------------------===//
// Constants and integers
//===----------------------------------------------------------------------===//

Value VectorBuilder::i64(int64_t number) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(number));
}

Value VectorBuilder::i32(int64_t number) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(number));
}

Value VectorBuilder::f32(double number) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(number));
}

Value VectorBuilder::constant(Type elementType, double number, unsigned lanes) {
  Type type = registerType(elementType);
  TypedAttr attr;
  if (isa<FloatType>(type))
    attr = getFloatAttr(type, number);
  else
    attr = getIntegerAttr(type, static_cast<int64_t>(number));
  if (lanes > 1)
    attr = DenseElementsAttr::get(cast<ShapedType>(vectorOf(type, lanes)),
                                  Attribute(attr));
  return arith::ConstantOp::create(*this, attr);
}

Value VectorBuilder::iota(unsigned lanes, int64_t step) {
  if (lanes == 1)
    return i32(0);
  SmallVector<int32_t> numbers;
  for (unsigned i = 0; i < lanes; ++i)
    numbers.push_back(static_cast<int32_t>(i * step));
  return arith::ConstantOp::create(*this, getI32VectorAttr(numbers));
}

Value VectorBuilder::firstLanes(int64_t count, unsigned lanes) {
  SmallVector<bool> flags;
  for (int64_t i = 0; i < lanes; ++i)
    flags.push_back(i < count);
  return arith::ConstantOp::create(*this, getBoolVectorAttr(flags));
}

Value VectorBuilder::add(Value lhs, Value rhs) {
  return createOrFold<arith::AddIOp>(lhs, rhs);
}

Value VectorBuilder::mul(Value lhs, Value rhs) {
  return createOrFold<arith::MulIOp>(lhs, rhs);
}

Value VectorBuilder::add(Value lhs, int64_t rhs) {
  return rhs == 0 ? lhs
                  : add(lhs, lhs.getType().isInteger(64) ? i64(rhs) : i32(rhs));
}

Value VectorBuilder::mul(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs
                  : mul(lhs, lhs.getType().isInteger(64) ? i64(rhs) : i32(rhs));
}

Value VectorBuilder::logicalAnd(Value lhs, Value rhs) {
  if (!lhs || !rhs)
    return lhs ? lhs : rhs;
  return arith::AndIOp::create(*this, lhs, rhs);
}

Value VectorBuilder::toI64(Value value) {
  if (value.getType().isInteger(64))
    return value;
  if (value.getType().isIndex())
    return createOrFold<arith::IndexCastOp>(getI64Type(), value);
  return createOrFold<arith::ExtSIOp>(getI64Type(), value);
}

Value VectorBuilder::toI32(Value value) {
  if (value.getType().isInteger(32))
    return value;
  return createOrFold<arith::TruncIOp>(getI32Type(), value);
}

Value VectorBuilder::inside(Value value, int64_t extent) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ult, value,
                               i32(extent));
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Type VectorBuilder::vectorOf(Type elementType, unsigned lanes) {
  return lanes == 1 ? elementType : VectorType::get(lanes, elementType);
}

Value VectorBuilder::splat(Value scalar, unsigned lanes) {
  if (lanes == 1)
    return scalar;
  return vector::BroadcastOp::create(*this, vectorOf(scalar.getType(), lanes),
                                     scalar);
}

Value VectorBuilder::extract(Value vector, int64_t lane) {
  return vector::ExtractOp::create(*this, vector, lane);
}

Value VectorBuilder::shuffle(Value lhs, Value rhs, ArrayRef<int64_t> lanes) {
  return vector::ShuffleOp::create(*this, lhs, rhs, lanes);
}

Value VectorBuilder::horizontal(
    Value vector, llvm::function_ref<Value(Value, Value)> combine) {
  auto type = dyn_cast<VectorType>(vector.getType());
  if (!type)
    return vector;
  for (int64_t lanes = type.getNumElements(); lanes > 1; lanes /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(i + lanes / 2);
    }
    vector =
        combine(shuffle(vector, vector, low), shuffle(vector, vector, high));
  }
  return extract(vector, 0);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value VectorBuilder::address(Value base, Value index, Type element) {
  return LLVM::GEPOp::create(*this, base.getType(), memoryType(element), base,
                             ValueRange(index));
}

Value VectorBuilder::loadOfPairs(Value base, Value index, Type element,
                                 unsigned lanes, bool second) {
  if (lanes == 1)
    return load(base, index, element, 1);
  Value first = add(index, second ? -1 : 0);
  SmallVector<int64_t> chosen;
  for (int64_t lane = 0; lane < lanes; ++lane)
    chosen.push_back(2 * lane + second);
  return shuffle(load(base, first, element, lanes),
                 load(base, add(first, lanes), element, lanes), chosen);
}

Value VectorBuilder::load(Value base, Value index, Type element, unsigned lanes,
                          Value mask) {
  Type type = vectorOf(memoryType(element), lanes);
  Value pointer = address(base, index, element);
  unsigned alignment = memoryBytes(element);
  Value value;
  if (!mask) {
    value = LLVM::LoadOp::create(*this, type, pointer, alignment);
  } else if (lanes > 1) {
    Value zero = constant(memoryType(element), 0, lanes);
    value =
        LLVM::MaskedLoadOp::create(*this, type, pointer, mask, zero, alignment);
  } else {
    auto branch = scf::IfOp::create(*this, TypeRange(type), mask,
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPointToStart(branch.thenBlock());
    Value loaded = LLVM::LoadOp::create(*this, type, pointer, alignment);
    scf::YieldOp::create(*this, loaded);
    setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(*this, constant(memoryType(element), 0, 1));
    value = branch.getResult(0);
  }
  if (!element.isInteger(1))
    return value;
  return arith::TruncIOp::create(*this, vectorOf(element, lanes), value);
}

void VectorBuilder::store(Value value, Value base, Value index, Type element,
                          Value mask) {
  auto type = dyn_cast<VectorType>(value.getType());
  unsigned lanes = type ? type.getNumElements() : 1;
  if (element.isInteger(1))
    value = arith::ExtUIOp::create(*this, vectorOf(getI8Type(), lanes), value);
  Value pointer = address(base, index, element);
  unsigned alignment = memoryBytes(element);
  if (!mask) {
    LLVM::StoreOp::create(*this, value, pointer, alignment);
  } else if (lanes > 1) {
    LLVM::MaskedStoreOp::create(*this, value, pointer, mask, alignment);
  } else {
    ifThen(mask,
           [&] { LLVM::StoreOp::create(*this, value, pointer, alignment); });
  }
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

static std::optional<int64_t> constantOf(Value value) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  if (!constant)
    return std::nullopt;
  return cast<IntegerAttr>(constant.getValue()).getInt();
}

SmallVector<Value> VectorBuilder::loop(Value begin, Value end, int64_t step,
                                       ValueRange inits, LoopBody body) {
  auto first = constantOf(begin), last = constantOf(end);
  if (first && last && *last <= *first)
    return inits;
  if (first && last && *last <= *first + step)
    return body(begin, inits);
  auto loop =
      scf::ForOp::create(*this, begin, end, i64(step), inits,
                         [](OpBuilder &, Location, Value, ValueRange) {});
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> next =
      body(loop.getInductionVar(), ValueRange(loop.getRegionIterArgs()));
  scf::YieldOp::create(*this, next);
  return loop.getResults();
}

void VectorBuilder::loop(int64_t end, int64_t step,
                         llvm::function_ref<void(Value)> body, int64_t begin) {
  loop(i64(begin), i64(end), step, ValueRange(),
       [&](Value i, ValueRange) -> SmallVector<Value> {
         body(i);
         return {};
       });
}

void VectorBuilder::ifThen(Value condition, llvm::function_ref<void()> thenBody,
                           llvm::function_ref<void()> elseBody) {
  auto branch =
      scf::IfOp::create(*this, condition, static_cast<bool>(elseBody));
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(branch.thenBlock());
  thenBody();
  if (!elseBody)
    return;
  setInsertionPointToStart(branch.elseBlock());
  elseBody();
}

//===----------------------------------------------------------------------===//
// Elementwise operations
//===----------------------------------------------------------------------===//

Value VectorBuilder::extendBF16(Value bits, unsigned lanes) {
  Value wide =
      arith::ExtUIOp::create(*this, vectorOf(getI32Type(), lanes), bits);
  Value shifted =
      arith::ShLIOp::create(*this, wide, constant(getI32Type(), 16, lanes));
  return arith::BitcastOp::create(*this, vectorOf(getF32Type(), lanes),
                                  shifted);
}

Value VectorBuilder::extendF16(Value bits, unsigned lanes) {
  Value half =
      arith::BitcastOp::create(*this, vectorOf(getF16Type(), lanes), bits);
  return arith::ExtFOp::create(*this, vectorOf(getF32Type(), lanes), half);
}

Value VectorBuilder::truncateToF16(Value value, unsigned lanes) {
  Value half =
      arith::TruncFOp::create(*this, vectorOf(getF16Type(), lanes), value);
  return arith::BitcastOp::create(
      *this, vectorOf(IntegerType::get(getContext(), 16), lanes), half);
}

Value VectorBuilder::truncateToBF16(Value value, unsigned lanes) {
  Type i32Type = vectorOf(getI32Type(), lanes);
  auto number = [&](int64_t n) { return constant(getI32Type(), n, lanes); };
  Value bits = arith::BitcastOp::create(*this, i32Type, value);
  // Half a unit of the last kept bit, less one if that bit is 0.
  Value kept = arith::ShRUIOp::create(*this, bits, number(16));
  Value odd = arith::AndIOp::create(*this, kept, number(1));
  Value bias = arith::AddIOp::create(*this, odd, number(0x7fff));
  Value rounded = arith::ShRUIOp::create(
      *this, arith::AddIOp::create(*this, bits, bias), number(16));
  Value quiet = arith::OrIOp::create(*this, kept, number(0x40));
  Value isNaN =
      arith::CmpFOp::create(*this, arith::CmpFPredicate::UNO, value, value);
  Value result = arith::SelectOp::create(*this, isNaN, quiet, rounded);
  return arith::TruncIOp::create(
      *this, vectorOf(IntegerType::get(getContext(), 16), lanes), result);
}

SmallVector<Value>
VectorBuilder::elementwise(Operation *op, ValueRange operands, unsigned lanes) {
  if (auto constantOp = dyn_cast<arith::ConstantOp>(op)) {
    TypedAttr attr = cast<TypedAttr>(constantOp.getValue());
    if (auto number = dyn_cast<FloatAttr>(attr);
        number && isHalf(op->getResult(0).getType()))
      attr = getIntegerAttr(IntegerType::get(getContext(), 16),
                            number.getValue().bitcastToAPInt());
    if (lanes > 1)
      attr = DenseElementsAttr::get(
          cast<ShapedType>(vectorOf(attr.getType(), lanes)), Attribute(attr));
    return {arith::ConstantOp::create(*this, attr)};
  }
  if (isa<arith::ExtFOp>(op))
    return {op->getOperand(0).getType().isBF16()
                ? extendBF16(operands[0], lanes)
                : extendF16(operands[0], lanes)};
  if (isa<arith::TruncFOp>(op))
    return {op->getResult(0).getType().isBF16()
                ? truncateToBF16(operands[0], lanes)
                : truncateToF16(operands[0], lanes)};
  Operation *copy = op->cloneWithoutRegions();
  copy->setOperands(operands);
  for (OpResult result : copy->getResults())
    result.setType(vectorOf(registerType(result.getType()), lanes));
  insert(copy);
  return copy->getResults();
}
