//===- ReductionPatterns.cpp - reductions ---------------------------------===//
//
// A thread combines its own elements, then threads of a warp exchange theirs by
// shuffles, then warps through shared memory. The order depends on shapes only.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/Combine.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"
#include "passes/Conversion/TileToNVVM/ScratchTiles.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static constexpr int64_t kWarp = 32;

/// Combines neighbours, then neighbouring results, and so on.
static Value combineAll(ThreadBuilder &b, ReduceKind kind,
                        SmallVector<Value> values) {
  while (values.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combine(b, kind, values[i], values[i + 1]));
    if (values.size() % 2)
      next.push_back(values.back());
    values = std::move(next);
  }
  return values.front();
}

/// Combines the values of lanes whose numbers differ in the bits from `first`
/// to `end`, which are powers of two.
static Value combineAcross(ThreadBuilder &b, ReduceKind kind, Value value,
                           int64_t first, int64_t end) {
  for (int64_t mask = end / 2; mask >= first; mask /= 2)
    value = combine(b, kind, value, b.shuffle(value, mask));
  return value;
}

/// Combines column `col` of the first `count` rows of `tile`.
static Value combineShared(ThreadBuilder &b, ReduceKind kind,
                           const ScratchTile &tile, int64_t count, Value col) {
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(readScratch(b, tile, b.i32(i), col));
  return combineAll(b, kind, values);
}

/// All threads of a thread group get what its rows are combined to.
static SmallVector<Value> reduceRows(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  BlockedLayout from = blockedLayoutOf(op.getInput()),
                to = blockedLayoutOf(op.getResult());
  SmallVector<Value> values = in.registersOf(op.getInput()), results;
  Type element = values.front().getType();
  for (int64_t r = 0; r < from.ownRows(); ++r) {
    SmallVector<Value> own;
    for (int64_t k = r * from.perRow(); k < (r + 1) * from.perRow(); ++k) {
      Value exists = hasCol(b, from, k);
      own.push_back(exists ? b.select(exists, values[k],
                                      neutralElement(b, op.getKind(), element))
                           : values[k]);
    }
    Value value = combineAll(b, op.getKind(), own);
    if (from.cols > 1)
      value = combineAcross(b, op.getKind(), value, 1,
                            std::min(from.threadsPerRow, kWarp));
    results.push_back(value);
  }
  if (from.cols > 1 && from.threadsPerRow > kWarp) {
    // There is one row, of several warps.
    int64_t count = b.getThreads() / kWarp;
    Scratch scratch(in);
    ScratchTile shared = scratch.allocate(count, 1, element);
    b.ifThen(b.less(b.rem(b.threadId(), kWarp), 1), [&] {
      writeScratch(b, results[0], shared, b.div(b.threadId(), kWarp), b.i32(0));
    });
    scratch.endStores();
    results = {combineShared(b, op.getKind(), shared, count, b.i32(0))};
  }
  if (from.rows == 1 || from.threadsPerRow == to.threadsPerRow)
    return results;
  Scratch scratch(in);
  ScratchTile shared = scratch.allocate(1, from.rows, element);
  Value leads = from.threadsPerRow == 1
                    ? Value()
                    : b.less(b.rem(b.threadId(), from.threadsPerRow), 1);
  for (auto [r, value] : llvm::enumerate(results)) {
    int64_t k = static_cast<int64_t>(r) * from.perRow();
    b.ifThen(b.both(leads, hasRow(b, from, k)), [&, value = value] {
      writeScratch(b, value, shared, b.i32(0), placeOf(b, from, k).first);
    });
  }
  scratch.endStores();
  SmallVector<Value> registers;
  for (int64_t k = 0; k < to.registers(); ++k)
    registers.push_back(
        readScratch(b, shared, b.i32(0), placeInside(b, to, k).first));
  return registers;
}

/// Every thread group gets what the columns are combined to.
static SmallVector<Value> reduceCols(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  BlockedLayout from = blockedLayoutOf(op.getInput()),
                to = blockedLayoutOf(op.getResult());
  SmallVector<Value> values = in.registersOf(op.getInput()), results;
  if (from.rows == 1)
    return values;
  Type element = values.front().getType();
  for (int64_t c = 0; c < from.perRow(); ++c) {
    SmallVector<Value> own;
    for (int64_t k = c; k < from.registers(); k += from.perRow()) {
      Value exists = hasRow(b, from, k);
      own.push_back(exists ? b.select(exists, values[k],
                                      neutralElement(b, op.getKind(), element))
                           : values[k]);
    }
    results.push_back(
        combineAcross(b, op.getKind(), combineAll(b, op.getKind(), own),
                      from.threadsPerRow, std::min(b.getThreads(), kWarp)));
  }
  int64_t count = llvm::divideCeil(b.getThreads(), kWarp);
  bool isSame = from.cols == 1 || (to.threadsPerRow == from.threadsPerRow &&
                                   to.width == from.width);
  if (count == 1 && isSame)
    return results;
  Scratch scratch(in);
  ScratchTile shared = scratch.allocate(count, from.cols, element);
  Value leads = b.less(b.rem(b.threadId(), kWarp),
                       from.cols == 1 ? 1 : from.threadsPerRow);
  for (auto [c, value] : llvm::enumerate(results)) {
    auto k = static_cast<int64_t>(c);
    b.ifThen(b.both(leads, hasCol(b, from, k)), [&, value = value] {
      writeScratch(b, value, shared, b.div(b.threadId(), kWarp),
                   placeOf(b, from, k).second);
    });
  }
  scratch.endStores();
  SmallVector<Value> registers;
  for (int64_t k = 0; k < to.registers(); ++k)
    registers.push_back(combineShared(b, op.getKind(), shared, count,
                                      placeInside(b, to, k).second));
  return registers;
}

static Results lowerReduce(ReduceOp op, TileReader &in) {
  if (hasMmaLayout(op.getType()))
    return lowerMmaReduce(op, in);
  return {op.getAxis() == 1 ? reduceRows(op, in) : reduceCols(op, in)};
}

void nsa::cuda::populateReductionPatterns(RewritePatternSet &patterns,
                                          const TypeConverter &types,
                                          TileBounds &bounds) {
  patterns.add<TilePattern<ReduceOp, lowerReduce>>(types, patterns.getContext(),
                                                   bounds);
}
