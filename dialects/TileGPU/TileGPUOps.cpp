//===- TileGPUOps.cpp - memory and threads of a block ---------------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

#define GET_OP_CLASSES
#include "dialects/TileGPU/TileGPUOps.cpp.inc"

/// The tile that lies in a buffer; in one of 32-bit elements, of no layout.
static TileType getTileType(MemDescType buffer) {
  Attribute layout;
  if (!buffer.isLine())
    layout = SharedAttr::get(buffer.getContext());
  return TileType::get(buffer.getShape(), buffer.getElementType(), layout);
}

LogicalResult AllocOp::verify() {
  MemDescType type = getBuffer().getType();
  if (type.isLine() == getSwizzle().has_value())
    return emitOpError(getSwizzle() ? "has a swizzle" : "has no swizzle")
           << ", but holds elements of " << type.getElementType();
  if (type.isLine())
    return success();
  auto swizzle = int64_t(*getSwizzle());
  // Rows are filled up to whole vectors of two.
  int64_t bytes = llvm::alignTo(type.getShape()[1], 16) * 2;
  if ((swizzle == 32 || swizzle == 64 || swizzle == 128) &&
      bytes % swizzle == 0)
    return success();
  return emitOpError("has a swizzle of ")
         << swizzle << " bytes, not one of 32, 64 and 128 that divides the "
         << bytes << " of a row";
}

TileType AsyncCopyOp::getTileType() {
  return ::getTileType(getBuffer().getType());
}

bool AsyncCopyOp::isAsync() { return getWidth() > 1 || isLine(); }

LogicalResult AsyncCopyOp::verify() {
  int64_t cols = getTileType().getCols();
  auto width = int64_t(getWidth());
  if (width < 1 || width > 8 || !llvm::isPowerOf2_64(getWidth()) ||
      (width > 1 && cols % width != 0))
    return emitOpError("moves ")
           << width << " elements at once, not 1, 2, 4 or 8 that divide the "
           << cols << " columns";
  return verifyAccess(*this, cast<MemRefType>(getRef().getType()), getIndices(),
                      getTileType());
}

LogicalResult LocalStoreOp::verify() {
  TileType buffer = ::getTileType(getBuffer().getType());
  auto tile = cast<TileType>(getTile().getType());
  if (tile.withLayout(buffer.getLayout()) == buffer)
    return success();
  return emitOpError("stores ")
         << tile << " to a buffer of " << getBuffer().getType();
}

LogicalResult LocalViewOp::verify() {
  if (getTile().getType() == ::getTileType(getBuffer().getType()))
    return success();
  return emitOpError("shows ") << getTile().getType() << ", not "
                               << ::getTileType(getBuffer().getType());
}

LogicalResult LocalLoadOp::verify() {
  auto tile = cast<TileType>(getTile().getType());
  MemDescType buffer = getBuffer().getType();
  if (buffer.isLine() && tile.getShape() == buffer.getShape() &&
      tile.getElementType() == buffer.getElementType())
    return success();
  return emitOpError("loads ")
         << tile << " from " << buffer << ", not a line of the same shape";
}

void IterationOp::inferResultRanges(ArrayRef<ConstantIntRanges> ranges,
                                    SetIntRangeFn setResultRange) {
  APInt least = ranges[1].smin(), most = ranges[2].smax() - 1;
  if (most.sge(least))
    setResultRange(getResult(), ConstantIntRanges::fromSigned(least, most));
}

bool nsa::tile_gpu::hasBlockedLayout(Type type) {
  auto tile = dyn_cast<TileType>(type);
  return tile && (!tile.getLayout() || isa<BlockedAttr>(tile.getLayout()));
}

/// Whether each warp makes its part of the results of `op` alone.
static bool isOfOneWarp(Operation *op) {
  if (isa<RangeOp, SplatOp, scf::YieldOp, nsa::tile_gpu::YieldOp>(op))
    return true;
  if (llvm::any_of(op->getOperandTypes(), hasBlockedLayout) ||
      llvm::any_of(op->getResultTypes(), hasBlockedLayout))
    return false;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getAxis() == 1;
  if (auto load = dyn_cast<LoadOp>(op))
    return hasLayout<RematerializedAttr>(load.getType());
  if (auto dot = dyn_cast<DotOp>(op)) {
    auto mma = dot->getAttrOfType<MmaAttr>(kMmaAttr);
    return !mma || mma.getVersion() == 2;
  }
  return isa<MapOp>(op) ||
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

std::string
nsa::tile_gpu::findWarpBranchObstacle(Value rows, TypeRange results,
                                      MutableArrayRef<Region> regions) {
  if (!hasLayout<MmaLayoutAttr>(rows.getType()) ||
      !llvm::all_of(results, hasLayout<MmaLayoutAttr>))
    return "its rows are in no MMA tiles";
  for (Region &region : regions)
    for (Operation &op : region.getOps())
      if (!isOfOneWarp(&op))
        return "warps do '" + op.getName().getStringRef().str() +
               "' in its branch together";
  return "";
}

LogicalResult WarpIfOp::verify() {
  std::string obstacle = findWarpBranchObstacle(getRows(), getResultTypes(),
                                                (*this)->getRegions());
  if (!obstacle.empty())
    return emitOpError("is no branch of each warp alone: ") << obstacle;
  for (Region *region : getRegions())
    if (auto yield = dyn_cast<YieldOp>(region->front().back());
        !yield || yield.getOperandTypes() != getResultTypes())
      return emitOpError("does not yield the types of its results");
  return success();
}

LogicalResult WarpSpecializeOp::verifyRegions() {
  WalkResult result = getProducer().walk([&](TmaLoadOp load) -> WalkResult {
    for (int64_t warp : load.getWarps().value_or(ArrayRef<int64_t>()))
      if (warp < 0 || uint64_t(warp) >= getWarps().value_or(1))
        return load.emitOpError("is of warp ")
               << warp << " of a producer that has " << getWarps().value_or(1);
    return success();
  });
  return failure(result.wasInterrupted());
}

LogicalResult WarpSpecializeOp::verify() {
  std::optional<ArrayRef<int64_t>> registers = getRegisters();
  if (registers.has_value() == getLaunchRegisters().has_value() &&
      (!registers || registers->size() == 2))
    return success();
  return emitOpError("hands over registers, but does not say how many a thread "
                     "has at launch, as a producer and as a consumer");
}
