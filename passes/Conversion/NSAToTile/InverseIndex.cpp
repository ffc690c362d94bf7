//===- InverseIndex.cpp - which queries selected a block ------------------===//
//
// For each block the queries that selected it, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all.
//
//===----------------------------------------------------------------------===//

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

/// The sum of all elements, 1x1.
static Value sumOf(TileBuilder &b, Value tile) {
  return b.reduceAdd(b.reduceAdd(tile, /*axis=*/1), /*axis=*/0);
}

/// For each element of a tile of 0 and 1 the sum of those above it: a product
/// with a triangle of ones. Sums are exact.
static Value sumAbove(TileBuilder &b, Value tile, Value triangle) {
  auto type = cast<TileType>(tile.getType());
  Value terms =
      b.map({tile}, b.getBuilder().getBF16Type(), [&](ArrayRef<Expr> x) {
        return select(x[0] != 0, b.constantF32(1), 0);
      });
  Value sums = b.dot(triangle, terms, b.zeros(type.getRows(), type.getCols()));
  return b.map({sums}, b.i32(),
               [&](ArrayRef<Expr> x) { return convert(x[0], b.i32()); });
}

/// For each column of a row the sum of those before it.
static Value sumBefore(TileBuilder &b, Value row) {
  int64_t cols = cast<TileType>(row.getType()).getCols();
  return b.reduceAdd(
      b.map({b.transpose(row), b.range(0, cols, 0), b.range(0, cols, 1)},
            b.i32(),
            [](ArrayRef<Expr> x) { return select(x[1] < x[2], x[0], 0); }),
      /*axis=*/0);
}

static Value addIntegers(TileBuilder &b, Value lhs, Value rhs) {
  return b.map({lhs, rhs}, b.i32(),
               [](ArrayRef<Expr> x) { return x[0] + x[1]; });
}

namespace {
/// Some queries, and what they selected.
struct ListedQueries {
  /// Their numbers, [queries, 1], and entries, [queries, count].
  Value number, entries;
};
} // namespace

/// Whether an entry is a block that the query `t` sees.
static Expr isSeen(const SelectedAttention &attention, Expr entry, Expr t) {
  return (entry >= 0) & (entry * attention.selectBlock <= t) &
         (t < attention.shape.sequence);
}

/// 1 for each of the `blocks` from `block` on that a query selected, else 0:
/// [queries, blocks]. Bits of one number say so at first: entries of a query
/// differ.
static Value findMembers(const SelectedAttention &attention, TileBuilder &b,
                         const ListedQueries &queries, Expr block,
                         int64_t blocks) {
  assert(blocks > 0 && blocks <= 32 && "more blocks than a number has bits");
  Value bits = b.reduceAdd(
      b.map({queries.entries, queries.number}, b.i32(), [&](ArrayRef<Expr> x) {
        Expr place = x[0] - block;
        Expr isOne =
            (place >= 0) & (place < blocks) & isSeen(attention, x[0], x[1]);
        return select(isOne, x[0].constant(1) << (place & place.constant(31)),
                      0);
      }));
  return b.map({bits, b.range(0, blocks, 1)}, b.i32(), [](ArrayRef<Expr> x) {
    return (x[0] >> x[1]) & x[0].constant(1);
  });
}

int64_t SelectedAttention::getIndexBlocks(const AttentionShape &shape,
                                          int64_t selectBlock,
                                          const KernelSchedule &schedule) {
  int64_t blocks = llvm::divideCeil(shape.sequence, selectBlock);
  int64_t each = 8;
  auto programs = [&] {
    return static_cast<int64_t>(llvm::divideCeil(blocks, each)) *
           shape.keyHeads * shape.batch;
  };
  while (each < 32 && programs() > schedule.processors)
    each *= 2;
  return each;
}

/// Lists the queries of the blocks from `block` on. Where the first list starts
/// is the number of entries of the blocks before, which every program counts
/// for itself. Entries of blocks that a query does not see are left out.
void SelectedAttention::listQueries(TileBuilder &b, Expr block, Expr keyHead,
                                    Expr batch, Value indices, Value offsets,
                                    Value list) const {
  auto load = [&](Expr t0, int64_t queries) -> ListedQueries {
    Value t = b.range(t0, queries, 0);
    return {t, b.load(indices, {batch, keyHead, t, b.range(0, count, 1)})};
  };
  auto none = [&](int64_t rows, int64_t cols) {
    return b.splat(b.constant(0), rows, cols);
  };

  // Queries at once: those of a product, and for counting some more.
  int64_t sequence = shape.sequence;
  int64_t rows = getTileSize(sequence, 128, 16);
  int64_t most = getTileSize(sequence, 512, 16);
  auto counts =
      b.forLoop(0, sequence, most, {none(most, count), none(most, indexBlocks)},
                [&](Expr t0, ArrayRef<Value> sums) -> SmallVector<Value> {
                  ListedQueries queries = load(t0, most);
                  Value before =
                      b.map({sums[0], queries.entries, queries.number}, b.i32(),
                            [&](ArrayRef<Expr> x) {
                              Expr isOne =
                                  (x[1] < block) & isSeen(*this, x[1], x[2]);
                              return x[0] + convert(isOne, b.i32());
                            });
                  return {before, addIntegers(b, sums[1],
                                              findMembers(*this, b, queries,
                                                          block, indexBlocks))};
                });
  Value start = sumOf(b, counts[0]);
  Value numbers = b.reduceAdd(counts[1], /*axis=*/0);
  Value starts = addIntegers(b, start, sumBefore(b, numbers));
  b.store(starts, offsets, {batch, keyHead, b.range(block, indexBlocks, 1)});
  // Where a list ends that no other one follows.
  Expr end = block + indexBlocks;
  b.store(addIntegers(b, start, b.reduceAdd(numbers, /*axis=*/1)), offsets,
          {batch, keyHead, b.range(select(end >= numBlocks(), end, -1), 1, 1)});

  Value triangle = b.map({b.range(0, rows, 0), b.range(0, rows, 1)},
                         b.getBuilder().getBF16Type(), [&](ArrayRef<Expr> x) {
                           return select(x[1] < x[0], b.constantF32(1), 0);
                         });
  auto place = [&](Expr t0, ArrayRef<Value> next) -> SmallVector<Value> {
    ListedQueries queries = load(t0, rows);
    Value members = findMembers(*this, b, queries, block, indexBlocks);
    // Others have a place that does not exist.
    auto listed = b.map(
        {members, sumAbove(b, members, triangle), next[0], queries.number},
        {b.i32(), b.i32()}, [](ArrayRef<Expr> x) -> SmallVector<Value> {
          return {select(x[0] != 0, x[1] + x[2], -1), x[3]};
        });
    b.store(listed[1], list, {batch, keyHead, listed[0]});
    return {addIntegers(b, next[0], b.reduceAdd(members, /*axis=*/0))};
  };
  // Queries before the first block do not see it.
  Expr first = block * selectBlock / rows * rows;
  b.forLoop(first, sequence, rows, starts, place);
}

SmallVector<Value> SelectedAttention::launchLists(KernelCache &cache,
                                                  OpBuilder &builder,
                                                  Operation *op,
                                                  Value indices) const {
  int64_t programs = isWide ? llvm::divideCeil(numBlocks(), indexBlocks) : 1;
  KernelSpec spec = {
      "lists", name(), {programs, shape.keyHeads, shape.batch}, 0};
  auto results = llvm::to_vector_of<Value>(cache.launch(
      builder, op, spec, indices, getIndexTypes(builder.getContext()),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        Expr keyHead = b.programId(1), batch = b.programId(2);
        if (isWide)
          listQueries(b, b.programId(0) * indexBlocks, keyHead, batch, args[0],
                      args[1], args[2]);
        else
          sortEntries(b, keyHead, batch, args[0], args[1], args[2]);
      }));
  llvm::append_range(results, launchUnion(cache, builder, op, indices));
  return results;
}
