//===- RegisterLayout.h - tiles in the registers of threads -----*- C++ -*-===//
//
// Geometry of #tile.mma and #tile_gpu.blocked: which elements a thread holds,
// and in which of its registers. No IR is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPU_REGISTERLAYOUT_H
#define NSA_PASSES_TILEGPU_REGISTERLAYOUT_H

#include "dialects/TileGPU/TileGPUOps.h"

namespace nsa::cuda {

inline constexpr int64_t kWarp = 32;

/// A thread sees a tile as `rowCount()` times `colCount()` elements, in
/// row-major order. Groups of `threadsPerRow` threads share a row, each thread
/// with `width` columns together, and neighbouring groups have neighbouring
/// rows. Coordinates are sums of what thread `t` and what its element `r`, `c`
/// adds:
///
///     column          t % threadsPerRow * width
///                     + c / width * threadsPerRow * width + c % width
///     row, blocked    t / threadsPerRow + r * rowGroups()
///     row, MMA        16 * warp + lane / 4
///                     + 16 * warps() * (r / 2) + 8 * (r % 2)
///
/// The 16 rows of a warp are an M-tile. A dimension of size one counts one, and
/// all threads that share it have the same element.
struct RegisterLayout {
  explicit RegisterLayout(tile::TileType type);
  explicit RegisterLayout(mlir::Value tile)
      : RegisterLayout(llvm::cast<tile::TileType>(tile.getType())) {}

  int64_t warps() const { return llvm::divideCeil(threads, kWarp); }
  int64_t rowGroups() const { return threads / threadsPerRow; }
  /// M-tiles of a warp.
  int64_t mTiles() const {
    return llvm::divideCeil(llvm::divideCeil(rows, 16), warps());
  }

  int64_t rowCount() const {
    return rows == 1 ? 1
           : isMma   ? 2 * mTiles()
                     : llvm::divideCeil(rows, rowGroups());
  }
  int64_t colCount() const {
    return cols == 1 ? 1
                     : width * llvm::divideCeil(cols, threadsPerRow * width);
  }
  int64_t elements() const { return rowCount() * colCount(); }

  /// 16-bit elements of neighbouring columns of an MMA tile share a register.
  bool isPacked() const {
    return isMma && cols > 1 && element.getIntOrFloatBitWidth() == 16;
  }
  int64_t registers() const { return isPacked() ? elements() / 2 : elements(); }
  mlir::Type registerType() const;

  /// What element `r` or `c` adds to a thread's row or column.
  int64_t rowOffset(int64_t r) const {
    return isMma ? 16 * warps() * (r / 2) + 8 * (r % 2) : r * rowGroups();
  }
  int64_t colOffset(int64_t c) const {
    return c / width * threadsPerRow * width + c % width;
  }
  /// Whether row `r` (column `c`) of a thread is one of the tile in all
  /// threads.
  bool hasRow(int64_t r) const {
    return rows == 1 ||
           (isMma ? rowOffset(r / 2 * 2 + 2) : rowOffset(r + 1)) <= rows;
  }
  bool hasCol(int64_t c) const {
    return cols == 1 || colOffset((c / width + 1) * width) <= cols;
  }
  /// Whether some threads hold the same elements.
  bool isRepeated() const {
    return (rows == 1 && rowGroups() > 1) || (cols == 1 && threadsPerRow > 1);
  }
  /// Whether threads hold, of a tile that broadcasts to a larger one, the
  /// elements that belong to theirs of that.
  bool hasElementsOf(const RegisterLayout &larger) const;

  /// Elements of a row or a column, filled up to what MMA tiles hold.
  int64_t lineLength() const {
    return rows == 1 ? int64_t(llvm::alignTo(cols, 8))
                     : 16 * warps() * mTiles();
  }

  int64_t rows, cols, threads, threadsPerRow, width;
  mlir::Type element;
  bool isMma;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_REGISTERLAYOUT_H
