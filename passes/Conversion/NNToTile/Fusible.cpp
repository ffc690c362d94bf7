//===- Fusible.cpp - elementwise operations and what joins them -----------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/KernelGraph.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;

namespace {
/// `nn.fused`, and fusible operations on their own.
struct ConvertFusible : RewritePattern {
  ConvertFusible(MLIRContext *context, KernelCache &cache)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context),
        cache(cache) {
    addRMSNormKernels(roots);
    addRotaryKernels(roots);
  }

  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isa<nn::FusedOp, FusibleOpInterface>(op) ||
        isa<nn::FusedOp>(op->getParentOp()))
      return failure();
    FailureOr<SmallVector<Value>> results = launchWithRowSum(
        cache, rewriter, op, [&] { return roots.launch(cache, rewriter, op); });
    if (failed(results))
      return rewriter.notifyMatchFailure(op, "no grid for so many elements");
    rewriter.replaceOp(op, *results);
    return success();
  }

private:
  KernelCache &cache;
  RootKernels roots;
};
} // namespace

void nsa::populateFusiblePatterns(RewritePatternSet &patterns,
                                  KernelCache &cache) {
  patterns.add<ConvertFusible>(patterns.getContext(), cache);
}
