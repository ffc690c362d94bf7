//===- Combine.cpp - the gated sum of the branches ------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/NSA/RowGates.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Programs are (token tile, head, batch) over o [B, S, H, D].
struct CombineKernel {
  CombineKernel(Value output, size_t branches)
      : branches(branches), batch(getExtent(output, 0)),
        sequence(getExtent(output, 1)), heads(getDim(output, 2)),
        width(getDim(output, 3)), rows(getTileSize(sequence)) {}

  KernelSpec spec(int64_t flopsPerElement) const {
    KernelSpec own = {
        "",
        "b" + formatExtent(batch) + "s" + formatExtent(sequence) + "h" +
            std::to_string(heads) + "d" + std::to_string(width),
        {ceilDiv(sequence, rows), heads, batch},
        flopsPerElement * int64_t(batch * sequence * heads * width)};
    own.takesExtents = true;
    return own;
  }
  void buildForward(TileBuilder &b, CombineOp::Adaptor in, Value sum) const;
  void buildBackward(TileBuilder &b, CombineBackwardOp::Adaptor in,
                     ArrayRef<Value> out) const;

  int64_t branches;
  Extent batch, sequence;
  int64_t heads, width, rows;
};
} // namespace

void CombineKernel::buildForward(TileBuilder &b, CombineOp::Adaptor in,
                                 Value sum) const {
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  SmallVector<Value> weights, outputs;
  for (int64_t branch = 0; branch < branches; ++branch)
    weights.push_back(b.load(in.getGates(), {batchRow, t, head, branch}));
  for (Value output : in.getBranches())
    outputs.push_back(b.load(output, {batchRow, t, head, cols}));
  b.store(gatedSum(b, weights, outputs), sum, {batchRow, t, head, cols});
}

void CombineKernel::buildBackward(TileBuilder &b, CombineBackwardOp::Adaptor in,
                                  ArrayRef<Value> out) const {
  Value gatesGrad = out.front();
  ArrayRef<Value> grads = out.drop_front();
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  Value outputGrads = b.load(in.getOutputGrad(), {batchRow, t, head, cols});
  for (int64_t branch = 0; branch < branches; ++branch) {
    Value output = b.load(in.getBranches()[branch], {batchRow, t, head, cols});
    b.store(rowDot(b, outputGrads, output), gatesGrad,
            {batchRow, t, head, branch});
    Value gate = b.load(in.getGates(), {batchRow, t, head, branch});
    Value grad = b.map({outputGrads, gate}, b.f32(),
                       [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    b.store(grad, grads[branch], {batchRow, t, head, cols});
  }
}

static LogicalResult convertCombine(CombineOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  CombineKernel kernel(op.getOutput(), op.getBranches().size());
  return replaceByKernel(cache, rewriter, op,
                         kernel.spec(2 * kernel.branches - 1),
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           kernel.buildForward(b, in, out.front());
                         });
}

static LogicalResult convertCombineBackward(CombineBackwardOp op,
                                            KernelCache &cache,
                                            PatternRewriter &rewriter) {
  CombineKernel kernel(op.getOutputGrad(), op.getBranches().size());
  return replaceByKernel(cache, rewriter, op, kernel.spec(3 * kernel.branches),
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           kernel.buildBackward(b, in, out);
                         });
}

void nsa::populateCombinePatterns(KernelPatterns &patterns) {
  patterns.add(convertCombine, convertCombineBackward);
}
