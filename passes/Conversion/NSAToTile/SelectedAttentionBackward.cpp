//===- SelectedAttentionBackward.cpp - gradients of selected keys ---------===//
//
// The gradient of a key needs the queries that selected its block. An inverse
// index lists them: for each block, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
struct KeyValueKernel : SelectedAttention {
  explicit KeyValueKernel(SelectedAttentionBackwardOp op)
      : SelectedAttention(op),
        queries(std::max<int64_t>(64 / shape.group(), 1)) {}

  /// (query, head) rows of a tile.
  int64_t rows() const { return queries * shape.group(); }

  /// offsets [B, Hkv, blocks + 2] and queries [B, Hkv, S * count], both i32:
  /// the queries of block j are at offsets[j] .. offsets[j + 1] - 1. The last
  /// offset is scratch.
  SmallVector<Type> getIndexTypes(MLIRContext *context) const;

  void buildInverseIndex(TileBuilder &b, ArrayRef<Value> args) const;
  void buildKeyValueGrad(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t queries;
};
} // namespace

SmallVector<Type> KeyValueKernel::getIndexTypes(MLIRContext *context) const {
  auto i32 = IntegerType::get(context, 32);
  return {RankedTensorType::get({shape.batch, shape.keyHeads, numBlocks() + 2},
                                i32),
          RankedTensorType::get(
              {shape.batch, shape.keyHeads, shape.sequence * count}, i32)};
}

/// Program: (key head, batch). A stable counting sort of (query, block) pairs
/// by block. While entries are counted, offsets[j + 2] is the number of queries
/// of block j; while they are placed, offsets[j + 1] is where the next one
/// goes.
void KeyValueKernel::buildInverseIndex(TileBuilder &b,
                                       ArrayRef<Value> args) const {
  Value indices = args[0], offsets = args[1], list = args[2];
  Expr keyHead = b.programId(0), batch = b.programId(1);
  auto forEachEntry = [&](llvm::function_ref<void(Expr, Expr)> body) {
    b.forLoop(0, shape.sequence, 1, {}, [&](Expr t, ArrayRef<Value>) {
      b.forLoop(0, count, 1, {}, [&](Expr slot, ArrayRef<Value>) {
        Expr block = b.loadScalar(indices, {batch, keyHead, t, slot});
        b.ifThen(block >= 0, [&] { body(t, block); });
        return SmallVector<Value>();
      });
      return SmallVector<Value>();
    });
  };

  b.forLoop(0, numBlocks() + 2, 1, {}, [&](Expr j, ArrayRef<Value>) {
    b.storeScalar(b.constant(0), offsets, {batch, keyHead, j});
    return SmallVector<Value>();
  });
  forEachEntry([&](Expr, Expr block) {
    Expr number = b.loadScalar(offsets, {batch, keyHead, block + 2});
    b.storeScalar(number + 1, offsets, {batch, keyHead, block + 2});
  });
  b.forLoop(2, numBlocks() + 2, 1, {b.constant(0)},
            [&](Expr j, ArrayRef<Value> sum) -> SmallVector<Value> {
              Expr next =
                  b.loadScalar(offsets, {batch, keyHead, j}) + b.expr(sum[0]);
              b.storeScalar(next, offsets, {batch, keyHead, j});
              return {next};
            });
  forEachEntry([&](Expr t, Expr block) {
    Expr place = b.loadScalar(offsets, {batch, keyHead, block + 1});
    b.storeScalar(t, list, {batch, keyHead, place});
    b.storeScalar(place + 1, offsets, {batch, keyHead, block + 1});
  });
}

/// Program: (key tile, key head, batch). Gathers the (query, head) rows of the
/// block in ascending order.
void KeyValueKernel::buildKeyValueGrad(TileBuilder &b,
                                       ArrayRef<Value> args) const {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], lse = args[4];
  Value delta = args[5], offsets = args[6], list = args[7];
  Value dK = args[8], dV = args[9];
  Expr u0 = b.programId(0) * keyTile;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Expr block = u0 / selectBlock, firstHead = keyHead * shape.group();
  Value u = b.range(u0, keyTile, 0);
  Value keyCols = b.range(0, shape.keyWidth, 1);
  Value valueCols = b.range(0, shape.valueWidth, 1);

  Value keys = b.load(k, {batch, u, keyHead, keyCols});
  Value values = b.load(v, {batch, u, keyHead, valueCols});
  Expr begin = b.loadScalar(offsets, {batch, keyHead, block});
  Expr end = b.loadScalar(offsets, {batch, keyHead, block + 1});
  // Rows past the end of the list get a query outside of the sequence: they
  // read as 0.
  auto queryOfRow = [&](Expr entry, int axis) {
    Value place =
        b.map({b.range(0, rows(), axis)}, b.i32(),
              [&](ArrayRef<Expr> x) { return entry + x[0] / shape.group(); });
    Value query = b.load(list, {batch, keyHead, place});
    return b.map({place, query}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] < end, x[1], shape.sequence);
    });
  };
  auto headOfRow = [&](int axis) {
    return b.map({b.range(0, rows(), axis)}, b.i32(), [&](ArrayRef<Expr> x) {
      return firstHead + x[0] % shape.group();
    });
  };
  Value head = headOfRow(0), headRow = headOfRow(1);
  auto sums = b.forLoop(
      begin, end, queries,
      {b.zeros(keyTile, shape.keyWidth), b.zeros(keyTile, shape.valueWidth)},
      [&](Expr entry, ArrayRef<Value> sums) -> SmallVector<Value> {
        Value t = queryOfRow(entry, 0), tRow = queryOfRow(entry, 1);
        Value queryRows = b.load(q, {batch, t, head, keyCols});
        Value outputGrads = b.load(dO, {batch, t, head, valueCols});
        Value shift = finiteOrZero(b, b.load(lse, {batch, headRow, tRow}));
        Value rowDelta = b.load(delta, {batch, headRow, tRow});
        Value zeros = b.zeros(keyTile, rows());
        Value products = b.dot(keys, queryRows, zeros, /*transposeB=*/true);
        Value dP = b.dot(values, outputGrads, zeros, /*transposeB=*/true);
        auto pAndDS =
            b.map({products, dP, shift, rowDelta, tRow, u}, {b.f32(), b.f32()},
                  [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                    Expr visible = x[5] <= x[4];
                    Expr p =
                        maskedProbability(visible, x[0], shape.scale, x[2]);
                    return {p, p * (x[1] - x[3])};
                  });
        return {b.dot(pAndDS[1], queryRows, sums[0]),
                b.dot(pAndDS[0], outputGrads, sums[1])};
      });
  b.store(scaled(b, sums[0], shape.scale), dK, {batch, u, keyHead, keyCols});
  b.store(sums[1], dV, {batch, u, keyHead, valueCols});
}

//===----------------------------------------------------------------------===//
// Pattern
//===----------------------------------------------------------------------===//

namespace {
struct ConvertSelectedAttentionBackward
    : KernelPattern<SelectedAttentionBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(SelectedAttentionBackwardOp op,
                                PatternRewriter &rewriter) const override;
};
} // namespace

LogicalResult ConvertSelectedAttentionBackward::matchAndRewrite(
    SelectedAttentionBackwardOp op, PatternRewriter &rewriter) const {
  auto queryGrad = launchSelectedQueryGrad(cache, rewriter, op);
  KeyValueKernel kernel(op);
  const AttentionShape &shape = kernel.shape;
  KernelSpec indexSpec = {
      "index", kernel.name(), {shape.keyHeads, shape.batch, 1}, 0};
  auto index = cache.launch(rewriter, op, indexSpec, op.getIndices(),
                            kernel.getIndexTypes(getContext()),
                            [&](TileBuilder &b, ArrayRef<Value> args) {
                              kernel.buildInverseIndex(b, args);
                            });
  KernelSpec spec = {"dkdv",
                     kernel.name(),
                     {kernel.numKeyTiles(), shape.keyHeads, shape.batch},
                     kernel.flops(2 * shape.keyWidth + 2 * shape.valueWidth)};
  auto keyValueGrad = cache.launch(
      rewriter, op, spec,
      {op.getOutputGrad(), op.getQuery(), op.getKey(), op.getValue(),
       op.getLse(), queryGrad[1], index[0], index[1]},
      {op.getKey().getType(), op.getValue().getType()},
      [&](TileBuilder &b, ArrayRef<Value> args) {
        kernel.buildKeyValueGrad(b, args);
      });
  rewriter.replaceOp(
      op, ValueRange{queryGrad[0], keyValueGrad[0], keyValueGrad[1]});
  return success();
}

void nsa::populateSelectedAttentionBackwardPatterns(RewritePatternSet &patterns,
                                                    KernelCache &cache) {
  patterns.add<ConvertSelectedAttentionBackward>(patterns.getContext(), cache);
}
