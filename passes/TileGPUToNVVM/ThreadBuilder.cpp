//===- ThreadBuilder.cpp - code of one thread of a block ------------------===//

#include "passes/TileGPUToNVVM/ThreadBuilder.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/TileUtils.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"

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

Value ThreadBuilder::equal(Value lhs, int64_t rhs) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::eq, lhs,
                               constant(lhs.getType(), double(rhs)));
}

Value ThreadBuilder::differs(Value lhs, int64_t rhs) {
  return arith::CmpIOp::create(*this, arith::CmpIPredicate::ne, lhs,
                               constant(lhs.getType(), double(rhs)));
}

Value ThreadBuilder::clamp(Value value, int64_t count) {
  return arith::MinSIOp::create(*this, value, i32(count - 1));
}

Value ThreadBuilder::inside(Value value, int64_t extent) {
  // A negative number is a large one without a sign.
  return createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ult, value,
                                     i32(extent));
}

/// Several operations compute the same here; they become one.
Value ThreadBuilder::size(const Extent &extent, Type type) {
  if (extent.isConstant())
    return arith::ConstantOp::create(
        *this, IntegerAttr::get(type, static_cast<int64_t>(extent)));
  OpBuilder::InsertionGuard guard(*this);
  setInsertionPointToStart(&getKernel().getBody().front());
  SmallVector<Value> extents;
  for (unsigned number = 0; number < kNumExtents; ++number)
    extents.push_back(tile::ExtentOp::create(*this, type, number));
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

/// Bytes of an element, or of a vector of at least 16 bits each.
static unsigned memoryBytes(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? unsigned(vector.getNumElements()) *
                      elementBytes(vector.getElementType())
                : elementBytes(type);
}

Value ThreadBuilder::load(Value base, Value index, Type type) {
  Type inMemory = memoryType(type);
  Value value = LLVM::LoadOp::create(
      *this, inMemory, address(base, index, getElementTypeOrSelf(type)),
      memoryBytes(type));
  if (inMemory == type)
    return value;
  return arith::TruncIOp::create(*this, type, value);
}

void ThreadBuilder::store(Value value, Value base, Value index) {
  Type type = value.getType(), inMemory = memoryType(type);
  Value place = address(base, index, getElementTypeOrSelf(type));
  if (inMemory != type)
    value = arith::ExtUIOp::create(*this, inMemory, value);
  LLVM::StoreOp::create(*this, value, place, memoryBytes(type));
}

Value ThreadBuilder::advance(Value base, Value bytes) {
  return address(base, bytes, getI8Type());
}

Value ThreadBuilder::advance(Value base, int64_t bytes) {
  if (bytes == 0)
    return base;
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(bytes)},
                             LLVM::GEPNoWrapFlags::inbounds);
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Value ThreadBuilder::vectorOf(ValueRange elements) {
  auto type =
      VectorType::get({int64_t(elements.size())}, elements[0].getType());
  Value vector = LLVM::PoisonOp::create(*this, type);
  for (auto [i, element] : llvm::enumerate(elements))
    vector = LLVM::InsertElementOp::create(*this, vector, element, i32(i));
  return vector;
}

Value ThreadBuilder::pair(Value low, Value high, Type element) {
  if (low.getType() == element)
    return vectorOf({low, high});
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

tile::KernelOp ThreadBuilder::getKernel() {
  return getInsertionBlock()->getParent()->getParentOfType<tile::KernelOp>();
}

int64_t ThreadBuilder::getThreads() { return cuda::getThreads(getKernel()); }

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

Value ThreadBuilder::vote(Value condition, NVVM::VoteSyncKind kind) {
  Type type = kind == NVVM::VoteSyncKind::ballot ? getI32Type() : getI1Type();
  return NVVM::VoteSyncOp::create(*this, type, i32(-1), condition, kind);
}

Value ThreadBuilder::broadcast(Value value) {
  return shuffleFrom(value, i32(0));
}

//===----------------------------------------------------------------------===//
// Where the kernel begins
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kPrologueAttr = "tile_gpu.prologue";

Value ThreadBuilder::once(llvm::StringLiteral name, function_ref<Value()> make,
                          int64_t x, int64_t y, int64_t z) {
  std::tuple key(StringRef(name), x, y, z);
  if (Value known = prologue.lookup(key))
    return known;
  Block *block = getInsertionBlock();
  auto end = getInsertionPoint();
  Operation *last = end == block->begin() ? nullptr : &*std::prev(end);
  Value made = make();
  auto begin = last ? std::next(last->getIterator()) : block->begin();
  for (Operation &op : llvm::make_range(begin, end))
    op.setAttr(kPrologueAttr, getUnitAttr());
  return prologue[key] = made;
}

namespace {
/// Operations that compute the same.
struct SameOperation : llvm::DenseMapInfo<Operation *> {
  static unsigned getHashValue(const Operation *op) {
    return unsigned(OperationEquivalence::computeHash(
        const_cast<Operation *>(op), OperationEquivalence::directHashValue,
        OperationEquivalence::ignoreHashValue,
        OperationEquivalence::IgnoreLocations));
  }
  static bool isEqual(const Operation *lhs, const Operation *rhs) {
    auto isKey = [](const Operation *op) {
      return op == getEmptyKey() || op == getTombstoneKey();
    };
    if (isKey(lhs) || isKey(rhs))
      return lhs == rhs;
    return OperationEquivalence::isEquivalentTo(
        const_cast<Operation *>(lhs), const_cast<Operation *>(rhs),
        OperationEquivalence::IgnoreLocations);
  }
};
} // namespace

void nsa::cuda::movePrologue(LLVM::LLVMFuncOp function) {
  SmallVector<Operation *> ops;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op->removeAttr(kPrologueAttr))
      ops.push_back(op);
  });
  llvm::DenseSet<Operation *, SameOperation> known;
  Operation *last = nullptr;
  for (Operation *op : ops) {
    auto [same, isNew] = known.insert(op);
    if (!isNew) {
      op->replaceAllUsesWith(*same);
      op->erase();
      continue;
    }
    if (last)
      op->moveAfter(last);
    last = op;
  }
}

Value ThreadBuilder::threadId() {
  return once("thread",
              [&] { return NVVM::ThreadIdXOp::create(*this, getI32Type()); });
}

ThreadBuilder::Place ThreadBuilder::place() {
  Place own;
  own.lane = once("lane", [&] { return rem(threadId(), 32); });
  own.warp = once("warp", [&] { return div(threadId(), 32); });
  own.quad = once("quad", [&] { return div(own.lane, 4); });
  own.pair = once("pair", [&] { return mul(rem(own.lane, 4), 2); });
  return own;
}

Value ThreadBuilder::warpOfGroup() {
  return once("warp of group",
              [&] { return broadcast(rem(place().warp, warpsOfGroup)); });
}

Value ThreadBuilder::sharedBase() {
  return once("shared base", [&] {
    return LLVM::AddressOfOp::create(
        *this,
        LLVM::LLVMPointerType::get(getContext(), unsigned(Space::Shared)),
        kSharedMemory);
  });
}

Value ThreadBuilder::scratchBase() {
  return once("scratch base", [&] {
    auto offset =
        getKernel()->getAttrOfType<IntegerAttr>(tile_gpu::kScratchAttr);
    return advance(sharedBase(), i32(offset.getInt()));
  });
}

//===----------------------------------------------------------------------===//
// Rows and columns
//===----------------------------------------------------------------------===//

/// Those of MMA tiles are computed once: a kernel has few of them, but needs
/// them all over.
Value ThreadBuilder::rowOf(const RegisterLayout &layout, int64_t r) {
  auto make = [&]() -> Value {
    if (layout.rows == 1)
      return i32(0);
    Value first = layout.isMma ? add(mul(place().warp, 16), place().quad)
                               : div(threadId(), layout.threadsPerRow);
    return add(first, layout.rowOffset(r));
  };
  return layout.isMma ? once("row", make, layout.rows == 1 ? -1 : r) : make();
}

Value ThreadBuilder::firstCol(const RegisterLayout &layout) {
  if (layout.isMma)
    return place().pair;
  Value member = layout.rowGroups() == 1
                     ? threadId()
                     : rem(threadId(), layout.threadsPerRow);
  return mul(member, layout.width);
}

Value ThreadBuilder::colOf(const RegisterLayout &layout, int64_t c) {
  auto make = [&]() -> Value {
    return layout.cols == 1 ? i32(0)
                            : add(firstCol(layout), layout.colOffset(c));
  };
  return layout.isMma ? once("column", make, layout.cols == 1 ? -1 : c)
                      : make();
}

std::pair<Value, Value> ThreadBuilder::inside(const RegisterLayout &layout,
                                              int64_t r, int64_t c) {
  Value row = rowOf(layout, r), col = colOf(layout, c);
  if (!layout.hasRow(r))
    row = clamp(row, layout.rows);
  if (!layout.hasCol(c))
    col = clamp(col, layout.cols);
  return {row, col};
}

Value ThreadBuilder::hasRow(const RegisterLayout &layout, int64_t r) {
  return layout.hasRow(r) ? Value() : less(rowOf(layout, r), layout.rows);
}

Value ThreadBuilder::hasCol(const RegisterLayout &layout, int64_t c) {
  return layout.hasCol(c) ? Value() : less(colOf(layout, c), layout.cols);
}

Value ThreadBuilder::isFirst(const RegisterLayout &layout) {
  if (!layout.isRepeated())
    return {};
  // Of the first group of threads, or of each.
  return layout.cols > 1    ? less(threadId(), layout.threadsPerRow)
         : layout.rows == 1 ? less(threadId(), 1)
                            : less(firstCol(layout), 1);
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

//===----------------------------------------------------------------------===//
// Instructions as text
//===----------------------------------------------------------------------===//

static StringRef constraintOf(Type type) {
  if (type.isF32())
    return "f";
  return type.isInteger(64) || isa<LLVM::LLVMPointerType>(type) ? "l" : "r";
}

SmallVector<Value> Assembly::create(ImplicitLocOpBuilder &b) const {
  SmallVector<std::string> constraints;
  for (Type type : results)
    constraints.push_back(("=" + constraintOf(type)).str());
  for (Value input : inputs)
    constraints.push_back(constraintOf(input.getType()).str());
  for (size_t i = 0; i < tied.size(); ++i)
    constraints.push_back(std::to_string(i));
  if (ordersMemory)
    constraints.push_back("~{memory}");
  Type type;
  if (results.size() == 1)
    type = results[0];
  else if (!results.empty())
    type = LLVM::LLVMStructType::getLiteral(b.getContext(), results);
  SmallVector<Value> operands(inputs);
  llvm::append_range(operands, tied);
  auto instruction = LLVM::InlineAsmOp::create(
      b, type, operands, StringRef(text),
      StringRef(llvm::join(constraints, ",")), /*has_side_effects=*/true,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() == 1)
    return {instruction.getRes()};
  SmallVector<Value> values;
  for (int64_t i = 0; i < int64_t(results.size()); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, instruction.getRes(), i));
  return values;
}

SmallVector<Value> nsa::cuda::passThrough(ImplicitLocOpBuilder &b,
                                          StringRef instruction,
                                          ValueRange values) {
  Assembly assembly{
      instruction.str(), llvm::to_vector(values.getTypes()), {}, values};
  return assembly.create(b);
}
