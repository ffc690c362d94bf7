//===- BlockedLayout.h - tiles in the registers of a block ------*- C++ -*-===//
//
// Geometry of #tile_gpu.blocked: which elements a thread holds, and in which of
// its registers; and the choice of such layouts. No IR is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDLAYOUT_H
#define NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDLAYOUT_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "llvm/ADT/DenseMap.h"

namespace nsa::cuda {

/// A group of `threadsPerRow` threads shares a row, the next group the next
/// row. A thread holds `width` columns that lie together, its group the next
/// ones, and so on: register `k` of thread `tid` is column
/// `((k / width % groups) * threadsPerRow + tid % threadsPerRow) * width + k %
/// width` of row `k / (width * groups) * rowGroups + tid / threadsPerRow`. A
/// dimension of size one is repeated in all threads that share it.
struct BlockedLayout {
  int64_t rows, cols, threads, threadsPerRow, width;

  int64_t rowGroups() const { return threads / threadsPerRow; }
  /// Of a thread: its rows, and the pieces of `width` columns of each.
  int64_t ownRows() const { return rows == 1 ? 1 : divide(rows, rowGroups()); }
  int64_t groups() const {
    return cols == 1 ? 1 : divide(cols, threadsPerRow * width);
  }
  int64_t perRow() const { return groups() * width; }
  int64_t registers() const { return ownRows() * perRow(); }

  /// Whether some threads hold the same elements.
  bool isRepeated() const {
    return (rows == 1 && rowGroups() > 1) || (cols == 1 && threadsPerRow > 1);
  }
  /// Whether the row (column) of register `k` is one of the tile in all
  /// threads.
  bool hasRow(int64_t k) const {
    return rows == 1 || (k / perRow() + 1) * rowGroups() <= rows;
  }
  bool hasCol(int64_t k) const {
    return cols == 1 ||
           (k % perRow() / width + 1) * threadsPerRow * width <= cols;
  }

private:
  static int64_t divide(int64_t count, int64_t by) {
    return (count + by - 1) / by;
  }
};

/// What the blocked layout of a tile says.
BlockedLayout blockedLayoutOf(tile::TileType type);
BlockedLayout blockedLayoutOf(mlir::Value tile);

/// How the tiles of a kernel without layouts are to be laid out. Tiles with the
/// same number of columns have the same pieces of them, so that a row need not
/// be exchanged to meet several. What is moved from and to memory decides how
/// long pieces are.
class BlockedLayoutPlan {
public:
  /// With 0 threads chooses their number.
  BlockedLayoutPlan(tile::KernelOp kernel, int64_t threads);

  int64_t getThreads() const { return threads; }
  BlockedLayout get(tile::TileType type) const;

private:
  void noteShapes(tile::KernelOp kernel);
  void noteAccess(mlir::Value ref, mlir::ValueRange indices,
                  mlir::Type accessed);
  int64_t pickThreads() const;
  int64_t getThreadsPerRow(int64_t rows, int64_t cols) const;
  /// The columns that lie together, given enough of them for all threads.
  int64_t getWidth(int64_t cols) const;

  int64_t threads;
  /// Whether an operation reads single elements of what others hold.
  bool readsElements = false;
  /// By the number of columns: how many can be moved together, and the most
  /// rows. By the number of rows: the most columns.
  llvm::DenseMap<int64_t, int64_t> together, tallest, widest;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_BLOCKEDLAYOUT_H
