//===- InverseIndex.cpp - which queries selected a block ------------------===//
//
// For each block the queries that selected it, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

#include <numeric>

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

/// The sum of all elements, 1x1.
static Value sumOf(TileBuilder &b, Value tile) {
  return b.reduceAdd(b.reduceAdd(tile, /*axis=*/1), /*axis=*/0);
}

/// Programs list the queries of two blocks at once: numbers for the second one
/// are multiples of this. Sums of both are exact in fp32.
static constexpr int64_t kSecond = 1 << 12;

/// For each element of a tile of 0, 1 and kSecond the sum of those before it,
/// in the order of rows. Sums within rows are a product with a triangle of
/// ones, on tensor cores if the shape is theirs.
static Value sumBefore(TileBuilder &b, Value tile) {
  auto type = cast<TileType>(tile.getType());
  int64_t rows = type.getRows(), cols = type.getCols();
  Type element = cols % 16 == 0 ? b.getBuilder().getBF16Type() : b.f32();
  Value triangle = b.map({b.range(0, cols, 0), b.range(0, cols, 1)}, element,
                         [&](ArrayRef<Expr> x) {
                           return select(x[0] < x[1], b.constantF32(1), 0);
                         });
  Value terms = b.map({tile}, element, [&](ArrayRef<Expr> x) {
    Expr ofFirst = select(x[0] == 1, b.constantF32(1), 0);
    return select(x[0] == kSecond, b.constantF32(kSecond), ofFirst);
  });
  Value inRow = b.dot(terms, triangle, b.zeros(rows, cols));
  Value sums = b.transpose(b.reduceAdd(tile, /*axis=*/1));
  Value ofRows = b.reduceAdd(
      b.map({sums, b.range(0, rows, 0), b.range(0, rows, 1)}, b.i32(),
            [](ArrayRef<Expr> x) { return select(x[2] < x[1], x[0], 0); }));
  return b.map({inRow, ofRows}, b.i32(),
               [&](ArrayRef<Expr> x) { return convert(x[0], b.i32()) + x[1]; });
}

/// Lists the queries of `block` and of the next one. Where a list starts is the
/// number of entries of the blocks before, which every program counts for
/// itself. Entries of blocks that a query does not see are left out.
void SelectedAttention::listQueries(TileBuilder &b, Expr block, Expr keyHead,
                                    Expr batch, Value indices, Value offsets,
                                    Value list) const {
  // The entries of all queries one after the other, in rows for tiles of fewer
  // than kSecond.
  int64_t entries = shape.sequence * count;
  int64_t cols = std::gcd<int64_t>(entries, 32), lines = entries / cols;
  int64_t rows = std::min<int64_t>(lines, 64);
  Value flat = b.view(indices, {shape.batch, shape.keyHeads, lines, cols});
  auto loadEntries = [&](Expr line) {
    return b.load(
        flat, {batch, keyHead, b.range(line, rows, 0), b.range(0, cols, 1)});
  };
  auto queriesOf = [&](Expr line) {
    return b.map({b.range(line, rows, 0), b.range(0, cols, 1)}, b.i32(),
                 [&](ArrayRef<Expr> x) {
                   return (x[0] * static_cast<double>(cols) + x[1]) /
                          static_cast<double>(count);
                 });
  };
  auto isSeen = [&](Expr entry, Expr t) {
    return (entry * static_cast<double>(selectBlock) <= t) &
           (t < static_cast<double>(shape.sequence));
  };
  Value none = b.splat(b.constant(0), rows, cols);
  auto counts = b.forLoop(
      0, lines, rows, {none, none},
      [&](Expr line, ArrayRef<Value> sum) -> SmallVector<Value> {
        return b.map({sum[0], sum[1], loadEntries(line), queriesOf(line)},
                     {b.i32(), b.i32()},
                     [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                       Expr seen = isSeen(x[2], x[3]);
                       Expr before = (x[2] >= 0) & (x[2] < block) & seen;
                       Expr own = (x[2] == block) & seen;
                       return {x[0] + convert(before, b.i32()),
                               x[1] + convert(own, b.i32())};
                     });
      });
  Value start = sumOf(b, counts[0]);
  Value second = b.map({start, sumOf(b, counts[1])}, b.i32(),
                       [](ArrayRef<Expr> x) { return x[0] + x[1]; });
  auto place = [&](Expr line, ArrayRef<Value> next) -> SmallVector<Value> {
    Value t = queriesOf(line);
    Value members =
        b.map({loadEntries(line), t}, b.i32(), [&](ArrayRef<Expr> x) {
          Expr number = select(x[0] == block + 1, x[0].constant(kSecond),
                               convert(x[0] == block, b.i32()));
          return select(isSeen(x[0], x[1]), number, 0);
        });
    // Others have a place that does not exist.
    Value places =
        b.map({next[0], next[1], sumBefore(b, members), members}, b.i32(),
              [](ArrayRef<Expr> x) {
                constexpr double second = kSecond;
                Expr ofFirst = select(x[3] == 1, x[0] + x[2] % second, -1);
                return select(x[3] == second, x[1] + x[2] / second, ofFirst);
              });
    b.store(t, list, {batch, keyHead, places});
    return b.map({next[0], next[1], sumOf(b, members)}, {b.i32(), b.i32()},
                 [](ArrayRef<Expr> x) -> SmallVector<Value> {
                   constexpr double second = kSecond;
                   return {x[0] + x[2] % second, x[1] + x[2] / second};
                 });
  };
  // Queries before the block do not see it.
  Expr first = block * static_cast<double>(selectBlock * count) /
               static_cast<double>(cols);
  auto ends = b.forLoop(first, lines, rows, {start, second}, place);
  auto storeOffset = [&](Value offset, Expr number) {
    b.store(offset, offsets, {batch, keyHead, b.range(number, 1, 1)});
  };
  storeOffset(start, block);
  storeOffset(second, block + 1);
  // Where a list ends that no other one follows.
  Expr end = block + 2;
  storeOffset(ends[1],
              select(end >= static_cast<double>(numBlocks()), end, -1));
}

void SelectedAttention::buildInverseIndex(TileBuilder &b, Expr program,
                                          Expr keyHead, Expr batch,
                                          Value indices, Value offsets,
                                          Value list) const {
  if (isWide)
    listQueries(b, program * 2, keyHead, batch, indices, offsets, list);
  else
    sortEntries(b, keyHead, batch, indices, offsets, list);
}
