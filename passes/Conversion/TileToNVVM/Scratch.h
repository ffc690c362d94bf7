//===- Scratch.h - shared memory for layout conversions ---------*- C++ -*-===//
//
// Layout conversions go through scratch in shared memory, which each takes from
// its start. No IR is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_SCRATCH_H
#define NSA_PASSES_CONVERSION_TILETONVVM_SCRATCH_H

#include "dialects/Tile/TileOps.h"
#include "passes/Conversion/TileToNVVM/BlockedLayout.h"

namespace nsa::cuda {

/// Elements from a row of a tile in scratch to the next one: one word more than
/// a row, so that neither rows nor columns meet in one bank.
int64_t getScratchPitch(int64_t rows, int64_t cols, mlir::Type element);
/// Bytes of a tile there.
int64_t getScratchBytes(int64_t rows, int64_t cols, mlir::Type element);

/// Whether elements of a tile are computed where they are used.
bool isVirtual(mlir::Value tile);

/// Whether threads hold, of a tile that broadcasts to one of a larger layout,
/// the elements that belong to theirs of that.
bool hasElementsOf(const BlockedLayout &tile, const BlockedLayout &larger);

/// What goes through scratch in a reduction: what the warps have of a row or a
/// column each, and results of a blocked layout that other threads need.
struct ReduceExchange {
  explicit ReduceExchange(tile::ReduceOp op);

  bool ofWarps = false, ofResults = false;
};

/// Whether lists lie in the registers of the threads that sort them, and stay
/// there.
bool staysInRegisters(tile::TopNOp op);

/// Bytes of scratch that an operation of a kernel with `tile_gpu.threads`
/// takes; 0 if threads exchange nothing.
int64_t getScratchBytes(mlir::Operation *op);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_SCRATCH_H
