//===- InverseIndex.cpp - which queries selected a block ------------------===//
//
// For each block the queries that selected it, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"
#include "passes/Conversion/NSAToTile/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

SmallVector<Type> SelectedAttention::getIndexTypes(MLIRContext *context) const {
  auto i32 = IntegerType::get(context, 32);
  SmallVector<int64_t> offsets = {shape.batch, shape.keyHeads};
  if (isWide)
    llvm::append_values(offsets, gradParts + 1, numBlocks());
  else
    offsets.push_back(numBlocks() + 2);
  return {RankedTensorType::get(offsets, i32),
          RankedTensorType::get(
              {shape.batch, shape.keyHeads, shape.sequence * count}, i32)};
}

std::pair<Expr, Expr> SelectedAttention::getListPart(TileBuilder &b,
                                                     Value offsets, Expr batch,
                                                     Expr keyHead, Expr block,
                                                     Expr part,
                                                     int64_t parts) const {
  if (!isWide)
    return {b.loadScalar(offsets, {batch, keyHead, block}),
            b.loadScalar(offsets, {batch, keyHead, block + 1})};
  int64_t each = gradParts / parts;
  return {b.loadScalar(offsets, {batch, keyHead, part * each, block}),
          b.loadScalar(offsets, {batch, keyHead, part * each + each, block})};
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

namespace {
/// A program that lists the queries of the blocks from `block` on. Entries of
/// blocks that a query does not see are left out.
class ListProgram {
public:
  ListProgram(const SelectedAttention &attention, TileBuilder &b, Expr block,
              ArrayRef<Value> args)
      : attention(attention), b(b), block(block), keyHead(b.programId(1)),
        batch(b.programId(2)), indices(args[0]), offsets(args[1]),
        list(args[2]), sequence(attention.shape.sequence),
        blocks(attention.indexBlocks) {}

  void build();

private:
  /// The entries of queries, which are loaded one tile ahead.
  Value loadEntries(Expr t0, int64_t queries);
  SelectionLists listsOf(Value entries, Expr t0, int64_t queries);
  Value countStarts();
  void storeOffsets(Operand firstPart, Operand endPart, Value places);
  Value placeQueries(Value starts, Expr first, int64_t rows);

  const SelectedAttention &attention;
  TileBuilder &b;
  Expr block, keyHead, batch;
  Value indices, offsets, list;
  int64_t sequence, blocks;
};
} // namespace

Value ListProgram::loadEntries(Expr t0, int64_t queries) {
  return b.load(indices, {batch, keyHead, b.range(t0, queries, 0),
                          b.range(0, attention.count, 1)});
}

SelectionLists ListProgram::listsOf(Value entries, Expr t0, int64_t queries) {
  return {attention, b.range(t0, queries, 0), entries};
}

/// Where the lists start, [1, blocks]: behind the entries of the blocks before,
/// which every program counts for itself.
Value ListProgram::countStarts() {
  int64_t rows = getTileSize(sequence, 512, 16);
  Value none = b.splat(b.constant(0), rows, attention.count);
  auto count = [&](Expr t0, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value next = loadEntries(t0 + rows, rows);
    SelectionLists queries = listsOf(carried[2], t0, rows);
    Value before = b.map({carried[0], queries.entries, queries.number}, b.i32(),
                         [&](ArrayRef<Expr> x) {
                           Expr isOne =
                               (x[1] < block) & queries.isSeen(x[1], x[2]);
                           return x[0] + convert(isOne, b.i32());
                         });
    Value members = queries.findMembers(b, block, blocks);
    return {before, add(b, carried[1], members), next};
  };
  auto counts = b.forLoop(0, sequence, rows,
                          {none, b.splat(b.constant(0), rows, blocks),
                           loadEntries(b.expr(b.constant(0)), rows)},
                          count);
  return add(b, sumOf(b, counts[0]),
             sumBefore(b, b.reduceAdd(counts[1], /*axis=*/0)));
}

/// Writes where these parts of the lists begin.
void ListProgram::storeOffsets(Operand firstPart, Operand endPart,
                               Value places) {
  b.forLoop(firstPart, endPart, 1, {}, [&](Expr part, ArrayRef<Value>) {
    b.store(places, offsets, {batch, keyHead, part, b.range(block, blocks, 1)});
    return SmallVector<Value>();
  });
}

/// Fills the lists with the queries from `first` on, and returns their ends.
Value ListProgram::placeQueries(Value starts, Expr first, int64_t rows) {
  Value triangle = b.map({b.range(0, rows, 0), b.range(0, rows, 1)},
                         b.getBuilder().getBF16Type(), [&](ArrayRef<Expr> x) {
                           return select(x[1] < x[0], b.constantF32(1), 0);
                         });
  auto place = [&](Expr t0, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value next = loadEntries(t0 + rows, rows);
    Expr part = t0 / attention.partQueries();
    b.ifThen(t0 % attention.partQueries() == 0,
             [&] { storeOffsets(part, part + 1, carried[0]); });
    SelectionLists queries = listsOf(carried[1], t0, rows);
    Value members = queries.findMembers(b, block, blocks);
    // Others have a place that does not exist.
    auto listed = b.map(
        {members, sumAbove(b, members, triangle), carried[0], queries.number},
        {b.i32(), b.i32()}, [](ArrayRef<Expr> x) -> SmallVector<Value> {
          return {select(x[0] != 0, x[1] + x[2], -1), x[3]};
        });
    b.store(listed[1], list, {batch, keyHead, listed[0]});
    return {add(b, carried[0], b.reduceAdd(members, /*axis=*/0)), next};
  };
  return b.forLoop(first, sequence, rows, {starts, loadEntries(first, rows)},
                   place)[0];
}

void ListProgram::build() {
  Value starts = countStarts();
  // Queries before the first block do not see it.
  int64_t rows = getTileSize(sequence, SelectedAttention::indexTile, 16);
  int64_t partQueries = attention.partQueries();
  Expr first = block * attention.selectBlock / rows * rows;
  storeOffsets(0, first / partQueries + 1, starts);
  Value ends = placeQueries(starts, first, rows);
  int64_t parts = llvm::divideCeil(sequence, partQueries);
  storeOffsets(parts, attention.gradParts + 1, ends);
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
        if (isWide)
          ListProgram(*this, b, b.programId(0) * indexBlocks, args).build();
        else
          sortEntries(b, b.programId(1), b.programId(2), args[0], args[1],
                      args[2]);
      }));
  llvm::append_range(results, launchUnion(cache, builder, op, indices));
  return results;
}
