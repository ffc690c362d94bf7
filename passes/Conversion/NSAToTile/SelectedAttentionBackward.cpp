//===- SelectedAttentionBackward.cpp - gradients of the selected branch ---===//
//
// The gradient of a key needs the queries that selected its block. An inverse
// index lists them: for each block, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

SmallVector<Type> SelectedAttention::getIndexTypes(MLIRContext *context) const {
  auto i32 = IntegerType::get(context, 32);
  return {RankedTensorType::get({shape.batch, shape.keyHeads, numBlocks() + 2},
                                i32),
          RankedTensorType::get(
              {shape.batch, shape.keyHeads, shape.sequence * count}, i32)};
}

/// A stable counting sort of (query, block) pairs by block. While entries are
/// counted, offsets[j + 2] is the number of queries of block j; while they are
/// placed, offsets[j + 1] is where the next one goes.
void SelectedAttention::sortEntries(TileBuilder &b, Expr keyHead, Expr batch,
                                    Value indices, Value offsets,
                                    Value list) const {
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

/// Lists the queries of one block. Where its list starts is the number of
/// entries of the blocks before, which every program counts for itself.
void SelectedAttention::listQueries(TileBuilder &b, Expr block, Expr keyHead,
                                    Expr batch, Value indices, Value offsets,
                                    Value list) const {
  constexpr int64_t tile = 64;
  double end = static_cast<double>(shape.sequence);
  auto loadIndices = [&](Value t) {
    return b.load(indices, {batch, keyHead, t, b.range(0, count, 1)});
  };
  Value none = b.splat(b.constant(0), tile, count);
  Value before = b.forLoop(
      0, shape.sequence, tile, none,
      [&](Expr t0, ArrayRef<Value> sum) -> SmallVector<Value> {
        Value t = b.range(t0, tile, 0);
        return {
            b.map({sum[0], loadIndices(t), t}, b.i32(), [&](ArrayRef<Expr> x) {
              return x[0] + convert((x[1] >= 0) & (x[1] < block) & (x[2] < end),
                                    b.i32());
            })};
      })[0];
  Value start = b.reduceAdd(b.reduceAdd(before, 1), 0);
  auto place = [&](Expr t0, ArrayRef<Value> next) -> SmallVector<Value> {
    Value t = b.range(t0, tile, 0);
    Value isMember =
        b.reduceMax(b.map({loadIndices(t), t}, b.i32(), [&](ArrayRef<Expr> x) {
          return convert((x[0] == block) & (x[1] < end), b.i32());
        }));
    // Members before each query of the tile.
    Value rank = b.reduceAdd(
        b.map({b.transpose(isMember), b.range(0, tile, 0), b.range(0, tile, 1)},
              b.i32(),
              [](ArrayRef<Expr> x) { return select(x[2] < x[1], x[0], 0); }));
    // Others have a place that does not exist.
    Value places =
        b.map({next[0], rank, isMember}, b.i32(), [](ArrayRef<Expr> x) {
          return select(x[2] != 0, x[0] + x[1], -1);
        });
    b.store(t, list, {batch, keyHead, places});
    return {b.map({next[0], b.reduceAdd(isMember, 0)}, b.i32(),
                  [](ArrayRef<Expr> x) { return x[0] + x[1]; })};
  };
  Value stop = b.forLoop(0, shape.sequence, tile, start, place)[0];
  b.store(start, offsets, {batch, keyHead, b.range(block, 1, 1)});
  Value last =
      b.map({b.range(block + 1, 1, 1)}, b.i32(), [&](ArrayRef<Expr> x) {
        return select(x[0] == static_cast<double>(numBlocks()), x[0], -1);
      });
  b.store(stop, offsets, {batch, keyHead, last});
}

void SelectedAttention::buildInverseIndex(TileBuilder &b, Expr program,
                                          Expr keyHead, Expr batch,
                                          Value indices, Value offsets,
                                          Value list) const {
  if (isWide)
    listQueries(b, program, keyHead, batch, indices, offsets, list);
  else
    sortEntries(b, keyHead, batch, indices, offsets, list);
}

void SelectedAttention::buildKeyValueGrad(TileBuilder &b,
                                          const KeyValueGradArgs &args,
                                          Value offsets, Value list,
                                          int64_t parts) const {
  Expr program = b.programId(0);
  Expr u0 = (parts == 1 ? program : program / parts) * keyTile;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Expr block = u0 / selectBlock, firstHead = keyHead * shape.group();
  int64_t rows = gatherTile * shape.group();
  Value u = b.range(u0, keyTile, 0);
  Value keyCols = b.range(0, shape.keyWidth, 1);
  Value valueCols = b.range(0, shape.valueWidth, 1);

  KeyTile tile;
  tile.keys = b.load(args.k, {batch, u, keyHead, keyCols});
  tile.values = b.load(args.v, {batch, u, keyHead, valueCols});
  tile.key = u;
  tile.isVisible = [](Expr t, Expr u) { return u <= t; };
  Expr begin = b.loadScalar(offsets, {batch, keyHead, block});
  Expr end = b.loadScalar(offsets, {batch, keyHead, block + 1});
  if (parts > 1) {
    Expr perPart =
        (end - begin + (parts * gatherTile - 1)) / (parts * gatherTile);
    begin = begin + program % parts * (perPart * gatherTile);
    end = min(begin + perPart * gatherTile, end);
  }
  // Rows past the end of the list get a query outside of the sequence: they
  // read as 0.
  auto queryOfRow = [&](Expr entry, int axis) {
    Value place =
        b.map({b.range(0, rows, axis)}, b.i32(),
              [&](ArrayRef<Expr> x) { return entry + x[0] / shape.group(); });
    Value query = b.load(list, {batch, keyHead, place});
    return b.map({place, query}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] < end, x[1], shape.sequence);
    });
  };
  auto headOfRow = [&](int axis) {
    return b.map({b.range(0, rows, axis)}, b.i32(), [&](ArrayRef<Expr> x) {
      return firstHead + x[0] % shape.group();
    });
  };
  Value head = headOfRow(0), headRow = headOfRow(1);
  auto addQueries = [&](Expr entry, ArrayRef<Value> sums) {
    Value t = queryOfRow(entry, 0);
    tile.row = queryOfRow(entry, 1);
    Value queries = b.load(args.q, {batch, t, head, keyCols});
    Value outputGrads = b.load(args.outputGrad, {batch, t, head, valueCols});
    RowTerms terms = args.loadTerms(b, batch, headRow, tile.row);
    return addKeyValueGrad(b, queries, outputGrads, tile, terms, shape.scale,
                           sums);
  };
  // Every query selects the first block. The rounding errors of one sum that
  // long would exceed those of the terms: sums of stretches first.
  int64_t stretch = 16 * gatherTile;
  SmallVector<Value> zeros = {b.zeros(keyTile, shape.keyWidth),
                              b.zeros(keyTile, shape.valueWidth)};
  auto sums = b.forLoop(
      begin, end, stretch, zeros,
      [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
        auto own = b.forLoop(first, min(first + stretch, end), gatherTile,
                             zeros, addQueries);
        return {add(b, carried[0], own[0]), add(b, carried[1], own[1])};
      });
  if (parts > 1) {
    Expr part = program % parts;
    b.store(sums[0], args.keyGrad, {part, batch, u, keyHead, keyCols});
    b.store(sums[1], args.valueGrad, {part, batch, u, keyHead, valueCols});
    return;
  }
  b.store(scaled(b, sums[0], shape.scale), args.keyGrad,
          {batch, u, keyHead, keyCols});
  b.store(sums[1], args.valueGrad, {batch, u, keyHead, valueCols});
}

/// Program: (tile of queries, key head, batch). Also writes do . o of every
/// row, which the gradients of keys and values need.
static void buildQueryGrad(const SelectedAttention &attention, TileBuilder &b,
                           ArrayRef<Value> args) {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], o = args[4];
  Value lse = args[5], indices = args[6], dQ = args[7], delta = args[8];
  const AttentionShape &shape = attention.shape;
  GroupProgram program(shape, attention.queryTile, b,
                       attention.queryTileOf(b.programId(0)));
  Value queries = program.loadRows(q, shape.keyWidth);
  Value outputGrads = program.loadRows(dO, shape.valueWidth);
  RowTerms terms;
  terms.shift = finiteOrZero(b, program.loadStatistic(lse));
  terms.delta = rowDot(b, outputGrads, program.loadRows(o, shape.valueWidth));
  program.storeStatistic(terms.delta, delta);

  auto sum = attention.forEachKeyTile(
      program, indices, k, v, {b.zeros(program.numRows(), shape.keyWidth)},
      [&](const KeyTile &tile, ArrayRef<Value> carried) -> SmallVector<Value> {
        return {addQueryGrad(b, queries, outputGrads, tile, terms, shape.scale,
                             carried[0])};
      });
  program.storeRows(scaled(b, sum[0], shape.scale), dQ, shape.keyWidth);
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
  SelectedAttention attention(op, getSchedule());
  const AttentionShape &shape = attention.shape;
  KernelSpec querySpec = {
      "dq",
      attention.name(),
      {attention.numQueryTiles(), shape.keyHeads, shape.batch},
      attention.flops(2 * shape.keyWidth + shape.valueWidth)};
  auto queryGrad =
      cache.launch(rewriter, op, querySpec, op->getOperands(),
                   {op.getQuery().getType(), op.getLse().getType()},
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     buildQueryGrad(attention, b, args);
                   });
  KernelSpec indexSpec = {
      "index",
      attention.name(),
      {shape.keyHeads, shape.batch, attention.numIndexPrograms()},
      0};
  auto index = cache.launch(rewriter, op, indexSpec, op.getIndices(),
                            attention.getIndexTypes(getContext()),
                            [&](TileBuilder &b, ArrayRef<Value> args) {
                              attention.buildInverseIndex(
                                  b, b.programId(2), b.programId(0),
                                  b.programId(1), args[0], args[1], args[2]);
                            });
  KernelSpec spec = {
      "dkdv",
      attention.name(),
      {attention.numKeyTiles(), shape.keyHeads, shape.batch},
      attention.flops(2 * shape.keyWidth + 2 * shape.valueWidth)};
  auto keyValueGrad = cache.launch(
      rewriter, op, spec,
      {op.getOutputGrad(), op.getQuery(), op.getKey(), op.getValue(),
       op.getLse(), queryGrad[1], index[0], index[1]},
      {op.getKey().getType(), op.getValue().getType()},
      [&](TileBuilder &b, ArrayRef<Value> args) {
        attention.buildKeyValueGrad(b,
                                    {args[0], args[1], args[2], args[3],
                                     args[4], args[5], std::nullopt, args[8],
                                     args[9]},
                                    args[6], args[7]);
      });
  rewriter.replaceOp(
      op, ValueRange{queryGrad[0], keyValueGrad[0], keyValueGrad[1]});
  return success();
}

void nsa::populateSelectedAttentionBackwardPatterns(RewritePatternSet &patterns,
                                                    KernelCache &cache) {
  patterns.add<ConvertSelectedAttentionBackward>(patterns.getContext(), cache);
}
