//===- SharedTiles.h - tiles in shared memory -------------------*- C++ -*-===//
//
// Geometry of #tile.shared, and the memory that such tiles take turns in. No IR
// is made here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPU_SHAREDTILES_H
#define NSA_PASSES_TILEGPU_SHAREDTILES_H

#include "dialects/TileGPU/TileGPUOps.h"

namespace nsa::cuda {

/// A tile of 16-bit elements in rows of 16-byte vectors. Rows and columns are
/// rounded up to 16, with zeros. Its columns are cut into swizzle atom columns
/// of 32, 64 or 128 bytes that lie one after another, each row by row. Vector
/// `c` of row `r` of a swizzle atom column lies where vector `c ^ swizzle(r)`
/// would: then the same vector of 8 rows in sequence, which is what one 8x8
/// matrix of ldmatrix reads, covers all banks. wgmma calls the same the swizzle
/// of as many bytes as a swizzle atom column is wide.
struct SharedShape {
  /// With the widest swizzle.
  explicit SharedShape(tile::TileType type);
  /// Of a buffer.
  explicit SharedShape(mlir::Value buffer);

  static constexpr int64_t vectorBytes = 16, vectorElements = 8;

  int64_t paddedRows() const { return llvm::alignTo(rows, 16); }
  int64_t paddedCols() const { return llvm::alignTo(cols, 16); }
  int64_t vectors() const { return paddedCols() / vectorElements; }
  int64_t atomVectors() const { return rowBytes() / vectorBytes; }
  /// From a row of a swizzle atom column to the next one.
  int64_t rowBytes() const { return swizzle; }
  int64_t atomBytes() const { return paddedRows() * rowBytes(); }
  int64_t bytes() const { return vectors() / atomVectors() * atomBytes(); }

  /// swizzle(r) = (r >> swizzleShift()) & (atomVectors() - 1), a function of r
  /// % 8.
  int64_t swizzleShift() const { return llvm::Log2_64(8 / atomVectors()); }

  int64_t rows, cols, swizzle;
};

/// The buffer that a tile in shared memory lies in; of a buffer, itself.
mlir::Value getBuffer(mlir::Value tile);

/// Where a buffer begins in shared memory.
int64_t getOffset(mlir::Value buffer);

/// Fails with an error if a kernel's tiles have no layouts.
mlir::LogicalResult verifyHasThreads(tile::KernelOp kernel);
/// Fails with an error if the kernel of an operation does not make the buffers
/// and mbarriers that it takes.
mlir::LogicalResult verifyBufferOperands(mlir::Operation *op);
/// The same of a kernel, or if its buffers or its scratch have no offsets.
mlir::LogicalResult verifyAllocated(tile::KernelOp kernel);

/// First-fit allocator of a block's shared memory.
class SharedPool {
public:
  /// Swizzles of hardware are functions of an address: the pattern of a swizzle
  /// atom column of 128 bytes repeats after 8 rows.
  static constexpr int64_t alignment = 1024;

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

#endif // NSA_PASSES_TILEGPU_SHAREDTILES_H
