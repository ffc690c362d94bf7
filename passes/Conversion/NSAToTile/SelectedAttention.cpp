//===- SelectedAttention.cpp - attention within the selected blocks -------===//
//
// A program takes several neighbouring queries of a group and goes through the
// union of their blocks in ascending order: neighbours share most of them. Rows
// that did not select a block are masked.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t SelectedAttention::getKeyTile(int64_t selectBlock) {
  int64_t tile = std::min<int64_t>(selectBlock, 64);
  while (selectBlock % tile != 0)
    --tile;
  return tile;
}

int64_t SelectedAttention::getQueryTile(const AttentionShape &shape,
                                        const KernelSchedule &schedule) {
  int64_t mostRows = std::max<int64_t>(2 * schedule.leastRows, 96);
  int64_t group = shape.group();
  int64_t enough = std::max<int64_t>(
      {16 / group, 8,
       static_cast<int64_t>(llvm::divideCeil(schedule.leastRows, group))});
  int64_t queries = std::min(enough, std::max<int64_t>(mostRows / group, 1));
  return schedule.alignQueries(queries, group, mostRows);
}

int64_t SelectedAttention::getGatherTile(const AttentionShape &shape,
                                         const KernelSchedule &schedule) {
  int64_t queries = std::max<int64_t>(64 / shape.group(), 1);
  return schedule.alignQueriesDown(queries, shape.group(), /*mostRows=*/128);
}

std::string SelectedAttention::selectionName() const {
  return "s" + std::to_string(selectBlock) + "n" + std::to_string(count);
}

int64_t SelectedAttention::flops(int64_t width) const {
  int64_t pairs = 0;
  for (int64_t t = 0; t < shape.sequence; ++t)
    pairs += std::min(t + 1, count * selectBlock);
  return 2 * width * shape.batch * shape.queryHeads * pairs;
}

//===----------------------------------------------------------------------===//
// Key tiles
//===----------------------------------------------------------------------===//

SmallVector<Value>
SelectedAttention::forEachKeyTile(const GroupProgram &program, Value indices,
                                  Value k, Value v, ArrayRef<Value> inits,
                                  KeyTileBody body) const {
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  Value slots = b.range(0, count, 1);
  Value blocks =
      b.load(indices, {range.batch, range.keyHead, range.query, slots});
  // The same, but once for each query instead of once for each row.
  Value lists = b.load(indices, {range.batch, range.keyHead,
                                 b.range(range.first, range.count, 0), slots});
  auto visit = [&](Expr block, Expr u0, ArrayRef<Value> carried) {
    Value u = b.range(u0, keyTile, 0);
    Value selected =
        b.reduceMax(b.map({blocks}, b.i32(), [&](ArrayRef<Expr> x) {
          return convert(x[0] == block, b.i32());
        }));
    KeyTile tile;
    tile.keys = b.load(
        k, {range.batch, u, range.keyHead, b.range(0, shape.keyWidth, 1)});
    tile.values = b.load(
        v, {range.batch, u, range.keyHead, b.range(0, shape.valueWidth, 1)});
    // The last key that a row sees.
    tile.row = b.map({selected, range.query}, b.i32(), [](ArrayRef<Expr> x) {
      return select(x[0] != 0, x[1], -1);
    });
    tile.key = b.range(u0, keyTile, 1);
    tile.isVisible = [](Expr lastKey, Expr key) { return key <= lastKey; };
    return body(tile, carried);
  };
  Expr endKey = min(range.first + range.count, shape.sequence);
  return b.forLoop(
      0, endKey, keyTile, inits, [&](Expr u0, ArrayRef<Value> carried) {
        Expr block = u0 / selectBlock;
        // -1 never matches.
        Value isListed = b.map({lists}, b.i1(),
                               [&](ArrayRef<Expr> x) { return x[0] == block; });
        return b.ifThenElse(
            b.any(isListed), [&] { return visit(block, u0, carried); },
            [&] { return llvm::to_vector(carried); });
      });
}

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

/// Program: (tile of queries, key head, batch).
static void buildForward(const SelectedAttention &attention, TileBuilder &b,
                         ArrayRef<Value> args) {
  Value q = args[0], k = args[1], v = args[2], indices = args[3];
  Value o = args[4], lse = args[5];
  const AttentionShape &shape = attention.shape;
  GroupProgram program(shape, attention.queryTile, b,
                       attention.queryTileOf(b.programId(0)));
  Value queries = program.loadRows(q, shape.keyWidth);
  auto init = OnlineSoftmax::init(b, program.numRows(), shape.valueWidth);
  auto results = attention.forEachKeyTile(
      program, indices, k, v, init.carried(),
      [&](const KeyTile &tile, ArrayRef<Value> carried) {
        return attend(b, queries, tile, shape.scale,
                      OnlineSoftmax::fromCarried(carried))
            .carried();
      });
  auto softmax = OnlineSoftmax::fromCarried(results);
  program.storeRows(softmax.output(b), o, shape.valueWidth);
  program.storeStatistic(softmax.lse(b), lse);
}

namespace {
struct ConvertSelectedAttention : KernelPattern<SelectedAttentionOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(SelectedAttentionOp op,
                                PatternRewriter &rewriter) const override {
    SelectedAttention attention(op, getSchedule());
    const AttentionShape &shape = attention.shape;
    KernelSpec spec = {"",
                       attention.name(),
                       {attention.numQueryTiles(), shape.keyHeads, shape.batch},
                       attention.flops(shape.keyWidth + shape.valueWidth)};
    rewriter.replaceOp(op,
                       cache.launch(rewriter, op, spec, op->getOperands(),
                                    op->getResultTypes(),
                                    [&](TileBuilder &b, ArrayRef<Value> args) {
                                      buildForward(attention, b, args);
                                    }));
    return success();
  }
};
} // namespace

void nsa::populateSelectedAttentionPatterns(RewritePatternSet &patterns,
                                            KernelCache &cache) {
  patterns.add<ConvertSelectedAttention>(patterns.getContext(), cache);
}
