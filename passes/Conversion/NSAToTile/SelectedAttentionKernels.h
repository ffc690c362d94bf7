//===- SelectedAttentionKernels.h - tiles of the selected branch *- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_SELECTEDATTENTIONKERNELS_H
#define NSA_PASSES_CONVERSION_NSATOTILE_SELECTEDATTENTIONKERNELS_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/AttentionKernels.h"

namespace nsa {

/// Sizes of the selected branch. Rows of a tile are (query, head of the group)
/// pairs, heads innermost, so that keys and values are read once per group.
/// Keys come in tiles that divide a selection block.
struct SelectedAttention {
  template <typename OpT>
  explicit SelectedAttention(OpT op)
      : shape(op.getQuery(), op.getKey(), op.getValue(),
              op.getScaleOrDefault()),
        selectBlock(op.getSelectBlock()), count(getDim(op.getIndices(), 3)),
        keyTile(getKeyTile(selectBlock)) {}

  /// The largest divisor of a selection block that is a handy tile.
  static int64_t getKeyTile(int64_t selectBlock);

  int64_t numBlocks() const {
    return llvm::divideCeil(shape.sequence, selectBlock);
  }
  int64_t numKeyTiles() const {
    return llvm::divideCeil(shape.sequence, keyTile);
  }
  std::string name() const;
  /// Floating-point operations of `width` multiply-adds per attended pair, if
  /// every query attends to full blocks.
  int64_t flops(int64_t width) const;

  AttentionShape shape;
  int64_t selectBlock, count, keyTile;
};

/// Launches the gradient of the queries and returns dq and do . o of every row,
/// f32 [B, Hq, S].
mlir::ResultRange launchSelectedQueryGrad(KernelCache &cache,
                                          mlir::PatternRewriter &rewriter,
                                          SelectedAttentionBackwardOp op);

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NSATOTILE_SELECTEDATTENTIONKERNELS_H
