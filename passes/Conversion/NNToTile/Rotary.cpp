//===- Rotary.cpp - rotation of channel pairs -----------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// x [B, S, H, D] and table [L, D/2, 2]. Programs are stretches of positions;
/// the angles of a position serve all heads and all rows of the batch.
struct RotaryKernel {
  explicit RotaryKernel(nn::RotaryOp op)
      : batch(getDim(op.getInput(), 0)), sequence(getDim(op.getInput(), 1)),
        heads(getDim(op.getInput(), 2)), pairs(getDim(op.getInput(), 3) / 2),
        stride(op.getStride()), inverse(op.getInverse()),
        perProgram(std::max<int64_t>(
            8192 / std::max<int64_t>(batch * heads * pairs, 1), 1)) {}

  KernelSpec spec() const {
    int64_t programs =
        std::max<int64_t>(llvm::divideCeil(sequence, perProgram), 1);
    return {inverse ? "inverse" : "",
            "b" + std::to_string(batch) + "s" + std::to_string(sequence) + "h" +
                std::to_string(heads) + "d" + std::to_string(2 * pairs),
            {programs, 1, 1},
            6 * batch * sequence * heads * pairs};
  }
  void build(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t batch, sequence, heads, pairs, stride;
  bool inverse;
  int64_t perProgram;
};
} // namespace

void RotaryKernel::build(TileBuilder &b, ArrayRef<Value> args) const {
  Value x = args[0], table = args[1], y = args[2];
  Value rows = b.range(0, heads, 0);
  Value low = b.range(0, pairs, 1), high = b.range(pairs, pairs, 1);
  Expr start = b.programId(0) * perProgram;
  auto rotate = [&](Expr t, Expr batchRow, Value cosines, Value sines) {
    auto rotated =
        b.map({b.load(x, {batchRow, t, rows, low}),
               b.load(x, {batchRow, t, rows, high}), cosines, sines},
              {b.f32(), b.f32()}, [&](ArrayRef<Expr> e) -> SmallVector<Value> {
                Expr sine = inverse ? -e[3] : e[3];
                return {e[2] * e[0] - sine * e[1], e[2] * e[1] + sine * e[0]};
              });
    b.store(rotated[0], y, {batchRow, t, rows, low});
    b.store(rotated[1], y, {batchRow, t, rows, high});
  };
  b.forLoop(start, min(start + perProgram, sequence), 1, {},
            [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
              Expr position = t * stride;
              Value cosines = b.load(table, {position, low, 0});
              Value sines = b.load(table, {position, low, 1});
              b.forLoop(
                  0, batch, 1, {},
                  [&](Expr batchRow, ArrayRef<Value>) -> SmallVector<Value> {
                    rotate(t, batchRow, cosines, sines);
                    return {};
                  });
              return {};
            });
}

namespace {
struct ConvertRotary : KernelPattern<nn::RotaryOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::RotaryOp op,
                                PatternRewriter &rewriter) const override {
    RotaryKernel kernel(op);
    rewriter.replaceOp(op, cache.launch(rewriter, op, kernel.spec(),
                                        op->getOperands(), op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          kernel.build(b, args);
                                        }));
    return success();
  }
};
} // namespace

void nsa::populateRotaryPatterns(RewritePatternSet &patterns,
                                 KernelCache &cache) {
  patterns.add<ConvertRotary>(patterns.getContext(), cache);
}
