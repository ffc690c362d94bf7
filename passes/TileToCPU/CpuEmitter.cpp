//===- CpuEmitter.cpp - control flow and the frame of a kernel ------------===//

#include "passes/TileToCPU/CpuEmitter.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Remarks.h"
#include "passes/Support/Debug.h"

#define DEBUG_TYPE "nsa-tile-to-cpu"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

/// Threads have stacks of 8 MiB; half of one is left to callers.
static constexpr int64_t maxStackBytes = 4 << 20;

static bool isTile(Value value) { return isa<TileType>(value.getType()); }

CpuEmitter::CpuEmitter(KernelOp kernel, unsigned width)
    : kernel(kernel), width(width), b(kernel.getLoc(), kernel.getContext()),
      bounds(kernel), fusion(kernel, bounds, width),
      buffers(kernel, fusion, width, [width](Operation *op) -> int64_t {
        auto dot = dyn_cast<DotOp>(op);
        return dot ? dotScratchBytes(dot, width) : 0;
      }) {}

LogicalResult CpuEmitter::emit() {
  if (buffers.getTotalBytes() > maxStackBytes)
    return kernel.emitError("kernel @")
           << kernel.getSymName() << " needs " << buffers.getTotalBytes()
           << " bytes of stack for its tiles, more than the " << maxStackBytes
           << " that a thread has";
  remark::analysis(kernel.getLoc(), remark::RemarkOpts::name("Stack")
                                        .category(DEBUG_TYPE)
                                        .function(kernel.getSymName()))
      << remark::metric("Bytes", buffers.getTotalBytes())
      << remark::metric("Slots", buffers.getSlots().size());
  b.setInsertionPoint(kernel);
  auto pointer = LLVM::LLVMPointerType::get(kernel.getContext());
  auto type = b.getFunctionType({pointer, b.getI64Type(), b.getI64Type()}, {});
  auto func = func::FuncOp::create(b, kernel.getSymName(), type);
  Block *entry = func.addEntryBlock();
  b.setInsertionPointToStart(entry);
  for (BlockArgument argument : kernel.getArguments()) {
    Value slot = b.address(entry->getArgument(0),
                           b.i64(8 * argument.getArgNumber()), b.getI8Type());
    scalars.map(argument, LLVM::LoadOp::create(b, pointer, slot, 8));
  }
  if (!bounds.getExtents().empty())
    for (unsigned number = 0; number < kNumExtents; ++number) {
      Value slot = b.address(entry->getArgument(0),
                             b.i64(8 * (kernel.getNumArguments() + number)),
                             b.getI8Type());
      extents.push_back(LLVM::LoadOp::create(b, b.getI64Type(), slot, 8));
    }
  for (int64_t bytes : buffers.getSlots())
    slots.push_back(LLVM::AllocaOp::create(
        b, pointer, LLVM::LLVMArrayType::get(b.getI8Type(), bytes), b.i64(1),
        /*alignment=*/64));
  emitProgramLoop();
  func::ReturnOp::create(b);
  recordPerformanceLints(func);
  return success();
}

void CpuEmitter::recordPerformanceLints(Operation *function) {
  SmallVector<StringRef> names = getPerformanceLints(kernel);
  for (const WorkEstimate::Finding &finding :
       work.findPerformanceLints(getArgumentBytes(kernel.getArgumentTypes()))) {
    names.push_back(getPerformanceLintName(finding.path));
    remark::missed(finding.op->getLoc(),
                   remark::RemarkOpts::name("PerformanceLint")
                       .category(DEBUG_TYPE)
                       .function(kernel.getSymName()))
        << remark::reason("{0} takes an estimated {1:P0} of the kernel's time "
                          "one element at a time ({2})",
                          finding.op->getName(), finding.share, names.back());
  }
  addPerformanceLints(function, names);
}

void CpuEmitter::emitProgramLoop() {
  auto func = cast<func::FuncOp>(b.getInsertionBlock()->getParentOp());
  b.loop(func.getArgument(1), func.getArgument(2), 1, ValueRange(),
         [&](Value program, ValueRange) -> SmallVector<Value> {
           Value rest = program;
           for (unsigned axis = 0; axis < 2; ++axis) {
             Value size = this->size(atLeast(getGridExtent(kernel, axis), 1));
             programIds.push_back(
                 b.toI32(b.createOrFold<arith::RemUIOp>(rest, size)));
             rest = b.createOrFold<arith::DivUIOp>(rest, size);
           }
           programIds.push_back(b.toI32(rest));
           emitBlock(kernel.getBody().front());
           return {};
         });
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

Value CpuEmitter::size(const Extent &extent) {
  if (extent.isConstant())
    return b.i64(int64_t(extent));
  Value &value = sizes[extent.getMap()];
  if (!value) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(extents.back());
    value = expandExtent(b, b.getLoc(), extent, extents);
  }
  return value;
}

Value CpuEmitter::multiply(Value value, const Extent &factor) {
  return factor.isConstant() ? b.mul(value, int64_t(factor))
                             : b.mul(value, size(factor));
}

Value CpuEmitter::isInside(Value value, const Extent &extent) {
  if (extent.isConstant())
    return b.inside(value, int64_t(extent));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, value,
                               b.toI32(size(extent)));
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void CpuEmitter::emitBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (fusion.getRoot(&op) != &op)
      continue;
    b.setLoc(op.getLoc());
    const Nest *nest = fusion.getNest(&op);
    if (!nest) {
      emitOp(&op);
      continue;
    }
    NSA_DEBUG() << "@" << kernel.getSymName() << ": a nest of "
                << nest->ops.size() << " operations over " << nest->shape
                << " around " << nest->root;
    emitNest(*this, *nest);
  }
}

void CpuEmitter::emitOp(Operation *op) {
  if (auto id = dyn_cast<ProgramIdOp>(op))
    return scalars.map(id.getId(), programIds[id.getAxis()]);
  if (auto extent = dyn_cast<ExtentOp>(op))
    return scalars.map(extent.getExtent(),
                       b.toI32(extents[extent.getNumber()]));
  if (auto view = dyn_cast<ViewOp>(op))
    return scalars.map(view.getResult(), scalar(view.getRef()));
  if (isa<RangeOp, SplatOp>(op)) {
    Value tile = op->getResult(0);
    if (hasBuffer(tile))
      fillBuffer(tile, bufferOf(tile));
    return;
  }
  if (auto load = dyn_cast<LoadOp>(op))
    return emitLoad(load);
  if (auto store = dyn_cast<StoreOp>(op))
    return emitStore(store);
  if (auto dot = dyn_cast<DotOp>(op))
    return emitDot(dot);
  if (auto any = dyn_cast<AnyOp>(op))
    return emitAny(any);
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return emitTranspose(transpose);
  if (auto top = dyn_cast<TopNOp>(op))
    return emitTopN(top);
  if (auto sort = dyn_cast<SortOp>(op))
    return emitSort(sort);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return emitFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return emitIf(branch);
  emitScalarOp(op);
}

void CpuEmitter::emitScalarOp(Operation *op) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(scalar(operand));
  scalars.map(op->getResults(), b.elementwise(op, operands, /*lanes=*/1));
}

/// How often a loop runs; a guess where its bounds are not constant.
static double estimateTrips(scf::ForOp op) {
  constexpr double guess = 8;
  std::optional<APInt> trips = op.getStaticTripCount();
  return trips ? trips->getLimitedValue() : guess;
}

void CpuEmitter::emitFor(scf::ForOp op) {
  SmallVector<Value> inits;
  for (auto [init, argument] :
       llvm::zip(op.getInitArgs(), op.getRegionIterArgs())) {
    if (isTile(init))
      copyTile(init, argument);
    else
      inits.push_back(scalar(init));
  }
  work.enterLoop(estimateTrips(op));
  auto loop = scf::ForOp::create(
      b, scalar(op.getLowerBound()), scalar(op.getUpperBound()),
      scalar(op.getStep()), inits,
      [](OpBuilder &, Location, Value, ValueRange) {});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(loop.getBody());
    scalars.map(op.getInductionVar(), loop.getInductionVar());
    auto *carried = loop.getRegionIterArgs().begin();
    for (Value argument : op.getRegionIterArgs())
      if (!isTile(argument))
        scalars.map(argument, *carried++);
    emitBlock(*op.getBody());
    SmallVector<Value> next;
    for (auto [value, argument] :
         llvm::zip(op.getYieldedValues(), op.getRegionIterArgs())) {
      if (isTile(value))
        copyTile(value, argument);
      else
        next.push_back(scalar(value));
    }
    scf::YieldOp::create(b, next);
  }
  work.leaveLoop();
  auto result = loop.getResults().begin();
  for (Value old : op.getResults())
    if (!isTile(old))
      scalars.map(old, *result++);
}

void CpuEmitter::emitIf(scf::IfOp op) {
  SmallVector<Type> types;
  for (Type type : op.getResultTypes())
    if (!isa<TileType>(type))
      types.push_back(registerType(type));
  bool hasElse = !op.getElseRegion().empty();
  auto branch =
      scf::IfOp::create(b, types, scalar(op.getCondition()),
                        /*addThenBlock=*/true, /*addElseBlock=*/hasElse);
  for (auto [from, to] : llvm::zip(op->getRegions(), branch->getRegions())) {
    if (from.empty())
      continue;
    OpBuilder::InsertionGuard guard(b);
    to.front().clear();
    b.setInsertionPointToEnd(&to.front());
    emitBlock(from.front());
    SmallVector<Value> values;
    for (auto [value, result] : llvm::zip(
             from.front().getTerminator()->getOperands(), op.getResults())) {
      if (isTile(value))
        copyTile(value, result);
      else
        values.push_back(scalar(value));
    }
    scf::YieldOp::create(b, values);
  }
  auto result = branch.getResults().begin();
  for (Value old : op.getResults())
    if (!isTile(old))
      scalars.map(old, *result++);
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

TileLayout CpuEmitter::layoutOf(Value tile) const {
  return TileLayout(cast<TileType>(tile.getType()), width);
}

CpuEmitter::Buffer CpuEmitter::bufferOf(Value tile) {
  assert(hasBuffer(tile) && "tile without a buffer");
  return {slots[buffers.getSlot(tile)], layoutOf(tile)};
}

Value CpuEmitter::splatScalar(Value tile) {
  auto splat = tile.getDefiningOp<SplatOp>();
  return splat ? scalar(splat.getValue()) : Value();
}

bool CpuEmitter::isZero(Value tile) {
  auto splat = tile.getDefiningOp<SplatOp>();
  auto constant =
      splat ? splat.getValue().getDefiningOp<arith::ConstantOp>() : nullptr;
  auto number =
      constant ? dyn_cast<FloatAttr>(constant.getValue()) : FloatAttr();
  return number && number.getValue().isPosZero();
}

Value CpuEmitter::coordinate(Value index, Value row, Value col) {
  if (!isTile(index))
    return scalar(index);
  if (Value repeated = splatScalar(index))
    return repeated;
  auto type = cast<TileType>(index.getType());
  if (auto range = index.getDefiningOp<RangeOp>()) {
    Value start = scalar(range.getStart());
    if (type.getNumElements() == 1)
      return start;
    Value place = b.toI32(range.getAxis() == 0 ? row : col);
    return b.add(start, b.mul(place, static_cast<int32_t>(range.getStep())));
  }
  Buffer buffer = bufferOf(index);
  Value place = b.i64(0);
  if (type.getRows() > 1)
    place = b.mul(row, buffer.layout.rowStride);
  if (type.getCols() > 1)
    place = b.add(place, col);
  return b.load(buffer.base, place, b.getI32Type(), 1);
}

void CpuEmitter::copyTile(Value source, Value target) {
  if (buffers.shareBuffer(source, target))
    return;
  fillBuffer(source, bufferOf(target));
}

void CpuEmitter::fillBuffer(Value source, const Buffer &target) {
  const TileLayout &layout = target.layout;
  unsigned lanes = lanesFor(layout.size, width);
  Type element = layout.elementType;
  if (Value repeated = splatScalar(source)) {
    Value vector = b.splat(repeated, lanes);
    return b.loop(layout.size, lanes,
                  [&](Value i) { b.store(vector, target.base, i, element); });
  }
  if (auto range = source.getDefiningOp<RangeOp>()) {
    auto step = static_cast<int32_t>(range.getStep());
    Value first = b.splat(scalar(range.getStart()), lanes);
    Value base = arith::AddIOp::create(b, first, b.iota(lanes, step));
    return b.loop(layout.size, lanes, [&](Value i) {
      Value moved = b.splat(b.mul(b.toI32(i), step), lanes);
      b.store(arith::AddIOp::create(b, base, moved), target.base, i, element);
    });
  }
  Buffer from = bufferOf(source);
  b.loop(layout.size, lanes, [&](Value i) {
    b.store(b.load(from.base, i, element, lanes), target.base, i, element);
  });
}
