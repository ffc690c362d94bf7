//===- Combine.cpp - the gated sum of the branches ------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Conversion/NSAToTile/GatedAttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Programs are (token tile, head, batch) over o [B, S, H, D].
struct CombineKernel {
  explicit CombineKernel(Value output)
      : batch(getDim(output, 0)), sequence(getDim(output, 1)),
        heads(getDim(output, 2)), width(getDim(output, 3)),
        rows(getTileSize(sequence)) {}

  KernelSpec spec(int64_t flopsPerElement) const {
    return {
        "",
        "b" + std::to_string(batch) + "s" + std::to_string(sequence) + "h" +
            std::to_string(heads) + "d" + std::to_string(width),
        {static_cast<int64_t>(llvm::divideCeil(sequence, rows)), heads, batch},
        flopsPerElement * batch * sequence * heads * width};
  }
  void buildForward(TileBuilder &b, ArrayRef<Value> args) const;
  void buildBackward(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t batch, sequence, heads, width, rows;
};
} // namespace

/// Products and sums are written as multiply-adds, so that every kernel rounds
/// alike.
Value nsa::gatedSum(TileBuilder &b, const BranchTiles &gates,
                    const BranchTiles &outputs) {
  auto multiplyAdd = [](Expr x, Expr y, Expr z) {
    return Expr(x.getBuilder(), math::FmaOp::create(x.getBuilder(), x, y, z));
  };
  return b.map(
      {gates[0], outputs[0], gates[1], outputs[1], gates[2], outputs[2]},
      b.f32(), [&](ArrayRef<Expr> x) {
        Expr sum = multiplyAdd(x[2], x[3], x[0] * x[1]);
        return multiplyAdd(x[4], x[5], sum);
      });
}

void CombineKernel::buildForward(TileBuilder &b, ArrayRef<Value> args) const {
  Value gates = args[0], compressed = args[1], selected = args[2];
  Value window = args[3], o = args[4];
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  auto gate = [&](int branch) {
    return b.load(gates, {batchRow, t, head, branch});
  };
  auto output = [&](Value branch) {
    return b.load(branch, {batchRow, t, head, cols});
  };
  Value sum = gatedSum(b, {gate(0), gate(1), gate(2)},
                       {output(compressed), output(selected), output(window)});
  b.store(sum, o, {batchRow, t, head, cols});
}

void CombineKernel::buildBackward(TileBuilder &b, ArrayRef<Value> args) const {
  Value dO = args[0], gates = args[1], dGates = args[5];
  ArrayRef<Value> outputs = args.slice(2, 3), grads = args.slice(6, 3);
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  Value outputGrads = b.load(dO, {batchRow, t, head, cols});
  for (int branch = 0; branch < 3; ++branch) {
    Value output = b.load(outputs[branch], {batchRow, t, head, cols});
    b.store(rowDot(b, outputGrads, output), dGates,
            {batchRow, t, head, branch});
    Value gate = b.load(gates, {batchRow, t, head, branch});
    Value grad = b.map({outputGrads, gate}, b.f32(),
                       [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    b.store(grad, grads[branch], {batchRow, t, head, cols});
  }
}

namespace {
struct ConvertCombine : KernelPattern<CombineOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CombineOp op,
                                PatternRewriter &rewriter) const override {
    CombineKernel kernel(op.getOutput());
    rewriter.replaceOp(op, cache.launch(rewriter, op, kernel.spec(5),
                                        op->getOperands(), op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          kernel.buildForward(b, args);
                                        }));
    return success();
  }
};

struct ConvertCombineBackward : KernelPattern<CombineBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CombineBackwardOp op,
                                PatternRewriter &rewriter) const override {
    CombineKernel kernel(op.getOutputGrad());
    rewriter.replaceOp(op, cache.launch(rewriter, op, kernel.spec(9),
                                        op->getOperands(), op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          kernel.buildBackward(b, args);
                                        }));
    return success();
  }
};
} // namespace

void nsa::populateCombinePatterns(RewritePatternSet &patterns,
                                  KernelCache &cache) {
  patterns.add<ConvertCombine, ConvertCombineBackward>(patterns.getContext(),
                                                       cache);
}
