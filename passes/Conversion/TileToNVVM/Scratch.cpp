//===- Scratch.cpp - shared memory for layout conversions -----------------===//

#include "passes/Conversion/TileToNVVM/Scratch.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using nsa::tile_gpu::LocalStoreOp;

static constexpr int64_t kWarp = 32;

int64_t nsa::cuda::getScratchPitch(int64_t rows, int64_t cols, Type element) {
  return rows == 1 ? cols
                   : cols + std::max<int64_t>(4 / elementBytes(element), 1);
}

int64_t nsa::cuda::getScratchBytes(int64_t rows, int64_t cols, Type element) {
  return llvm::alignTo(
      rows * getScratchPitch(rows, cols, element) * elementBytes(element), 16);
}

static int64_t getTileBytes(Value value) {
  auto tile = cast<TileType>(value.getType());
  return getScratchBytes(tile.getRows(), tile.getCols(), tile.getElementType());
}

bool nsa::cuda::isVirtual(Value tile) {
  return isRematerialized(tile.getType()) ||
         isa_and_nonnull<RangeOp, SplatOp>(tile.getDefiningOp());
}

bool nsa::cuda::hasElementsOf(const BlockedLayout &tile,
                              const BlockedLayout &larger) {
  bool alongCols = tile.cols == 1 && larger.cols > 1;
  bool isOne = tile.rows == 1 && tile.cols == 1;
  return isOne || (tile.threadsPerRow == larger.threadsPerRow &&
                   (alongCols || tile.width == larger.width));
}

/// Operands that are elements of a larger shape.
static int64_t getBroadcastBytes(ValueRange operands, Type shape) {
  if (!hasBlockedLayout(shape))
    return 0;
  BlockedLayout larger = blockedLayoutOf(cast<TileType>(shape));
  int64_t bytes = 0;
  for (Value operand : operands)
    if (isa<TileType>(operand.getType()) && !isVirtual(operand) &&
        !hasElementsOf(blockedLayoutOf(operand), larger))
      bytes += getTileBytes(operand);
  return bytes;
}

static int64_t getConvertBytes(Value input, bool isVirtualFree) {
  return isShared(input.getType()) || (isVirtualFree && isVirtual(input))
             ? 0
             : getTileBytes(input);
}

static int64_t getStoreBytes(LocalStoreOp op) {
  Value input = op.getTile();
  bool isPacked = hasMmaLayout(input.getType()) && MmaLayout(input).isPacked();
  return isPacked || isVirtual(input) ? 0 : getTileBytes(input);
}

static int64_t getReduceBytes(ReduceOp op) {
  auto type = cast<TileType>(op.getInput().getType());
  Type element = type.getElementType();
  if (hasMmaLayout(type)) {
    MmaLayout input(op.getInput());
    return op.getAxis() == 0 && input.rows > 1 && input.warps > 1
               ? getScratchBytes(input.warps, input.colCount() * 4, element)
               : 0;
  }
  BlockedLayout from = blockedLayoutOf(type);
  BlockedLayout to = blockedLayoutOf(op.getResult());
  int64_t warps = llvm::divideCeil(from.threads, kWarp);
  if (op.getAxis() == 0) {
    bool isSame = from.cols == 1 || (to.threadsPerRow == from.threadsPerRow &&
                                     to.width == from.width);
    return from.rows == 1 || (warps == 1 && isSame)
               ? 0
               : getScratchBytes(warps, from.cols, element);
  }
  int64_t bytes = 0;
  if (from.cols > 1 && from.threadsPerRow > kWarp)
    bytes = getScratchBytes(warps, 1, element);
  if (from.rows > 1 && from.threadsPerRow != to.threadsPerRow)
    bytes = std::max(bytes, getScratchBytes(1, from.rows, element));
  return bytes;
}

/// Lists that lie in the registers of the threads that sort them stay there.
static int64_t getTopNBytes(TopNOp op) {
  BlockedLayout best = blockedLayoutOf(op.getBestValues());
  auto places =
      std::min<int64_t>(int64_t(llvm::bit_ceil(uint64_t(best.cols))), kWarp);
  int64_t bytes = getTileBytes(op.getValues());
  if (best.threadsPerRow == best.cols && best.perRow() == 1 &&
      best.cols == places)
    return bytes;
  return bytes + getTileBytes(op.getBestValues()) +
         getTileBytes(op.getBestIndices());
}

int64_t nsa::cuda::getScratchBytes(Operation *op) {
  if (op->getNumResults() > 0 && isRematerialized(op->getResult(0).getType()))
    return 0;
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](LoadOp load) {
        return getBroadcastBytes(load.getIndices(), load.getType());
      })
      .Case([](StoreOp store) {
        return getBroadcastBytes(store.getIndices(),
                                 store.getValue().getType());
      })
      .Case([](MapOp map) {
        return getBroadcastBytes(map.getInputs(), map.getShapeType());
      })
      .Case([](DotOp dot) -> int64_t {
        return hasMmaLayout(dot.getType())
                   ? 0
                   : getTileBytes(dot.getA()) + getTileBytes(dot.getB());
      })
      .Case([](ConvertOp convert) {
        return getConvertBytes(convert.getInput(),
                               hasMmaLayout(convert.getType()));
      })
      .Case([](LocalStoreOp store) { return getStoreBytes(store); })
      .Case([](ReduceOp reduce) { return getReduceBytes(reduce); })
      .Case([](TransposeOp t) { return getTileBytes(t.getInput()); })
      .Case([](TopNOp top) { return getTopNBytes(top); })
      .Case([](SortOp sort) { return getTileBytes(sort.getInput()); })
      .Default([](Operation *) -> int64_t { return 0; });
}
