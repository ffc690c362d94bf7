//===- BlockedTiles.h - where a thread's elements are -----------*- C++ -*-===//
//
// Rows and columns of the registers that a thread has of #tile_gpu.blocked.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDTILES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDTILES_H

#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"

namespace nsa::cuda {

/// Row and column of register `k`.
std::pair<mlir::Value, mlir::Value>
placeOf(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k);
/// The same, but the tile's last row or column for registers behind its end:
/// what may be read of shared memory.
std::pair<mlir::Value, mlir::Value>
placeInside(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k);
/// The registers of a tile, by their places inside.
llvm::SmallVector<mlir::Value> makeRegisters(
    ThreadBuilder &b, const BlockedLayout &blocked,
    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value col)> make);
/// Whether the row (column) of register `k` is one of the tile in this thread;
/// null if it always is.
mlir::Value hasRow(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k);
mlir::Value hasCol(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k);
/// Whether register `k` is an element in this thread; null if it always is.
mlir::Value isElement(ThreadBuilder &b, const BlockedLayout &blocked,
                      int64_t k);
/// The same, of one of the threads that hold it.
mlir::Value isOwner(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDTILES_H
