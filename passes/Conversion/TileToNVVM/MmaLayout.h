//===- MmaLayout.h - tiles in the registers of mma.sync ---------*- C++ -*-===//
//
// Geometry of #tile.mma: which elements a thread holds, and in which of
// its registers. No IR is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_MMALAYOUT_H
#define NSA_PASSES_CONVERSION_TILETONVVM_MMALAYOUT_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace nsa::cuda {

/// Neighbouring warps that can multiply together, the first of them a multiple.
inline constexpr int64_t warpsOfGroup = 4;
/// Registers are handed over by whole warpgroups, so a producer is one, though
/// one thread does its work.
inline constexpr int64_t kProducerThreads = 32 * warpsOfGroup;

inline bool isTile(mlir::Value value) {
  return llvm::isa<tile::TileType>(value.getType());
}
/// Whether an operation takes or makes tiles.
bool hasTiles(mlir::Operation *op);
inline bool hasMmaLayout(mlir::Type type) {
  return tile_gpu::hasLayout<tile::MmaLayoutAttr>(type);
}
inline bool isShared(mlir::Type type) {
  return tile_gpu::hasLayout<tile::SharedAttr>(type);
}
/// Whether elements of the tile are computed where they are used.
inline bool isRematerialized(mlir::Type type) {
  return tile_gpu::hasLayout<tile::RematerializedAttr>(type);
}
/// Whether `is` holds of something in `op`.
bool contains(mlir::Operation *op,
              llvm::function_ref<bool(mlir::Operation *)> is);
/// Whether some tile of a kernel is for tensor cores.
bool hasMmaTiles(tile::KernelOp kernel);

/// A thread sees a tile in the MMA layout as `rowCount()` times `colCount()`
/// elements, in row-major order. Its row `r` is row `g + 8 * (r % 2)` of M-tile
/// `warp + warps * (r / 2)`, with g = lane / 4; its column `c` is column
/// `8 * (c / 2) + 2 * (lane % 4) + c % 2`. A dimension of size one counts one.
struct MmaLayout {
  explicit MmaLayout(tile::TileType type);
  explicit MmaLayout(mlir::Value tile)
      : MmaLayout(llvm::cast<tile::TileType>(tile.getType())) {}

  /// 16-bit elements of neighbouring columns share a register.
  bool isPacked() const {
    return cols > 1 && element.getIntOrFloatBitWidth() == 16;
  }
  int64_t rowCount() const { return rows == 1 ? 1 : 2 * mTiles(); }
  int64_t colCount() const {
    return cols == 1 ? 1 : 2 * llvm::divideCeil(cols, 8);
  }
  /// M-tiles of a warp.
  int64_t mTiles() const {
    return llvm::divideCeil(llvm::divideCeil(rows, 16), warps);
  }
  int64_t elements() const { return rowCount() * colCount(); }
  int64_t registers() const { return isPacked() ? elements() / 2 : elements(); }
  mlir::Type registerType() const;

  /// Elements of a row or a column, filled up to what MMA tiles hold.
  int64_t lineLength() const {
    return rows == 1 ? int64_t(llvm::alignTo(cols, 8)) : 16 * warps * mTiles();
  }

  /// Whether row `r` (column `c`) of a thread is one of the tile in all of
  /// them.
  bool hasRow(int64_t r) const {
    return rows == 1 || 16 * warps * (r / 2 + 1) <= rows;
  }
  bool hasCol(int64_t c) const { return cols == 1 || 8 * (c / 2 + 1) <= cols; }

  int64_t rows, cols, warps;
  mlir::Type element;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_MMALAYOUT_H
