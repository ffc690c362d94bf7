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
  if (!nsa::tile_gpu::hasBlockedLayout(shape))
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

ReduceExchange::ReduceExchange(ReduceOp op) {
  bool alongRows = op.getAxis() == 1;
  if (hasMmaLayout(op.getInput().getType())) {
    MmaLayout input(op.getInput());
    ofWarps = !alongRows && input.rows > 1 && input.warps > 1;
    return;
  }
  BlockedLayout from = blockedLayoutOf(op.getInput());
  BlockedLayout to = blockedLayoutOf(op.getResult());
  bool isSame = to.threadsPerRow == from.threadsPerRow;
  if (alongRows) {
    ofWarps = from.cols > 1 && from.threadsPerRow > kWarp;
    ofResults = from.rows > 1 && !isSame;
  } else if (from.rows > 1) {
    ofWarps = from.threads > kWarp;
    ofResults = from.cols > 1 && (!isSame || to.width != from.width);
  }
}

static int64_t getReduceBytes(ReduceOp op) {
  auto type = cast<TileType>(op.getInput().getType());
  Type element = type.getElementType();
  ReduceExchange exchange(op);
  if (!exchange.ofWarps && !exchange.ofResults)
    return 0;
  if (hasMmaLayout(type)) {
    MmaLayout input(op.getInput());
    return getScratchBytes(input.warps, input.colCount() * 4, element);
  }
  int64_t warps = llvm::divideCeil(blockedLayoutOf(type).threads, kWarp);
  if (op.getAxis() == 0)
    return getScratchBytes(warps, type.getCols(), element);
  return std::max(
      exchange.ofWarps ? getScratchBytes(warps, 1, element) : 0,
      exchange.ofResults ? getScratchBytes(1, type.getRows(), element) : 0);
}

bool nsa::cuda::staysInRegisters(TopNOp op) {
  BlockedLayout best = blockedLayoutOf(op.getBestValues());
  return best.threadsPerRow == best.cols && best.perRow() == 1 &&
         best.cols <= kWarp && llvm::isPowerOf2_64(uint64_t(best.cols));
}

static int64_t getTopNBytes(TopNOp op) {
  int64_t bytes = getTileBytes(op.getValues());
  if (staysInRegisters(op))
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
