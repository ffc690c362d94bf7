//===- Fusible.cpp - elementwise operations and what joins them -----------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/KernelGraph.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

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
        !isa<FunctionOpInterface>(op->getParentOp()))
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

/// Program: a range of one of the tensors.
static LogicalResult convertCastAll(nn::CastAllOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  SmallVector<FlatGrid> grids;
  int64_t programs = 0, elements = 0;
  for (Value input : op.getInputs()) {
    grids.emplace_back(ShapedType::getNumElements(getShape(input)),
                       cache.getMachine());
    if (!grids.back().fits())
      return rewriter.notifyMatchFailure(op, "no grid for so many elements");
    programs += int64_t(grids.back().programs);
    elements += int64_t(grids.back().elements);
  }
  auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
    Expr program = b.programId(0);
    int64_t first = 0;
    for (auto [grid, input, output] :
         llvm::zip(grids, args, args.drop_front(op.getInputs().size()))) {
      int64_t end = first + int64_t(grid.programs);
      b.ifThen((program >= first) & (program < end),
               [&, grid = grid, input = input, output = output] {
                 Value source = grid.view(b, input),
                       target = grid.view(b, output);
                 auto castTile = [&](ArrayRef<Operand> at,
                                     ArrayRef<Value>) -> SmallVector<Value> {
                   b.store(b.load(source, at), target, at);
                   return {};
                 };
                 grid.forEachTile(b, {}, castTile, first);
               });
      first = end;
    }
  };
  KernelSpec spec = {"",
                     "n" + std::to_string(elements),
                     {std::max<int64_t>(programs, 1), 1, 1}};
  return cache.replace(rewriter, op, spec, build);
}

void nsa::populateFusiblePatterns(KernelPatterns &patterns) {
  patterns.add(convertCastAll);
  patterns.set.add<ConvertFusible>(patterns.set.getContext(), patterns.cache);
}
