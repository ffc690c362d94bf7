//===- Gate.cpp - gates of the three branches -----------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Gates and logits as rows of one token, `3 * heads` wide: the gates of a head
/// are neighbours. Tiles are a few tokens high.
struct GateKernel {
  GateKernel(Value logits, nn::GateActivation activation)
      : grid(logits, 8192, /*maxPrograms=*/64, tileRows), heads(grid.width / 3),
        softmax(activation == nn::GateActivation::Softmax) {}

  KernelSpec spec(int64_t flopsPerElement) const {
    return {"",
            stringifyGateActivation(softmax ? nn::GateActivation::Softmax
                                            : nn::GateActivation::Sigmoid)
                    .str() +
                "_" + grid.name(),
            {grid.programs, 1, 1},
            flopsPerElement * grid.rows * grid.width};
  }
  /// Columns that one map treats: all of them for sigmoid; for softmax those of
  /// each branch, so that the gates of a head meet.
  SmallVector<Value> columns(TileBuilder &b) const {
    if (!softmax)
      return {b.range(0, grid.width, 1)};
    return {b.range(0, heads, 1, 3), b.range(1, heads, 1, 3),
            b.range(2, heads, 1, 3)};
  }
  void buildForward(TileBuilder &b, ArrayRef<Value> args, bool hasBias) const;
  void buildBackward(TileBuilder &b, ArrayRef<Value> args) const;

  static constexpr int64_t tileRows = 16;
  RowGrid grid;
  int64_t heads;
  bool softmax;
};
} // namespace

SmallVector<Value> nsa::activateGates(ArrayRef<Expr> z) {
  if (z.size() == 1)
    return {sigmoid(z[0])};
  Expr top = max(max(z[0], z[1]), z[2]);
  Expr e0 = exp(z[0] - top), e1 = exp(z[1] - top), e2 = exp(z[2] - top);
  Expr sum = e0 + e1 + e2;
  return {e0 / sum, e1 / sum, e2 / sum};
}

SmallVector<Value> nsa::differentiateGates(ArrayRef<Expr> x) {
  if (x.size() == 2)
    return {x[0] * x[1] * (1 - x[1])};
  Expr mean = x[0] * x[3] + x[1] * x[4] + x[2] * x[5];
  return {x[3] * (x[0] - mean), x[4] * (x[1] - mean), x[5] * (x[2] - mean)};
}

void GateKernel::buildForward(TileBuilder &b, ArrayRef<Value> args,
                              bool hasBias) const {
  Value logits = grid.viewRows(b, args[0]);
  Value gates = grid.viewRows(b, args.back());
  SmallVector<Value> cols = columns(b), biases;
  for (Value c : cols)
    biases.push_back(hasBias ? b.load(args[1], {c})
                             : b.zeros(1, softmax ? heads : grid.width));
  SmallVector<Type> types(cols.size(), b.f32());
  auto buildRows = [&](Expr first, ArrayRef<Value>) -> SmallVector<Value> {
    Value rows = b.range(first, tileRows, 0);
    SmallVector<Value> inputs;
    for (Value c : cols)
      inputs.push_back(b.load(logits, {rows, c}));
    llvm::append_range(inputs, biases);
    auto results = b.map(inputs, types, [&](ArrayRef<Expr> x) {
      SmallVector<Expr> z;
      for (size_t i = 0; i < cols.size(); ++i)
        z.push_back(x[i] + x[cols.size() + i]);
      return activateGates(z);
    });
    for (auto [result, c] : llvm::zip_equal(results, cols))
      b.store(result, gates, {rows, c});
    return {};
  };
  grid.forEachRow(b, {}, buildRows);
}

/// Every program writes one row of the partial sums of dbias.
void GateKernel::buildBackward(TileBuilder &b, ArrayRef<Value> args) const {
  Value dGates = grid.viewRows(b, args[0]), gates = grid.viewRows(b, args[1]);
  Value dLogits = grid.viewRows(b, args[2]), partials = args[3];
  SmallVector<Value> cols = columns(b), sums;
  SmallVector<Type> types(cols.size(), b.f32());
  for (size_t i = 0; i < cols.size(); ++i)
    sums.push_back(b.zeros(1, softmax ? heads : grid.width));
  auto buildRows = [&](Expr first,
                       ArrayRef<Value> carried) -> SmallVector<Value> {
    Value rows = b.range(first, tileRows, 0);
    SmallVector<Value> inputs;
    for (Value source : {dGates, gates})
      for (Value c : cols)
        inputs.push_back(b.load(source, {rows, c}));
    auto grads = b.map(inputs, types, differentiateGates);
    SmallVector<Value> next;
    for (auto [grad, c, sum] : llvm::zip_equal(grads, cols, carried)) {
      b.store(grad, dLogits, {rows, c});
      // Rows behind the last one read as 0 and so have no gradient.
      next.push_back(b.map({sum, b.reduceAdd(grad, 0)}, b.f32(),
                           [](ArrayRef<Expr> x) { return x[0] + x[1]; }));
    }
    return next;
  };
  sums = grid.forEachRow(b, sums, buildRows);
  for (auto [sum, c] : llvm::zip_equal(sums, cols))
    b.store(sum, partials, {b.programId(0), c});
}

namespace {
struct ConvertGate : KernelPattern<nn::GateOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::GateOp op,
                                PatternRewriter &rewriter) const override {
    GateKernel kernel(op.getLogits(), op.getActivation());
    bool hasBias = static_cast<bool>(op.getBias());
    rewriter.replaceOp(op, cache.launch(rewriter, op, kernel.spec(6),
                                        op->getOperands(), op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          kernel.buildForward(b, args, hasBias);
                                        }));
    return success();
  }
};

struct ConvertGateBackward : KernelPattern<nn::GateBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::GateBackwardOp op,
                                PatternRewriter &rewriter) const override {
    GateKernel kernel(op.getLogitsGrad(), op.getActivation());
    auto launch = [&]() -> FailureOr<ResultRange> {
      kernel.grid.cutInto(*op.getPartialSums());
      return cache.launch(rewriter, op, kernel.spec(6), op->getOperands(),
                          op->getResultTypes(),
                          [&](auto &b, ArrayRef<Value> args) {
                            kernel.buildBackward(b, args);
                          });
    };
    rewriter.replaceOp(op, *launchWithRowSum(cache, rewriter, op, launch));
    return success();
  }
};
} // namespace

void nsa::populateGatePatterns(RewritePatternSet &patterns,
                               KernelCache &cache) {
  patterns.add<ConvertGate, ConvertGateBackward>(patterns.getContext(), cache);
}
