//===- NNToTile.h - what kernels of the nn dialect share --------*- C++ -*-===//
//
// Tensors are seen flat (elementwise kernels) or as rows along their last
// dimension. How the work is cut into programs depends on shapes only, so sums
// do not depend on the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_NNTOTILE_NNTOTILE_H
#define NSA_PASSES_CONVERSION_NNTOTILE_NNTOTILE_H

#include "dialects/Interfaces/ShapeChecks.h"
#include "passes/Conversion/KernelCache.h"

namespace nsa {

/// The length of the pieces into which `extent` elements are cut: a multiple of
/// 16 up to `limit` that divides `extent` if there is one not too small, so
/// that no piece needs a check of its end; else one that covers or nearly does.
int64_t pickTile(int64_t extent, int64_t limit);

/// The elements of a tensor in order, as tiles of 1 x `tile`, of which each
/// program walks over `perProgram`. The last tile of a tensor may be partial:
/// its elements outside read as 0 and are not written.
struct FlatGrid {
  explicit FlatGrid(int64_t elements, int64_t elementsPerProgram = 16384);

  /// Runs `body` on the coordinates of each tile of this program, carrying
  /// values from tile to tile.
  llvm::SmallVector<mlir::Value>
  forEachTile(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> inits,
              llvm::function_ref<llvm::SmallVector<mlir::Value>(
                  mlir::Value index, llvm::ArrayRef<mlir::Value> carried)>
                  body) const;
  /// The argument as one dimension.
  mlir::Value view(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, {elements});
  }
  /// Whether coordinates fit 32 bits.
  bool fits() const { return elements <= INT32_MAX - tile; }
  /// For kernel names: "n16384".
  std::string name() const { return "n" + std::to_string(elements); }

  int64_t elements, tile, tiles, perProgram, programs;
};

/// A tensor as `rows` rows of `width` elements (its last dimension), cut into
/// programs of `perProgram` rows.
struct RowGrid {
  /// Programs of about `elementsPerProgram` elements, at most `maxPrograms` of
  /// them if it is not 0, and of a multiple of `step` rows.
  explicit RowGrid(mlir::Value tensor, int64_t elementsPerProgram = 16384,
                   int64_t maxPrograms = 0, int64_t step = 1);

  /// Runs `body` on the rows of this program, `step` at a time.
  llvm::SmallVector<mlir::Value>
  forEachRow(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> inits,
             tile::TileBuilder::LoopBody body) const;
  /// An argument with all or with all but the last of the dimensions.
  mlir::Value viewRows(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, {rows, width});
  }
  mlir::Value viewPerRow(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, {rows});
  }
  /// For kernel names: "t128x32".
  std::string name() const {
    return "t" + std::to_string(rows) + "x" + std::to_string(width);
  }

  int64_t rows, width, step, perProgram, programs;
};

/// Sums the rows of `partials`, f32 [P, width], in ascending order, into a
/// tensor of type `result`, f32 [width]: the second launch of a gradient that
/// every program of the first one has a part of.
mlir::Value launchSumOfRows(KernelCache &cache, mlir::OpBuilder &builder,
                            mlir::Operation *op, mlir::Value partials,
                            mlir::Type result);

/// 1 / (1 + exp(-x)) without overflow.
tile::Expr sigmoid(tile::Expr x);

void populateElementwisePatterns(mlir::RewritePatternSet &patterns,
                                 KernelCache &cache);
void populateEmbeddingPatterns(mlir::RewritePatternSet &patterns,
                               KernelCache &cache);
void populateRMSNormPatterns(mlir::RewritePatternSet &patterns,
                             KernelCache &cache);
void populateRotaryPatterns(mlir::RewritePatternSet &patterns,
                            KernelCache &cache);
void populateGatePatterns(mlir::RewritePatternSet &patterns,
                          KernelCache &cache);
void populateCrossEntropyPatterns(mlir::RewritePatternSet &patterns,
                                  KernelCache &cache);
/// Gradient norm and AdamW.
void populateOptimizerPatterns(mlir::RewritePatternSet &patterns,
                               KernelCache &cache);

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NNTOTILE_NNTOTILE_H
