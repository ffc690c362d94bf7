//===- Combine.cpp - the gated sum of the branches ------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Kernels/NSA/GatedAttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"

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
  void buildForward(TileBuilder &b, ArrayRef<Value> args) const;
  void buildBackward(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t branches;
  Extent batch, sequence;
  int64_t heads, width, rows;
};
} // namespace

/// Products and sums are written as multiply-adds, so that every kernel rounds
/// alike.
Value nsa::gatedSum(TileBuilder &b, ArrayRef<Value> gates,
                    ArrayRef<Value> outputs) {
  SmallVector<Value> inputs;
  for (auto [gate, output] : llvm::zip_equal(gates, outputs))
    inputs.append({gate, output});
  return b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    Expr sum = x[0] * x[1];
    for (size_t i = 2; i < x.size(); i += 2)
      sum = fma(x[i], x[i + 1], sum);
    return sum;
  });
}

void CombineKernel::buildForward(TileBuilder &b, ArrayRef<Value> args) const {
  Value gates = args.front(), o = args.back();
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  SmallVector<Value> weights, outputs;
  for (int64_t branch = 0; branch < branches; ++branch)
    weights.push_back(b.load(gates, {batchRow, t, head, branch}));
  for (Value output : args.slice(1, branches))
    outputs.push_back(b.load(output, {batchRow, t, head, cols}));
  b.store(gatedSum(b, weights, outputs), o, {batchRow, t, head, cols});
}

void CombineKernel::buildBackward(TileBuilder &b, ArrayRef<Value> args) const {
  Value dO = args[0], gates = args[1], dGates = args[2 + branches];
  ArrayRef<Value> outputs = args.slice(2, branches);
  ArrayRef<Value> grads = args.take_back(branches);
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  Value outputGrads = b.load(dO, {batchRow, t, head, cols});
  for (int64_t branch = 0; branch < branches; ++branch) {
    Value output = b.load(outputs[branch], {batchRow, t, head, cols});
    b.store(rowDot(b, outputGrads, output), dGates,
            {batchRow, t, head, branch});
    Value gate = b.load(gates, {batchRow, t, head, branch});
    Value grad = b.map({outputGrads, gate}, b.f32(),
                       [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    b.store(grad, grads[branch], {batchRow, t, head, cols});
  }
}

static LogicalResult convertCombine(CombineOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  CombineKernel kernel(op.getOutput(), op.getBranches().size());
  return cache.replace(
      rewriter, op, kernel.spec(2 * kernel.branches - 1),
      [&](auto &b, ArrayRef<Value> args) { kernel.buildForward(b, args); });
}

static LogicalResult convertCombineBackward(CombineBackwardOp op,
                                            KernelCache &cache,
                                            PatternRewriter &rewriter) {
  CombineKernel kernel(op.getOutputGrad(), op.getBranches().size());
  return cache.replace(
      rewriter, op, kernel.spec(3 * kernel.branches),
      [&](auto &b, ArrayRef<Value> args) { kernel.buildBackward(b, args); });
}

void nsa::populateCombinePatterns(KernelPatterns &patterns) {
  patterns.add(convertCombine, convertCombineBackward);
}
