//===- Gate.cpp - gates of branches ---------------------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Gates and logits as rows of one token, `branches * heads` wide: the gates of
/// a head are neighbours. Tiles are a few tokens high.
struct GateKernel {
  GateKernel(Value logits, int64_t branches, nn::GateActivation activation)
      : grid(logits, 8192, /*maxPrograms=*/64, tileRows), branches(branches),
        heads(grid.width / branches),
        softmax(activation == nn::GateActivation::Softmax) {}

  KernelSpec spec(int64_t flopsPerElement) const {
    KernelSpec own = {"",
                      stringifyGateActivation(softmax
                                                  ? nn::GateActivation::Softmax
                                                  : nn::GateActivation::Sigmoid)
                              .str() +
                          "_" + grid.name(),
                      {grid.programs, 1, 1},
                      flopsPerElement * int64_t(grid.rows) * grid.width};
    own.takesExtents = true;
    return own;
  }
  /// Columns that one map treats: all of them for sigmoid; for softmax those of
  /// each branch, so that the gates of a head meet.
  SmallVector<Value> columns(TileBuilder &b) const {
    if (!softmax)
      return {b.range(0, grid.width, 1)};
    SmallVector<Value> columns;
    for (int64_t c = 0; c < branches; ++c)
      columns.push_back(b.range(c, heads, 1, branches));
    return columns;
  }
  void buildForward(TileBuilder &b, nn::GateOp::Adaptor in,
                    ArrayRef<Value> out) const;
  void buildBackward(TileBuilder &b, nn::GateBackwardOp::Adaptor in,
                     ArrayRef<Value> out) const;

  static constexpr int64_t tileRows = 16;
  RowGrid grid;
  int64_t branches, heads;
  bool softmax;
};
} // namespace

SmallVector<Value> nsa::activateGates(ArrayRef<Expr> z) {
  if (z.size() == 1)
    return {sigmoid(z[0])};
  Expr top = z[0];
  for (Expr value : z.drop_front())
    top = max(top, value);
  auto powers =
      llvm::map_to_vector(z, [&](Expr value) { return exp(value - top); });
  Expr sum = powers[0];
  for (Expr power : ArrayRef(powers).drop_front())
    sum = sum + power;
  return llvm::map_to_vector(powers,
                             [&](Expr power) -> Value { return power / sum; });
}

SmallVector<Value> nsa::differentiateGates(ArrayRef<Expr> x) {
  if (x.size() == 2)
    return {x[0] * x[1] * (1 - x[1])};
  ArrayRef<Expr> grads = x.take_front(x.size() / 2);
  ArrayRef<Expr> gates = x.drop_front(x.size() / 2);
  Expr mean = grads[0] * gates[0];
  for (auto [grad, gate] : llvm::drop_begin(llvm::zip(grads, gates)))
    mean = mean + grad * gate;
  SmallVector<Value> results;
  for (auto [grad, gate] : llvm::zip(grads, gates))
    results.push_back(gate * (grad - mean));
  return results;
}

void GateKernel::buildForward(TileBuilder &b, nn::GateOp::Adaptor in,
                              ArrayRef<Value> out) const {
  Value logits = grid.viewRows(b, in.getLogits());
  Value gates = grid.viewRows(b, out.front()), bias = in.getBias();
  SmallVector<Value> cols = columns(b), biases;
  for (Value c : cols)
    biases.push_back(bias ? b.load(bias, {c})
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
void GateKernel::buildBackward(TileBuilder &b, nn::GateBackwardOp::Adaptor in,
                               ArrayRef<Value> out) const {
  auto [logitsGrad, partials] = named<2>(out);
  Value dGates = grid.viewRows(b, in.getGatesGrad());
  Value gates = grid.viewRows(b, in.getGates());
  Value dLogits = grid.viewRows(b, logitsGrad);
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
      // Rows past the last one read as 0 and so have no gradient.
      next.push_back(add(b, sum, b.reduceAdd(grad, 0)));
    }
    return next;
  };
  sums = grid.forEachRow(b, sums, buildRows);
  for (auto [sum, c] : llvm::zip_equal(sums, cols))
    b.store(sum, partials, {b.programId(0), c});
}

static LogicalResult convertGate(nn::GateOp op, KernelCache &cache,
                                 PatternRewriter &rewriter) {
  GateKernel kernel(op.getLogits(), op.getBranches(), op.getActivation());
  return replaceByKernel(cache, rewriter, op, kernel.spec(6),
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           kernel.buildForward(b, in, out);
                         });
}

static LogicalResult convertGateBackward(nn::GateBackwardOp op,
                                         KernelCache &cache,
                                         PatternRewriter &rewriter) {
  GateKernel kernel(op.getLogitsGrad(), getDim(op.getGates(), 3),
                    op.getActivation());
  auto launch = [&]() -> FailureOr<ResultRange> {
    kernel.grid.cutInto(*op.getPartialSums());
    return launchKernel(cache, rewriter, op, kernel.spec(6),
                        op->getResultTypes(),
                        [&](auto &b, auto in, ArrayRef<Value> out) {
                          kernel.buildBackward(b, in, out);
                        });
  };
  rewriter.replaceOp(op, *launchWithRowSum(cache, rewriter, op, launch));
  return success();
}

void nsa::populateGatePatterns(KernelPatterns &patterns) {
  patterns.add(convertGate, convertGateBackward);
}
