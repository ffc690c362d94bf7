//===- DenseAttention.cpp - compressed and window attention ---------------===//
//
// One kernel builder serves both branches: they differ in visibility alone.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/AttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

static Visibility getVisibility(WindowAttentionOp op) {
  return {1, 1, static_cast<int64_t>(op.getWindow())};
}
static Visibility getVisibility(WindowAttentionBackwardOp op) {
  return {1, 1, static_cast<int64_t>(op.getWindow())};
}
template <typename OpT>
static Visibility getVisibility(OpT op) {
  return {static_cast<int64_t>(op.getStride()),
          static_cast<int64_t>(op.getBlock()), std::nullopt};
}

namespace {
/// The kernels of one op: what they know at compile time.
struct DenseAttention {
  template <typename OpT>
  explicit DenseAttention(OpT op)
      : shape(op.getQuery(), op.getKey(), op.getValue(),
              op.getScaleOrDefault()),
        visibility(getVisibility(op)),
        queryTile(getTileSize(shape.sequence, isNarrow() ? 32 : 64)),
        keyTile(getTileSize(shape.keys, maxKeyTile())) {}

  /// Whether large tiles would be masked for the most part.
  bool isNarrow() const { return visibility.window.value_or(256) <= 128; }
  /// Tokens of a query tile see the same compressed keys but for a few, so that
  /// small tiles of them waste less at the edge; with many keys that matters
  /// less than the work per tile.
  int64_t maxKeyTile() const {
    if (visibility.window)
      return isNarrow() ? 32 : 64;
    return shape.keys <= 256 ? 16 : shape.keys <= 1024 ? 32 : 64;
  }

  int64_t numQueryTiles() const {
    return llvm::divideCeil(shape.sequence, queryTile);
  }
  /// At least one, so that a launch without keys is still a launch.
  int64_t numKeyTiles() const {
    return std::max<int64_t>(llvm::divideCeil(shape.keys, keyTile), 1);
  }
  /// Floating-point operations of `width` multiply-adds per visible pair.
  int64_t flops(int64_t width) const {
    return 2 * width * shape.batch * shape.queryHeads *
           visibility.countPairs(shape.sequence, shape.keys);
  }
  std::string name() const;

  void buildForward(TileBuilder &b, ArrayRef<Value> args) const;
  void buildQueryGrad(TileBuilder &b, ArrayRef<Value> args) const;
  void buildKeyValueGrad(TileBuilder &b, ArrayRef<Value> args) const;

  /// Key tiles that some query of the tile at `t0` sees.
  std::pair<Expr, Expr> visibleKeys(Expr t0) const {
    Expr last = min(t0 + (queryTile - 1), shape.sequence - 1);
    return {visibility.firstKey(t0), visibility.endKey(last)};
  }
  /// Queries that see some key of the tile at `i0`.
  std::pair<Expr, Expr> visibleQueries(Expr i0) const {
    Expr last = min(i0 + (keyTile - 1), shape.keys - 1);
    return {visibility.firstQuery(i0),
            visibility.endQuery(last, shape.sequence)};
  }

  AttentionShape shape;
  Visibility visibility;
  int64_t queryTile, keyTile;
};
} // namespace

std::string DenseAttention::name() const {
  if (visibility.window)
    return shape.name() + "_w" + std::to_string(*visibility.window);
  return shape.name() + "_l" + std::to_string(visibility.block) + "d" +
         std::to_string(visibility.stride);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Program: (query tile, query head, batch).
void DenseAttention::buildForward(TileBuilder &b, ArrayRef<Value> args) const {
  Value q = args[0], k = args[1], v = args[2], o = args[3], lse = args[4];
  Expr t0 = b.programId(0) * queryTile;
  Expr head = b.programId(1), batch = b.programId(2);
  Expr keyHead = head / shape.group();
  Value t = b.range(t0, queryTile, 0);
  Value keyCols = b.range(0, shape.keyWidth, 1);
  Value valueCols = b.range(0, shape.valueWidth, 1);

  Value queries = b.load(q, {batch, t, head, keyCols});
  auto [firstKey, endKey] = visibleKeys(t0);
  auto init = OnlineSoftmax::init(b, queryTile, shape.valueWidth);
  auto results = b.forLoop(
      firstKey, endKey, keyTile, init.carried(),
      [&](Expr i0, ArrayRef<Value> carried) {
        Value i = b.range(i0, keyTile, 0);
        Value keys = b.load(k, {batch, i, keyHead, keyCols});
        Value values = b.load(v, {batch, i, keyHead, valueCols});
        Value products = b.dot(queries, keys, b.zeros(queryTile, keyTile),
                               /*transposeB=*/true);
        Value scores = b.map({products, t, b.range(i0, keyTile, 1)}, b.f32(),
                             [&](ArrayRef<Expr> x) {
                               return select(visibility.isVisible(x[1], x[2]),
                                             x[0] * shape.scale, -INFINITY);
                             });
        return OnlineSoftmax::fromCarried(carried)
            .update(b, scores, values)
            .carried();
      });
  auto softmax = OnlineSoftmax::fromCarried(results);
  b.store(softmax.output(b), o, {batch, t, head, valueCols});
  b.store(softmax.lse(b), lse, {batch, head, t});
}

/// Program: (query tile, query head, batch). Also writes do . o of every row,
/// which the gradients of keys and values need.
void DenseAttention::buildQueryGrad(TileBuilder &b,
                                    ArrayRef<Value> args) const {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], o = args[4];
  Value lse = args[5], dQ = args[6], delta = args[7];
  Expr t0 = b.programId(0) * queryTile;
  Expr head = b.programId(1), batch = b.programId(2);
  Expr keyHead = head / shape.group();
  Value t = b.range(t0, queryTile, 0);
  Value keyCols = b.range(0, shape.keyWidth, 1);
  Value valueCols = b.range(0, shape.valueWidth, 1);

  Value queries = b.load(q, {batch, t, head, keyCols});
  Value outputGrads = b.load(dO, {batch, t, head, valueCols});
  Value shift = finiteOrZero(b, b.load(lse, {batch, head, t}));
  Value rowDelta =
      rowDot(b, outputGrads, b.load(o, {batch, t, head, valueCols}));
  b.store(rowDelta, delta, {batch, head, t});

  auto [firstKey, endKey] = visibleKeys(t0);
  Value sum = b.forLoop(
      firstKey, endKey, keyTile, {b.zeros(queryTile, shape.keyWidth)},
      [&](Expr i0, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value i = b.range(i0, keyTile, 0);
        Value keys = b.load(k, {batch, i, keyHead, keyCols});
        Value values = b.load(v, {batch, i, keyHead, valueCols});
        Value zeros = b.zeros(queryTile, keyTile);
        Value products = b.dot(queries, keys, zeros, /*transposeB=*/true);
        Value dP = b.dot(outputGrads, values, zeros, /*transposeB=*/true);
        Value dS =
            b.map({products, dP, shift, rowDelta, t, b.range(i0, keyTile, 1)},
                  b.f32(), [&](ArrayRef<Expr> x) {
                    Expr visible = visibility.isVisible(x[4], x[5]);
                    Expr p =
                        maskedProbability(visible, x[0], shape.scale, x[2]);
                    return p * (x[1] - x[3]);
                  });
        return {b.dot(dS, keys, carried[0])};
      })[0];
  b.store(scaled(b, sum, shape.scale), dQ, {batch, t, head, keyCols});
}

/// Program: (key tile, key head, batch). Heads of the group and query tiles are
/// added in ascending order.
void DenseAttention::buildKeyValueGrad(TileBuilder &b,
                                       ArrayRef<Value> args) const {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], lse = args[4];
  Value delta = args[5], dK = args[6], dV = args[7];
  Expr i0 = b.programId(0) * keyTile;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value i = b.range(i0, keyTile, 0);
  Value keyCols = b.range(0, shape.keyWidth, 1);
  Value valueCols = b.range(0, shape.valueWidth, 1);

  Value keys = b.load(k, {batch, i, keyHead, keyCols});
  Value values = b.load(v, {batch, i, keyHead, valueCols});
  auto [firstQuery, endQuery] = visibleQueries(i0);
  Expr firstHead = keyHead * shape.group();
  auto addQueries = [&](Expr head, Expr t0, ArrayRef<Value> sums) {
    Value t = b.range(t0, queryTile, 0), tRow = b.range(t0, queryTile, 1);
    Value queries = b.load(q, {batch, t, head, keyCols});
    Value outputGrads = b.load(dO, {batch, t, head, valueCols});
    Value shift = finiteOrZero(b, b.load(lse, {batch, head, tRow}));
    Value zeros = b.zeros(keyTile, queryTile);
    Value products = b.dot(keys, queries, zeros, /*transposeB=*/true);
    Value dP = b.dot(values, outputGrads, zeros, /*transposeB=*/true);
    auto pAndDS = b.map(
        {products, dP, shift, b.load(delta, {batch, head, tRow}), tRow, i},
        {b.f32(), b.f32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
          Expr visible = visibility.isVisible(x[4], x[5]);
          Expr p = maskedProbability(visible, x[0], shape.scale, x[2]);
          return {p, p * (x[1] - x[3])};
        });
    return SmallVector<Value>{b.dot(pAndDS[1], queries, sums[0]),
                              b.dot(pAndDS[0], outputGrads, sums[1])};
  };
  auto sums = b.forLoop(
      firstHead, firstHead + shape.group(), 1,
      {b.zeros(keyTile, shape.keyWidth), b.zeros(keyTile, shape.valueWidth)},
      [&](Expr head, ArrayRef<Value> carried) {
        return b.forLoop(firstQuery, endQuery, queryTile, carried,
                         [&](Expr t0, ArrayRef<Value> sums) {
                           return addQueries(head, t0, sums);
                         });
      });
  b.store(scaled(b, sums[0], shape.scale), dK, {batch, i, keyHead, keyCols});
  b.store(sums[1], dV, {batch, i, keyHead, valueCols});
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
template <typename OpT>
struct ConvertForward : KernelPattern<OpT> {
  using KernelPattern<OpT>::KernelPattern;
  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    DenseAttention attention(op);
    const AttentionShape &shape = attention.shape;
    KernelSpec spec = {
        "",
        attention.name(),
        {attention.numQueryTiles(), shape.queryHeads, shape.batch},
        attention.flops(shape.keyWidth + shape.valueWidth)};
    rewriter.replaceOp(
        op, this->cache.launch(rewriter, op, spec, op->getOperands(),
                               op->getResultTypes(),
                               [&](TileBuilder &b, ArrayRef<Value> args) {
                                 attention.buildForward(b, args);
                               }));
    return success();
  }
};

template <typename OpT>
struct ConvertBackward : KernelPattern<OpT> {
  using KernelPattern<OpT>::KernelPattern;
  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    DenseAttention attention(op);
    const AttentionShape &shape = attention.shape;
    KernelSpec query = {
        "dq",
        attention.name(),
        {attention.numQueryTiles(), shape.queryHeads, shape.batch},
        attention.flops(2 * shape.keyWidth + shape.valueWidth)};
    auto queryResults =
        this->cache.launch(rewriter, op, query, op->getOperands(),
                           {op.getQuery().getType(), op.getLse().getType()},
                           [&](TileBuilder &b, ArrayRef<Value> args) {
                             attention.buildQueryGrad(b, args);
                           });
    KernelSpec keyValue = {
        "dkdv",
        attention.name(),
        {attention.numKeyTiles(), shape.keyHeads, shape.batch},
        attention.flops(2 * shape.keyWidth + 2 * shape.valueWidth)};
    auto keyValueResults =
        this->cache.launch(rewriter, op, keyValue,
                           {op.getOutputGrad(), op.getQuery(), op.getKey(),
                            op.getValue(), op.getLse(), queryResults[1]},
                           {op.getKey().getType(), op.getValue().getType()},
                           [&](TileBuilder &b, ArrayRef<Value> args) {
                             attention.buildKeyValueGrad(b, args);
                           });
    rewriter.replaceOp(op, ValueRange{queryResults[0], keyValueResults[0],
                                      keyValueResults[1]});
    return success();
  }
};
} // namespace

void nsa::populateDenseAttentionPatterns(RewritePatternSet &patterns,
                                         KernelCache &cache) {
  patterns.add<ConvertForward<CompressedAttentionOp>,
               ConvertForward<WindowAttentionOp>,
               ConvertBackward<CompressedAttentionBackwardOp>,
               ConvertBackward<WindowAttentionBackwardOp>>(
      patterns.getContext(), cache);
}
