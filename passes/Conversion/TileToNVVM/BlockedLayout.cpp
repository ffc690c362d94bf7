//===- BlockedLayout.cpp - tiles in the registers of a block --------------===//

#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

BlockedLayout nsa::cuda::blockedLayoutOf(TileType type) {
  auto layout = cast<nsa::tile_gpu::BlockedAttr>(type.getLayout());
  return {type.getRows(), type.getCols(), layout.getThreads(),
          layout.getThreadsPerRow(), layout.getWidth()};
}

BlockedLayout nsa::cuda::blockedLayoutOf(Value tile) {
  return blockedLayoutOf(cast<TileType>(tile.getType()));
}

static constexpr int64_t kWarp = 32, kMostThreads = 256;

static int64_t floorPowerOf2(int64_t number) {
  return static_cast<int64_t>(llvm::bit_floor(static_cast<uint64_t>(number)));
}
static int64_t ceilPowerOf2(int64_t number) {
  return static_cast<int64_t>(llvm::bit_ceil(static_cast<uint64_t>(number)));
}

BlockedLayoutPlan::BlockedLayoutPlan(KernelOp kernel, int64_t wanted)
    : threads(wanted) {
  noteShapes(kernel);
  if (!threads)
    threads = pickThreads();
}

void BlockedLayoutPlan::noteShapes(KernelOp kernel) {
  kernel.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tile = dyn_cast<TileType>(type); tile && !tile.getLayout()) {
        readsElements |= isa<DotOp, TransposeOp, TopNOp, SortOp>(op);
        int64_t rows = tile.getRows(), cols = tile.getCols();
        tallest[cols] = std::max(tallest[cols], rows);
        widest[rows] = std::max(widest[rows], cols);
      }
    if (auto load = dyn_cast<LoadOp>(op))
      noteAccess(load.getRef(), load.getIndices(), load.getType());
    if (auto store = dyn_cast<StoreOp>(op))
      noteAccess(store.getRef(), store.getIndices(),
                 store.getValue().getType());
  });
}

void BlockedLayoutPlan::noteAccess(Value ref, ValueRange indices,
                                   Type accessed) {
  auto tile = dyn_cast<TileType>(accessed);
  if (!tile || tile.getLayout())
    return;
  int64_t &most = together[tile.getCols()];
  most = std::max(
      most, getAccessWidth(ref, indices, getMostTogether(ref, tile.getCols())));
}

/// Enough threads that each has one piece of the largest tile or a few, and as
/// few as give all of them equally many.
int64_t BlockedLayoutPlan::pickThreads() const {
  int64_t largest = 1, cols = 1;
  for (auto [c, r] : tallest)
    if (r * c > largest)
      largest = r * c, cols = c;
  if (readsElements)
    return largest >= 4096 ? 256 : 128;
  int64_t pieces = largest / std::max<int64_t>(together.lookup(cols), 1);
  if (pieces <= kWarp)
    return kWarp;
  if (largest > cols)
    return std::min(floorPowerOf2(pieces), kMostThreads);
  if (pieces <= kMostThreads)
    return static_cast<int64_t>(llvm::alignTo(pieces, kWarp));
  for (int64_t count = kMostThreads; count > kMostThreads / 2; count -= kWarp)
    if (pieces % count == 0)
      return count;
  return kMostThreads;
}

int64_t BlockedLayoutPlan::getWidth(int64_t cols) const {
  if (readsElements)
    return 1;
  int64_t width = std::max<int64_t>(together.lookup(cols), 1);
  while (width > 1 && tallest.lookup(cols) * cols / width < threads)
    width /= 2;
  return width;
}

int64_t BlockedLayoutPlan::getThreadsPerRow(int64_t rows, int64_t cols) const {
  if (cols == 1) {
    int64_t most = widest.lookup(rows);
    if (rows == 1)
      return threads;
    return most > 1 ? getThreadsPerRow(rows, most) : 1;
  }
  if (rows == 1) {
    int64_t most = tallest.lookup(cols);
    return most > 1 ? getThreadsPerRow(most, cols) : threads;
  }
  int64_t pieces = llvm::divideCeil(cols, getWidth(cols));
  int64_t covering = std::min(ceilPowerOf2(pieces), kWarp);
  int64_t threadsPerRow = std::min(pieces & -pieces, kWarp);
  // Short ranges of memory cost more than threads without work.
  if (threadsPerRow < 4)
    threadsPerRow = covering;
  while (threadsPerRow < covering &&
         threads / threadsPerRow > ceilPowerOf2(rows))
    threadsPerRow *= 2;
  return threadsPerRow;
}

BlockedLayout BlockedLayoutPlan::get(TileType type) const {
  int64_t rows = type.getRows(), cols = type.getCols();
  return {rows, cols, threads, getThreadsPerRow(rows, cols),
          cols == 1 ? 1 : getWidth(cols)};
}
