//===- RMSNorm.cpp - normalisation of rows --------------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Program: a stretch of rows.
static void buildForward(TileBuilder &b, const RowGrid &grid, double eps,
                         ArrayRef<Value> args) {
  Value x = grid.viewRows(b, args[0]), weight = args[1];
  Value y = grid.viewRows(b, args[2]), rstds = grid.viewPerRow(b, args[3]);
  Value cols = b.range(0, grid.width, 1);
  Value weights = b.load(weight, {cols});
  grid.forEachRow(b, {}, [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
    Value input = b.loadF32(x, {row, cols});
    Value squares =
        b.map({input}, b.f32(), [](ArrayRef<Expr> x) { return x[0] * x[0]; });
    Value rstd = b.map({b.reduceAdd(squares)}, b.f32(), [&](ArrayRef<Expr> x) {
      return 1 / sqrt(x[0] * (1.0 / grid.width) + eps);
    });
    Value output = b.map({input, rstd, weights}, b.f32(),
                         [](ArrayRef<Expr> x) { return x[0] * x[1] * x[2]; });
    b.store(output, y, {row, cols});
    b.store(rstd, rstds, {b.range(row, 1, 0)});
    return {};
  });
}

/// Program: a stretch of rows, whose dweight is one row of the partial sums.
static void buildBackward(TileBuilder &b, const RowGrid &grid,
                          ArrayRef<Value> args) {
  Value dy = grid.viewRows(b, args[0]), x = grid.viewRows(b, args[1]);
  Value weight = args[2], rstds = grid.viewPerRow(b, args[3]);
  Value dx = grid.viewRows(b, args[4]), partials = args[5];
  Value cols = b.range(0, grid.width, 1);
  Value weights = b.load(weight, {cols});
  auto buildRow = [&](Expr row, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value grad = b.loadF32(dy, {row, cols});
    Value rstd = b.load(rstds, {b.range(row, 1, 0)});
    Value normed = b.map({b.load(x, {row, cols}), rstd}, b.f32(),
                         [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    auto products =
        b.map({grad, normed, weights, carried[0]}, {b.f32(), b.f32()},
              [](ArrayRef<Expr> x) -> SmallVector<Value> {
                Expr product = x[0] * x[1];
                return {product * x[2], x[3] + product};
              });
    Value mean =
        b.map({b.reduceAdd(products[0])}, b.f32(),
              [&](ArrayRef<Expr> x) { return x[0] * (1.0 / grid.width); });
    Value inputGrad = b.map(
        {grad, weights, normed, mean, rstd}, b.f32(),
        [](ArrayRef<Expr> x) { return x[4] * (x[0] * x[1] - x[2] * x[3]); });
    b.store(inputGrad, dx, {row, cols});
    return {products[1]};
  };
  Value sum = grid.forEachRow(b, {b.zeros(1, grid.width)}, buildRow).front();
  b.store(sum, partials, {b.programId(0), cols});
}

namespace {
struct ConvertRMSNorm : KernelPattern<nn::RMSNormOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::RMSNormOp op,
                                PatternRewriter &rewriter) const override {
    RowGrid grid(op.getInput());
    KernelSpec spec = {
        "", grid.name(), {grid.programs, 1, 1}, 4 * grid.rows * grid.width};
    double eps = op.getEps().convertToDouble();
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, op->getOperands(),
                                        op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          buildForward(b, grid, eps, args);
                                        }));
    return success();
  }
};

struct ConvertRMSNormBackward : KernelPattern<nn::RMSNormBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::RMSNormBackwardOp op,
                                PatternRewriter &rewriter) const override {
    RowGrid grid(op.getInput(), 16384, /*maxPrograms=*/64);
    KernelSpec spec = {
        "", grid.name(), {grid.programs, 1, 1}, 10 * grid.rows * grid.width};
    Type partials = RankedTensorType::get({grid.programs, grid.width},
                                          rewriter.getF32Type());
    auto launched = cache.launch(
        rewriter, op, spec, op->getOperands(),
        {op.getInputGrad().getType(), partials},
        [&](auto &b, ArrayRef<Value> args) { buildBackward(b, grid, args); });
    Value weightGrad = launchSumOfRows(cache, rewriter, op, launched[1],
                                       op.getWeightGrad().getType());
    rewriter.replaceOp(op, ValueRange{launched[0], weightGrad});
    return success();
  }
};
} // namespace

void nsa::populateRMSNormPatterns(RewritePatternSet &patterns,
                                  KernelCache &cache) {
  patterns.add<ConvertRMSNorm, ConvertRMSNormBackward>(patterns.getContext(),
                                                       cache);
}
