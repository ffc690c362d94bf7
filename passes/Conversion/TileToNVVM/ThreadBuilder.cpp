//===- ThreadBuilder.cpp - code of one thread of a block ------------------===//

#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;

unsigned nsa::cuda::elementBytes(Type elementType) {
  return (elementType.getIntOrFloatBitWidth() + 7) / 8;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Value ThreadBuilder::i32(int64_t number) {
  return arith::ConstantOp::create(
      *this, getI32IntegerAttr(static_cast<int32_t>(number)));
}

Value ThreadBuilder::i64(int64_t number) {
  return arith::ConstantOp::create(*this, getI64IntegerAttr(number));
}

Value ThreadBuilder::constant(Type type, double number) {
  TypedAttr value =
      isa<FloatType>(type)
          ? TypedAttr(FloatAttr::get(type, number))
          : TypedAttr(IntegerAttr::get(type, static_cast<int64_t>(number)));
  return arith::ConstantOp::create(*this, value);
}

Value ThreadBuilder::add(Value lhs, Value rhs) {
  return createOrFold<arith::AddIOp>(lhs, rhs,
                                     arith::IntegerOverflowFlags::nsw);
}

Value ThreadBuilder::add(Value lhs, int64_t rhs) {
  return rhs == 0 ? lhs : add(lhs, constant(lhs.getType(), double(rhs)));
}

Value ThreadBuilder::mul(Value lhs, int64_t rhs) {
  return rhs == 1
             ? lhs
             : createOrFold<arith::MulIOp>(lhs,
                                           constant(lhs.getType(), double(rhs)),
                                           arith::IntegerOverflowFlags::nsw);
}

Value ThreadBuilder::div(Value lhs, int64_t rhs) {
  return rhs == 1 ? lhs : createOrFold<arith::DivUIOp>(lhs, i32(rhs));
}

Value ThreadBuilder::rem(Value lhs, int64_t rhs) {
  return rhs == 1 ? i32(0) : createOrFold<arith::RemUIOp>(lhs, i32(rhs));
}

Value ThreadBuilder::less(Value lhs, int64_t rhs) {
  return createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, lhs, i32(rhs));
}

Value ThreadBuilder::inside(Value value, int64_t extent) {
  // A negative number is a large one without a sign.
  return createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ult, value,
                                     i32(extent));
}

/// Code of several places computes the same here; it becomes one.
Value ThreadBuilder::size(const Extent &extent, Type type) {
  if (extent.isConstant())
    return arith::ConstantOp::create(
        *this, IntegerAttr::get(type, static_cast<int64_t>(extent)));
  OpBuilder::InsertionGuard guard(*this);
  auto function =
      getInsertionBlock()->getParent()->getParentOfType<LLVM::LLVMFuncOp>();
  setInsertionPointToStart(&function.front());
  SmallVector<Value> extents;
  for (Value parameter : function.getArguments().take_back(kNumExtents))
    extents.push_back(type == parameter.getType()
                          ? parameter
                          : arith::TruncIOp::create(*this, type, parameter));
  return expandExtent(*this, getLoc(), extent, extents);
}

Value ThreadBuilder::mul(Value lhs, const Extent &rhs) {
  if (rhs.isConstant())
    return mul(lhs, static_cast<int64_t>(rhs));
  return arith::MulIOp::create(*this, lhs, size(rhs, lhs.getType()),
                               arith::IntegerOverflowFlags::nsw);
}

Value ThreadBuilder::inside(Value value, const Extent &extent) {
  if (extent.isConstant())
    return inside(value, static_cast<int64_t>(extent));
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ult, value,
                               size(extent, value.getType()));
}

Value ThreadBuilder::both(Value lhs, Value rhs) {
  if (!lhs || !rhs)
    return lhs ? lhs : rhs;
  return createOrFold<arith::AndIOp>(lhs, rhs);
}

Value ThreadBuilder::select(Value condition, Value yes, Value no) {
  return createOrFold<arith::SelectOp>(condition, yes, no);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static Type memoryType(Type elementType) {
  return elementType.isInteger(1)
             ? Type(IntegerType::get(elementType.getContext(), 8))
             : elementType;
}

Value ThreadBuilder::address(Value base, Value index, Type element) {
  return LLVM::GEPOp::create(*this, base.getType(), memoryType(element), base,
                             ValueRange{index});
}

Value ThreadBuilder::load(Value base, Value index, Type element) {
  Type inMemory = memoryType(element);
  Value value = LLVM::LoadOp::create(
      *this, inMemory, address(base, index, element), elementBytes(inMemory));
  if (inMemory == element)
    return value;
  return arith::TruncIOp::create(*this, element, value);
}

void ThreadBuilder::store(Value value, Value base, Value index) {
  Type element = value.getType(), inMemory = memoryType(element);
  Value place = address(base, index, element);
  if (inMemory != element)
    value = arith::ExtUIOp::create(*this, inMemory, value);
  LLVM::StoreOp::create(*this, value, place, elementBytes(inMemory));
}

Value ThreadBuilder::advance(Value base, Value bytes) {
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ValueRange{bytes});
}

Value ThreadBuilder::advance(Value base, int64_t bytes) {
  if (bytes == 0)
    return base;
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(bytes)},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Value ThreadBuilder::loadVector(Value base, Value index, Type element,
                                int64_t count) {
  return LLVM::LoadOp::create(*this, VectorType::get({count}, element),
                              address(base, index, element),
                              count * elementBytes(element));
}

void ThreadBuilder::storeVector(Value vector, Value base, Value index) {
  auto type = cast<VectorType>(vector.getType());
  LLVM::StoreOp::create(
      *this, vector, address(base, index, type.getElementType()),
      type.getNumElements() * elementBytes(type.getElementType()));
}

//===----------------------------------------------------------------------===//
// Pairs of 16-bit numbers
//===----------------------------------------------------------------------===//

Value ThreadBuilder::vectorOfTwo(Value low, Value high) {
  auto type = VectorType::get({2}, low.getType());
  Value vector = LLVM::PoisonOp::create(*this, type);
  vector = LLVM::InsertElementOp::create(*this, vector, low, i32(0));
  return LLVM::InsertElementOp::create(*this, vector, high, i32(1));
}

Value ThreadBuilder::pair(Value low, Value high, Type element) {
  if (low.getType() == element)
    return vectorOfTwo(low, high);
  auto type = VectorType::get({2}, element);
  auto rounding = NVVM::FPRoundingMode::RN;
  if (element.isBF16())
    return NVVM::ConvertF32x2ToBF16x2Op::create(*this, type, high, low, Value(),
                                                rounding);
  return NVVM::ConvertF32x2ToF16x2Op::create(*this, type, high, low, Value(),
                                             rounding);
}

Value ThreadBuilder::half(Value vector, int64_t i) {
  return LLVM::ExtractElementOp::create(*this, vector, i32(i));
}

Value ThreadBuilder::bitcast(Value value, Type type) {
  if (value.getType() == type)
    return value;
  return LLVM::BitcastOp::create(*this, type, value);
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Value ThreadBuilder::threadId() {
  return NVVM::ThreadIdXOp::create(*this, getI32Type());
}

Value ThreadBuilder::blockId(unsigned axis) {
  switch (axis) {
  case 0:
    return NVVM::BlockIdXOp::create(*this, getI32Type());
  case 1:
    return NVVM::BlockIdYOp::create(*this, getI32Type());
  default:
    return NVVM::BlockIdZOp::create(*this, getI32Type());
  }
}

Value ThreadBuilder::shuffle(Value value, unsigned mask) {
  return NVVM::ShflOp::create(*this, value.getType(), i32(-1), value, i32(mask),
                              i32(31), NVVM::ShflKind::bfly, UnitAttr());
}

Value ThreadBuilder::shuffleFrom(Value value, Value lane) {
  return NVVM::ShflOp::create(*this, value.getType(), i32(-1), value, lane,
                              i32(31), NVVM::ShflKind::idx, UnitAttr());
}

Value ThreadBuilder::broadcast(Value value) {
  return shuffleFrom(value, i32(0));
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

void ThreadBuilder::ifThen(Value condition, function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(&branch.getThenRegion().front());
  body();
}

SmallVector<Value>
ThreadBuilder::ifElse(Value condition, TypeRange types,
                      function_ref<SmallVector<Value>()> yes,
                      function_ref<SmallVector<Value>()> no) {
  auto branch = scf::IfOp::create(*this, types, condition,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(*this, yes());
  setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(*this, no());
  return llvm::to_vector_of<Value>(branch.getResults());
}

SmallVector<Value>
ThreadBuilder::loop(Value begin, Value end, Value step, ValueRange inits,
                    function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto loop =
      scf::ForOp::create(*this, begin, end, step, inits,
                         [](OpBuilder &, Location, Value, ValueRange) {});
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> next =
      body(loop.getInductionVar(), loop.getRegionIterArgs());
  scf::YieldOp::create(*this, next);
  return SmallVector<Value>(loop.getResults());
}
