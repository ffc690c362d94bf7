//===- NNToTile.h - what kernels of the nn dialect share --------*- C++ -*-===//
//
// Tensors are seen flat (elementwise kernels) or as rows along their last
// dimension. How the work is cut into programs depends on shapes only, so sums
// do not depend on the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NN_NNTOTILE_H
#define NSA_PASSES_KERNELS_NN_NNTOTILE_H

#include "dialects/Interfaces/ShapeChecks.h"
#include "passes/Kernels/KernelCache.h"
#include "passes/Kernels/KernelOperands.h"

namespace nsa {

/// The length of tiles of `extent` elements: a multiple of 16 up to `limit`
/// that divides `extent` if there is one not too small, so that no tile needs a
/// mask; else one that covers the extent or nearly does.
int64_t pickTile(int64_t extent, int64_t limit);

/// The elements of a tensor in order, as tiles of 1 x `tile`, of which each
/// program iterates over `perProgram`. The last tile of a tensor may be
/// partial: its elements outside read as 0 and are not written. As coordinates
/// have 32 bits, more elements are seen as a matrix.
struct FlatGrid {
  FlatGrid(const Extent &elements, MachineAttr machine)
      : FlatGrid(elements, machine, machine.getElementsPerProgram()) {}
  FlatGrid(const Extent &elements, MachineAttr machine,
           int64_t elementsPerProgram);
  /// Tiles divide the elements of a token (after the first two dimensions)
  /// where they are not too few: the tensor may be columns of a matrix.
  FlatGrid(mlir::Value tensor, MachineAttr machine);

  using TileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      llvm::ArrayRef<tile::Operand> place,
      llvm::ArrayRef<mlir::Value> carried)>;

  /// Runs `body` on the coordinates of each tile of this program, carrying
  /// values from tile to tile. The grid begins with program `first` of a
  /// kernel.
  llvm::SmallVector<mlir::Value> forEachTile(tile::TileBuilder &b,
                                             llvm::ArrayRef<mlir::Value> inits,
                                             TileBody body,
                                             int64_t first = 0) const;
  /// The shape in which a tensor is seen.
  llvm::SmallVector<Extent> getShape() const {
    if (rows == 1)
      return {elements};
    return {rows, int64_t(elements) / rows};
  }
  mlir::Value view(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, getShape());
  }
  /// Whether coordinates fit 32 bits.
  bool fits() const { return rows != 0; }
  /// For kernel names: "n16384".
  std::string name() const { return "n" + formatExtent(elements); }

  Extent elements, tilesPerRow, tiles, programs;
  int64_t rows, tile, perProgram;
};

/// A tensor as `rows` rows of `width` elements (its last dimension), cut into
/// programs of `perProgram` rows.
struct RowGrid {
  /// Programs of about `elementsPerProgram` elements, at most `maxPrograms` of
  /// them if it is not 0, and of a multiple of `step` rows.
  RowGrid(mlir::Value tensor, int64_t elementsPerProgram,
          int64_t maxPrograms = 0, int64_t step = 1);

  /// Cuts the rows into so many ranges of equal length, of which the last
  /// may be shorter or empty.
  void cutInto(int64_t ranges) {
    programs = ranges;
    perProgram = getSteps(ceilDiv(rows, ranges)) * step;
  }
  /// Runs `body` on the rows of this program, `step` at a time.
  llvm::SmallVector<mlir::Value>
  forEachRow(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> inits,
             tile::TileBuilder::LoopBody body) const;
  /// The rows from `first` on that are treated at once: their number if it is
  /// one row.
  tile::Operand rowsFrom(tile::TileBuilder &b, tile::Expr first) const {
    return step == 1 ? tile::Operand(first)
                     : tile::Operand(b.range(first, step, 0));
  }
  /// An argument with all or with all but the last of the dimensions.
  mlir::Value viewRows(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, {rows, width});
  }
  mlir::Value viewPerRow(tile::TileBuilder &b, mlir::Value ref) const {
    return b.view(ref, {rows});
  }
  /// For kernel names: "t128x32".
  std::string name() const {
    return "t" + formatExtent(rows) + "x" + std::to_string(width);
  }

  Extent rows;
  int64_t width, step;
  Extent perProgram, programs;

private:
  /// Of so many rows, at least one.
  Extent getSteps(const Extent &some) const {
    return ceilDiv(atLeast(some, 1), step);
  }
};

/// The sum of the rows of `partials`, f32 [P, width], at `cols`, i32 [1, n]:
/// `atOnce` rows at a time, in ascending order.
mlir::Value sumRows(tile::TileBuilder &b, mlir::Value partials,
                    mlir::Value cols, int64_t atOnce);

/// Sums the rows of `partials`, f32 [P, width], in ascending order, into a
/// tensor of type `result`, f32 [width]: the second launch of a gradient that
/// every program of the first one has a part of.
mlir::Value launchSumOfRows(KernelCache &cache, mlir::OpBuilder &builder,
                            mlir::Operation *op, mlir::Value partials,
                            mlir::Type result);

/// Makes the sum over rows of `op` partial and runs `launch`, then adds the
/// parts if the operation had the whole sum. Returns the results.
mlir::FailureOr<llvm::SmallVector<mlir::Value>> launchWithRowSum(
    KernelCache &cache, mlir::PatternRewriter &rewriter, mlir::Operation *op,
    llvm::function_ref<mlir::FailureOr<mlir::ResultRange>()> launch);

/// Gates from logits: one for sigmoid, the three of a head for softmax.
llvm::SmallVector<mlir::Value> activateGates(llvm::ArrayRef<tile::Expr> logits);
/// Gradients of the logits from those of the gates, which the gates follow.
llvm::SmallVector<mlir::Value>
differentiateGates(llvm::ArrayRef<tile::Expr> gradsAndGates);

class RootKernels;

/// Elementwise operations, roots, and `nn.fused`.
void populateFusiblePatterns(KernelPatterns &patterns);
void addRMSNormKernels(RootKernels &roots);
void addRotaryKernels(RootKernels &roots);

void populateArgmaxPatterns(KernelPatterns &patterns);
void populateDrawPatterns(KernelPatterns &patterns);
void populateRowSumPatterns(KernelPatterns &patterns);
void populateEmbeddingPatterns(KernelPatterns &patterns);
void populateGatePatterns(KernelPatterns &patterns);
void populateCrossEntropyPatterns(KernelPatterns &patterns);
void populateChunkPatterns(KernelPatterns &patterns);
/// Gradient norm and elementwise updates.
void populateOptimizerPatterns(KernelPatterns &patterns);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NN_NNTOTILE_H
