//===- Spread.h - tiles in the registers of a block -------------*- C++ -*-===//
//
// Geometry of #tile_gpu.blocked: which elements a thread holds, and in which of
// its registers; and the choice of such layouts. No IR is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_SPREAD_H
#define NSA_PASSES_CONVERSION_TILETONVVM_SPREAD_H

#include "dialects/Tile/TileOps.h"
#include "llvm/ADT/DenseMap.h"

namespace nsa::cuda {

/// A team of threads shares a row, and neighbouring teams neighbouring rows. A
/// thread holds `width` columns that lie together, its team the next ones, and
/// so on: register `k` of thread `tid` is column
/// `((k / width % groups) * team + tid % team) * width + k % width` of row
/// `k / (width * groups) * teams + tid / team`. A dimension of size one is
/// repeated in all threads that share it.
struct Spread {
  int64_t rows, cols, threads, team, width;

  int64_t teams() const { return threads / team; }
  /// Of a thread: its rows, and the pieces of `width` columns of each.
  int64_t ownRows() const { return rows == 1 ? 1 : divide(rows, teams()); }
  int64_t groups() const { return cols == 1 ? 1 : divide(cols, team * width); }
  int64_t perRow() const { return groups() * width; }
  int64_t registers() const { return ownRows() * perRow(); }

  /// Whether some threads hold the same elements.
  bool isRepeated() const {
    return (rows == 1 && teams() > 1) || (cols == 1 && team > 1);
  }
  /// Whether the row (column) of register `k` is one of the tile in all
  /// threads.
  bool hasRow(int64_t k) const {
    return rows == 1 || (k / perRow() + 1) * teams() <= rows;
  }
  bool hasCol(int64_t k) const {
    return cols == 1 || (k % perRow() / width + 1) * team * width <= cols;
  }

private:
  static int64_t divide(int64_t count, int64_t by) {
    return (count + by - 1) / by;
  }
};

/// Whether `type` is a tile that lies in registers, but in no fragment: one of
/// a blocked layout, or of none as long as these are not assigned.
bool isSpread(mlir::Type type);

/// What the blocked layout of a tile says.
Spread spreadOf(tile::TileType type);
Spread spreadOf(mlir::Value tile);

/// How the tiles of a kernel without layouts are to be spread. Tiles with the
/// same number of columns have the same pieces of them, so that a row need not
/// be exchanged to meet several. What is moved from and to memory decides how
/// long pieces are.
class SpreadPlan {
public:
  /// With 0 threads chooses their number.
  SpreadPlan(tile::KernelOp kernel, int64_t threads);

  int64_t getThreads() const { return threads; }
  Spread get(tile::TileType type) const;

private:
  void noteShapes(tile::KernelOp kernel);
  void noteAccess(mlir::Value ref, mlir::ValueRange indices,
                  mlir::Type accessed);
  int64_t pickThreads() const;
  int64_t getTeam(int64_t rows, int64_t cols) const;
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

#endif // NSA_PASSES_CONVERSION_TILETONVVM_SPREAD_H
