//===- CrossEntropy.cpp - the loss and its gradient -----------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Logits [rows, vocabulary], read row by row in tiles of the vocabulary.
/// Programs are ranges of rows.
struct CrossEntropyKernel {
  CrossEntropyKernel(Value logits, MachineAttr machine)
      : grid(logits, machine.getElementsPerProgram()),
        tile(pickTile(grid.width, 2048)),
        tiles(llvm::divideCeil(grid.width, tile)) {}

  KernelSpec spec(int64_t flopsPerElement) const {
    return {"",
            grid.name(),
            {grid.programs, 1, 1},
            flopsPerElement * int64_t(grid.rows) * grid.width};
  }
  void buildForward(TileBuilder &b, nn::CrossEntropyOp::Adaptor in,
                    ArrayRef<Value> out) const;
  void buildBackward(TileBuilder &b, nn::CrossEntropyBackwardOp::Adaptor in,
                     ArrayRef<Value> out) const;
  void buildChunk(TileBuilder &b, nn::CrossEntropyChunkOp::Adaptor in,
                  ArrayRef<Value> out) const;
  Value maskColumns(TileBuilder &b, Value x, Value cols, double outside) const;
  Value buildLse(TileBuilder &b, Value logits, Expr row) const;

  RowGrid grid;
  int64_t tile, tiles;
};
} // namespace

/// `x` with `outside` in the columns past the vocabulary, if its last tile is
/// partial.
Value CrossEntropyKernel::maskColumns(TileBuilder &b, Value x, Value cols,
                                      double outside) const {
  if (grid.width % tile == 0)
    return x;
  return b.map({x, cols}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[1] < grid.width, x[0], outside);
  });
}

/// The logarithm of the sum of exponentials of one row, as a tile of 1x1. The
/// maximum starts at the lowest finite number: no difference of infinities
/// arises.
Value CrossEntropyKernel::buildLse(TileBuilder &b, Value logits,
                                   Expr row) const {
  double lowest = std::numeric_limits<float>::lowest();
  auto load = [&](Value cols) {
    return maskColumns(b, b.loadF32(logits, {row, cols}), cols, lowest);
  };
  auto raise = [&](Value top, Value x) {
    return b.map({top, b.reduceMax(x)}, b.f32(),
                 [](ArrayRef<Expr> x) { return max(x[0], x[1]); });
  };
  auto sumExp = [&](Value x, Value top, Value cols) {
    Value e = b.map({x, top}, b.f32(),
                    [](ArrayRef<Expr> x) { return exp(x[0] - x[1]); });
    return b.reduceAdd(maskColumns(b, e, cols, 0));
  };
  auto accumulate = [&](Expr i, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value cols = b.range(i * tile, tile, 1), x = load(cols);
    Value top = raise(carried[0], x);
    Value sum =
        b.map({carried[1], carried[0], top, sumExp(x, top, cols)}, b.f32(),
              [](ArrayRef<Expr> x) { return x[0] * exp(x[1] - x[2]) + x[3]; });
    return {top, sum};
  };
  SmallVector<Value> sums = {b.full(lowest, 1, 1), b.zeros(1, 1)};
  if (tiles == 1) {
    // Nothing came before: no sum has to be scaled.
    Value cols = b.range(0, tile, 1), x = load(cols);
    sums[0] = raise(sums[0], x);
    sums[1] = sumExp(x, sums[0], cols);
  } else {
    sums = b.forLoop(0, tiles, 1, sums, accumulate);
  }
  return b.map(sums, b.f32(),
               [](ArrayRef<Expr> x) { return x[0] + log(x[1]); });
}

/// The results are lse, and of each program the sum of losses and the number of
/// targets.
void CrossEntropyKernel::buildForward(TileBuilder &b,
                                      nn::CrossEntropyOp::Adaptor in,
                                      ArrayRef<Value> out) const {
  auto [lse, losses, counts] = named<3>(out);
  Value logits = grid.viewRows(b, in.getLogits());
  Value targets = grid.viewPerRow(b, in.getTargets());
  Value lses = grid.viewPerRow(b, lse);
  auto sums = grid.forEachRow(
      b, {b.zeros(1, 1), b.constantF32(0)},
      [&](Expr row, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value lse = buildLse(b, logits, row);
        b.store(lse, lses, {b.range(row, 1, 0)});
        Expr target = b.loadScalar(targets, {row});
        Expr logit = convert(b.loadScalar(logits, {row, target}), b.f32());
        Expr isValid = target >= 0;
        Value loss = b.map({carried[0], lse}, b.f32(), [&](ArrayRef<Expr> x) {
          return x[0] + select(isValid, x[1] - logit, 0);
        });
        return {loss, b.expr(carried[1]) + convert(isValid, b.f32())};
      });
  Expr program = b.programId(0);
  auto [loss, count] = named<2>(sums);
  b.store(loss, losses, {b.range(program, 1, 0)});
  b.storeScalar(count, counts, {program});
}

/// One program: sums the parts of all programs. What is `over` so many targets
/// is divided by their number.
static void buildMean(TileBuilder &b, int64_t programs,
                      std::optional<int64_t> over, ArrayRef<Value> args) {
  auto [losses, counts, meanLoss, ofAll] = named<4>(args);
  int64_t tile = pickTile(programs, 1024);
  auto addTiles = [&](Value parts) {
    Value sums = b.forLoop(
        0, programs, tile, {b.zeros(1, tile)},
        [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
          Value part = b.load(parts, {b.range(first, tile, 1)});
          return {add(b, carried[0], part)};
        })[0];
    return b.reduceAdd(sums);
  };
  Value count = addTiles(counts);
  Value loss = b.map({addTiles(losses), count}, b.f32(), [&](ArrayRef<Expr> x) {
    return over ? x[0] / double(*over) : x[0] / max(x[1], 1);
  });
  if (over)
    count = b.map({count}, b.f32(),
                  [&](ArrayRef<Expr> x) { return x[0] / double(*over); });
  Value first = b.range(0, 1, 0);
  b.store(loss, b.view(meanLoss, {1}), {first});
  b.store(count, b.view(ofAll, {1}), {first});
}

void CrossEntropyKernel::buildBackward(TileBuilder &b,
                                       nn::CrossEntropyBackwardOp::Adaptor in,
                                       ArrayRef<Value> out) const {
  Value logits = grid.viewRows(b, in.getLogits()),
        targets = grid.viewPerRow(b, in.getTargets());
  Value lses = grid.viewPerRow(b, in.getLse()),
        dLogits = grid.viewRows(b, out.front());
  Expr scale = b.loadScalar(in.getLossGrad(), {}) /
               max(b.loadScalar(in.getCount(), {}), 1);
  grid.forEachRow(b, {}, [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
    Expr target = b.loadScalar(targets, {row});
    Expr factor = select(target >= 0, scale, 0);
    Expr lse = b.loadScalar(lses, {row});
    b.forLoop(0, tiles, 1, {},
              [&](Expr i, ArrayRef<Value>) -> SmallVector<Value> {
                Value cols = b.range(i * tile, tile, 1);
                Value x = b.load(logits, {row, cols});
                Value grad = b.map({x, cols}, b.f32(), [&](ArrayRef<Expr> x) {
                  Expr hit = convert(x[1] == target, b.f32());
                  return factor * (exp(x[0] - lse) - hit);
                });
                b.store(grad, dLogits, {row, cols});
                return {};
              });
    return {};
  });
}

/// The results are the loss of each row and, with a gradient, dlogits. The
/// logits are those of the targets from `first` on.
void CrossEntropyKernel::buildChunk(TileBuilder &b,
                                    nn::CrossEntropyChunkOp::Adaptor in,
                                    ArrayRef<Value> out) const {
  Value logits = in.getLogits();
  int64_t tokens = cast<MemRefType>(in.getTargets().getType()).getNumElements();
  Value targets = b.view(in.getTargets(), {tokens});
  bool hasGradient = static_cast<bool>(in.getLossGrad());
  Expr scale;
  if (hasGradient)
    scale = b.loadScalar(in.getLossGrad(), {}) /
            max(b.loadScalar(in.getCount(), {}), 1);
  grid.forEachRow(b, {}, [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
    Value lse = buildLse(b, logits, row);
    Expr target = b.loadScalar(targets, {row + double(in.getFirst())});
    Expr logit = convert(b.loadScalar(logits, {row, target}), b.f32());
    Expr isValid = target >= 0;
    b.store(b.map({lse}, b.f32(),
                  [&](ArrayRef<Expr> x) {
                    return select(isValid, x[0] - logit, 0);
                  }),
            out.front(), {b.range(row, 1, 0)});
    if (!hasGradient)
      return {};
    Expr factor = select(isValid, scale, 0);
    b.forLoop(
        0, tiles, 1, {}, [&](Expr i, ArrayRef<Value>) -> SmallVector<Value> {
          Value cols = b.range(i * tile, tile, 1);
          Value x = b.load(logits, {row, cols});
          Value grad = b.map({x, cols, lse}, b.f32(), [&](ArrayRef<Expr> x) {
            Expr hit = convert(x[1] == target, b.f32());
            return factor * (exp(x[0] - x[2]) - hit);
          });
          b.store(grad, out.back(), {row, cols});
          return {};
        });
    return {};
  });
}

static LogicalResult convertCrossEntropyChunk(nn::CrossEntropyChunkOp op,
                                              KernelCache &cache,
                                              PatternRewriter &rewriter) {
  CrossEntropyKernel kernel(op.getLogits(), cache.getMachine());
  return replaceByKernel(cache, rewriter, op,
                         kernel.spec(op.getLossGrad() ? 9 : 5),
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           kernel.buildChunk(b, in, out);
                         });
}

static LogicalResult convertCrossEntropy(nn::CrossEntropyOp op,
                                         KernelCache &cache,
                                         PatternRewriter &rewriter) {
  CrossEntropyKernel kernel(op.getLogits(), cache.getMachine());
  auto programs = int64_t(kernel.grid.programs);
  Type parts = RankedTensorType::get(programs, rewriter.getF32Type());
  auto [lse, losses, counts] =
      named<3>(launchKernel(cache, rewriter, op, kernel.spec(5),
                            {op.getLse().getType(), parts, parts},
                            [&](auto &b, auto in, ArrayRef<Value> out) {
                              kernel.buildForward(b, in, out);
                            }));
  KernelSpec spec = {"mean", "n" + std::to_string(programs), {1, 1, 1}};
  std::optional<int64_t> over;
  if (op.getOverAll()) {
    over = op.getNumTargets();
    spec.shape += "_over" + std::to_string(*over);
  }
  auto [loss, count] =
      named<2>(cache.launch(rewriter, op, spec, {losses, counts},
                            {op.getLoss().getType(), op.getCount().getType()},
                            [&](auto &b, ArrayRef<Value> args) {
                              buildMean(b, programs, over, args);
                            }));
  rewriter.replaceOp(op, ValueRange{loss, lse, count});
  return success();
}

static LogicalResult convertCrossEntropyBackward(nn::CrossEntropyBackwardOp op,
                                                 KernelCache &cache,
                                                 PatternRewriter &rewriter) {
  CrossEntropyKernel kernel(op.getLogits(), cache.getMachine());
  return replaceByKernel(cache, rewriter, op, kernel.spec(4),
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           kernel.buildBackward(b, in, out);
                         });
}

void nsa::populateCrossEntropyPatterns(KernelPatterns &patterns) {
  patterns.add(convertCrossEntropy, convertCrossEntropyBackward,
               convertCrossEntropyChunk);
}
