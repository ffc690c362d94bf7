//===- SharedBuffers.h - addresses in buffers -------------------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPUTONVVM_SHAREDBUFFERS_H
#define NSA_PASSES_TILEGPUTONVVM_SHAREDBUFFERS_H

#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPUToNVVM/TileReader.h"

namespace nsa::cuda {

/// A tile in shared memory.
struct SharedBuffer {
  SharedShape shape;
  int64_t offset;
  /// Bytes to add for one of several stages; null if there is one only.
  mlir::Value stage;
};
/// The buffer of a tile, or a buffer.
SharedBuffer sharedBufferOf(TileReader &in, mlir::Value tile);

/// Where vector `vector` of row `row` is; and the element of a column.
mlir::Value bufferAddress(ThreadBuilder &b, const SharedBuffer &tile,
                          mlir::Value row, mlir::Value vector);
mlir::Value bufferElement(ThreadBuilder &b, const SharedBuffer &tile,
                          mlir::Value row, mlir::Value col);

/// Where the `bytes` of a row or a column of 32-bit elements are that a loop
/// has copied.
mlir::Value lineAddress(TileReader &in, mlir::Value buffer, mlir::Value stage,
                        mlir::Value bytes);

/// How many threads take part in work on rows of `perRow` pieces.
int64_t countWorkers(ThreadBuilder &b, int64_t perRow);
/// Calls `body` with the row and the piece in it of each of `pieces` that this
/// thread has to do, `perRow` a row; in rounds, the first of which all of the
/// threads that take part have to do if there is another.
void forPieces(ThreadBuilder &b, int64_t pieces, int64_t perRow,
               llvm::function_ref<void(mlir::Value, mlir::Value)> body);

// Matrices of 8x8 elements, by ldmatrix.
/// Which 8x8 matrix each quarter of a warp addresses: rows first, that is
/// (0, 0), (8, 0), (0, 1), (8, 1) in rows and vectors, or vectors first.
enum class MatrixOrder { RowsFirst, ChunksFirst };
/// Four of them: rows `row` .. `row + 15` and vectors `vector`, `vector + 1`;
/// `firstByte` is added to the address.
llvm::SmallVector<mlir::Value> loadMatrices(ThreadBuilder &b,
                                            const SharedBuffer &tile,
                                            MatrixOrder order, bool transpose,
                                            int64_t row, int64_t vector,
                                            mlir::Value firstByte = {});
/// The byte where M-tile `s` of this thread's warp starts in a shared tile.
mlir::Value mTileByte(ThreadBuilder &b, const SharedShape &shape, int64_t warps,
                      int64_t s);
/// Four matrices of operand a for M-tile `s` and elements `16 * k` and on of
/// sums, from a tile that lies transposed: the warp chooses the vectors.
llvm::SmallVector<mlir::Value> loadTransposedA(ThreadBuilder &b,
                                               const SharedBuffer &tile,
                                               int64_t warps, int64_t s,
                                               int64_t k);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_SHAREDBUFFERS_H
