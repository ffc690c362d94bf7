//===- CompressKernels.h - kernels of compression ---------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_COMPRESSKERNELS_H
#define NSA_PASSES_KERNELS_NSA_COMPRESSKERNELS_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/AttentionKernels.h"

namespace nsa {

/// What a kernel of compression reads; null where it does without.
struct CompressOperands {
  llvm::SmallVector<mlir::Value *> slots() {
    return {&active,       &outputGrad, &input, &dotGrad, &weight,
            &outputWeight, &positions,  &start, &table};
  }

  /// What SiLU makes of the hidden rows of the mlp, and the gradients of the
  /// output and of the dot with the weight.
  mlir::Value active, outputGrad, input, dotGrad;
  /// `positions` may be the bias that follows from them.
  mlir::Value weight, outputWeight, positions;
  /// Where packed sequences begin, and the angles that turn the result.
  mlir::Value start, table;
};

/// x [B, S, H, D] and y [B, Nc, H, D], with blocks of `block` tokens that start
/// every `stride` tokens. A token lies in at most `overlap()` blocks.
///
struct CompressKernel {
  CompressKernel(CompressionKind kind, CompressedAttr compressed,
                 const CompressOperands &in, MachineAttr machine)
      : isParallel(machine.isParallel()), kind(kind),
        hasPositions(bool(in.positions)), isPacked(bool(in.start)),
        heads(getDim(in.input, 2)), width(getDim(in.input, 3)),
        block(compressed.getBlock()), stride(compressed.getStride()),
        batch(getExtent(in.input, 0)), sequence(getExtent(in.input, 1)),
        blocks(isPacked ? floorDiv(sequence, stride)
                        : atLeast(floorDiv(sequence - block, stride) + 1, 0)) {
    // No block fits: how long it would be matters to parameters only.
    if (kind != CompressionKind::Mean || !blocks.isConstant())
      return;
    if (int64_t(blocks) == 0)
      block = stride = int64_t(sequence) + 1;
    else if (isPacked && block > int64_t(sequence))
      block = (int64_t(blocks) + 1) * stride;
  }

  int64_t overlap() const { return block / stride; }
  int64_t blockTile() const { return getRowTile(blocks); }
  /// Columns of tokens that a dot with the weight takes at once: where
  /// memory that programs share holds the tiles, a whole matrix may not fit.
  int64_t widthSlice() const;
  int64_t numSlices() const { return padded() / widthSlice(); }
  /// Columns of a head in tiles: tensor cores add 16 products at once.
  int64_t padded() const;
  /// Columns of a program's result, as many as registers hold.
  int64_t columnTile() const;
  int64_t numColumnTiles() const;
  /// At least one, so that a launch without blocks is still a launch.
  Extent numBlockTiles() const;
  /// Tokens at one offset from the start of a stride: one per stride.
  int64_t phaseTile() const;
  Extent numPhaseTiles() const;
  /// Columns of the hidden rows in a program of the output weight's gradient,
  /// or of the bias in one of its.
  int64_t hiddenTile() const { return getTileSize(width, 16); }
  int64_t numHiddenTiles() const {
    return llvm::divideCeil(width, hiddenTile());
  }

  /// What to launch, with `perElement` operations for each element of a block.
  KernelSpec spec(llvm::StringRef suffix, std::array<Extent, 3> grid,
                  int64_t perElement) const;
  std::array<Extent, 3> blockGrid() const {
    return {numBlockTiles(), heads, batch};
  }
  /// The grids of gradients of hidden rows, of tokens, and of the weight.
  std::array<Extent, 3> hiddenGradGrid() const {
    return {numBlockTiles() * numColumnTiles(), heads, batch};
  }
  std::array<Extent, 3> inputGradGrid() const {
    return {numPhaseTiles() * stride * numColumnTiles(), heads, batch};
  }
  std::array<Extent, 3> weightGradGrid() const {
    return {block * numColumnTiles() * numColumnTiles(), heads, 1};
  }
  KernelSpec biasSpec() const;
  mlir::RankedTensorType biasType(mlir::MLIRContext *context) const {
    return mlir::RankedTensorType::get({heads, width},
                                       mlir::Float32Type::get(context));
  }

  using In = CompressOperands;
  using Out = llvm::ArrayRef<mlir::Value>;
  void buildMean(tile::TileBuilder &b, const In &in, Out y) const;
  void buildMeanInputGrad(tile::TileBuilder &b, const In &in, Out dX) const;

  /// What the positions add to every row of the dot with the weight, f32
  /// [H, D]: the bias, which other kernels have in place of the positions.
  void buildBias(tile::TileBuilder &b, const In &in, Out bias) const;
  void buildProjection(tile::TileBuilder &b, const In &in, Out y) const;
  /// The gradient of the hidden rows and what SiLU makes of them, both
  /// [B, Nc, H, D].
  void buildHiddenGrad(tile::TileBuilder &b, const In &in, Out out) const;
  void buildInputGrad(tile::TileBuilder &b, const In &in, Out dX) const;
  /// dweight, and dpositions if there are positions.
  void buildWeightGrad(tile::TileBuilder &b, const In &in, Out out) const;
  void buildOutputWeightGrad(tile::TileBuilder &b, const In &in,
                             Out dWeight) const;

  bool isParallel;
  CompressionKind kind;
  bool hasPositions, isPacked;
  int64_t heads, width, block, stride;
  Extent batch, sequence, blocks;

private:
  /// Rows of tiles over `count` of them: of dots on a GPU as many as give
  /// its warps work, which rotate rows in the same launch.
  int64_t getRowTile(const Extent &count) const;
  /// The first tokens of the blocks of some rows, i32 [rows, 1]; so far before
  /// the first token that none of the block exists where a row is no block.
  /// Null without packed sequences.
  mlir::Value findFirstTokens(tile::TileBuilder &b, mlir::Value start,
                              tile::Expr batchRow, tile::Expr i0) const;
  /// Token `r` of the blocks from `i0` on, whose first tokens are `first`.
  mlir::Value getTokens(tile::TileBuilder &b, mlir::Value first, tile::Expr i0,
                        tile::Expr r) const;
  /// The rows from `i0` on, but none of those that are no blocks.
  mlir::Value getBlockRows(tile::TileBuilder &b, mlir::Value first,
                           tile::Expr i0) const;
  mlir::Value project(tile::TileBuilder &b, const In &in, mlir::Value first,
                      tile::Expr i0, mlir::Value cols) const;
  /// What a program treats of other dimensions, and its first column.
  std::pair<tile::Expr, tile::Expr> splitProgram(tile::Expr program) const;
  mlir::Value matrixRowsOf(tile::TileBuilder &b, tile::Expr r, tile::Expr m0,
                           int64_t size) const;
  mlir::Value findBlockOf(tile::TileBuilder &b, mlir::Value start,
                          tile::Expr batchRow, mlir::Value t, mlir::Value begin,
                          tile::Expr offset) const;
  /// Some strides of packed sequences.
  struct PackedStrides;
  /// Where slice `n` of all matrices of the weight is.
  struct Slice {
    /// The number of its matrix, and the row of the weight that it begins with.
    tile::Expr matrix, row;
    /// The columns of tokens that it is multiplied by.
    mlir::Value columns;
  };
  Slice sliceOf(tile::TileBuilder &b, tile::Expr n) const;
  llvm::SmallVector<mlir::Value>
  forEachBlockTile(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> inits,
                   llvm::function_ref<llvm::SmallVector<mlir::Value>(
                       tile::Expr batchRow, tile::Expr i0,
                       llvm::ArrayRef<mlir::Value> carried)>
                       body) const;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_COMPRESSKERNELS_H
