//===- SharedTiles.h - tiles in shared memory -------------------*- C++ -*-===//
//
// Geometry of #tile.shared, and the memory that such tiles take turns in. No IR
// is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_SHAREDTILES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_SHAREDTILES_H

#include "dialects/Tile/TileOps.h"

namespace nsa::cuda {

/// A tile of 16-bit elements in rows of 16-byte chunks. Rows and columns are
/// rounded up to 16, with zeros. Chunk `c` of row `r` lies where chunk
/// `c ^ swizzle(r)` would: then the same chunk of 8 rows in sequence, which is
/// what one 8x8 matrix of ldmatrix reads, covers all banks.
struct SharedShape {
  explicit SharedShape(tile::TileType type);

  static constexpr int64_t chunkBytes = 16, chunkElements = 8;

  int64_t paddedRows() const { return llvm::alignTo(rows, 16); }
  int64_t paddedCols() const { return llvm::alignTo(cols, 16); }
  int64_t chunks() const { return paddedCols() / chunkElements; }
  int64_t rowBytes() const { return chunks() * chunkBytes; }
  int64_t bytes() const { return paddedRows() * rowBytes(); }

  /// How many chunks of a row change places: the largest power of two that
  /// divides their number, up to 8.
  int64_t swizzled() const;
  /// swizzle(r) = (r >> swizzleShift()) & (swizzled() - 1), a function of r
  /// % 8.
  int64_t swizzleShift() const;

  int64_t rows, cols;
};

/// Hands out pieces of a block's shared memory, first fit.
class SharedPool {
public:
  static constexpr int64_t alignment = 128;

  /// The offset of `bytes` free bytes.
  int64_t allocate(int64_t bytes);
  void release(int64_t offset);
  /// The most that was in use.
  int64_t size() const { return highest; }

private:
  struct Piece {
    int64_t offset, bytes;
  };
  /// In order of their offsets.
  llvm::SmallVector<Piece> used;
  int64_t highest = 0;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_SHAREDTILES_H
