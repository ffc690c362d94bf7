//===- SelectionUnion.cpp - which blocks some query of a tile selected ----===//
//
// A program that iterates over the blocks of its queries would otherwise ask
// for every block of the sequence whether it is one of them. The index of a
// block in the union is the number of smaller ones. Where there are few blocks,
// members are marked and counted; where lists are short, each entry is compared
// with all others and counted where it stands first. Blocks of packed
// sequences, which may lie in two ranges of tokens, are always marked.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// For blocks of packed sequences that do not begin with a range of tokens, the
/// next range.
static Value getNextRanges(TileBuilder &b, Value entries, Value begin,
                           int64_t selectBlock) {
  return b.map({entries, begin}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr isNext = (x[0] >= 0) & (x[1] % selectBlock > 0);
    return select(isNext, x[0] + 1, -1);
  });
}

void SelectedAttention::markUnion(TileBuilder &b, Expr tile, Value indices,
                                  Value start, Value at,
                                  const SelectionUnion &selection) const {
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value t = b.range(tile * queryTile, queryTile, 0);
  auto place = QueryPlace::load(b, shape, at, batch);
  SelectionLists lists(
      *this, t, b.load(indices, {batch, keyHead, t, b.range(0, count, 1)}),
      place);
  std::optional<SelectionLists> next;
  if (start)
    next.emplace(*this, t,
                 getNextRanges(b, lists.entries,
                               b.load(start, {place.batch, place.of(b, t)}),
                               selectBlock),
                 place);
  constexpr int64_t most = 32;
  int64_t some =
      shape.tokens.isConstant() ? std::min(int64_t(numBlocks()), most) : most;
  auto mark = [&](Expr block, ArrayRef<Value> number) -> SmallVector<Value> {
    Value isMember = b.reduceMax(lists.findMembers(b, block, some), /*axis=*/0);
    if (next)
      isMember =
          b.map({isMember,
                 b.reduceMax(next->findMembers(b, block, some), /*axis=*/0)},
                b.i32(), [](ArrayRef<Expr> x) { return max(x[0], x[1]); });
    // Others have an index out of bounds.
    Value places = b.map(
        {isMember, sumBefore(b, isMember), number[0]}, b.i32(),
        [](ArrayRef<Expr> x) { return select(x[0] != 0, x[1] + x[2], -1); });
    b.store(b.range(block, some, 1), selection.blocks,
            {batch, keyHead, tile, places});
    return {add(b, number[0], b.reduceAdd(isMember))};
  };
  Value number =
      b.forLoop(0, numBlocks(), some, b.splat(b.constant(0), 1, 1), mark)[0];
  b.store(number, selection.counts, {batch, keyHead, b.range(tile, 1, 1)});
}

void SelectedAttention::compareUnion(TileBuilder &b, Expr tile, Value indices,
                                     const SelectionUnion &selection) const {
  Expr keyHead = b.programId(1), batch = b.programId(2);
  int64_t entries = queryTile * count;
  // Entries that all are compared with at once.
  int64_t some = std::clamp<int64_t>(8192 / entries, 1, 64);
  auto loadEntries = [&](Value number) {
    auto place = b.map({number}, {b.i32(), b.i32()},
                       [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                         return {tile * queryTile + x[0] / count, x[0] % count};
                       });
    Value block = b.load(indices, {batch, keyHead, place[0], place[1]});
    return b.map({block, number, place[0]}, b.i32(), [&](ArrayRef<Expr> x) {
      // Other blocks than these have no keys.
      Expr exists = (x[0] < numBlocks()) &
                    (x[1] < static_cast<double>(entries)) &
                    (x[2] < shape.sequence);
      return select(exists, x[0], -1);
    });
  };
  Value number = b.range(0, entries, 1);
  Value block = loadEntries(number);
  auto isSameBefore = [](Expr x, Expr y, Expr before, Expr number) {
    return (x == y) & (before < number);
  };
  // For each entry the number of smaller blocks, and `repeated` times how often
  // its own stands before it.
  constexpr double repeated = 1 << 16;
  auto compare = [&](Expr first, ArrayRef<Value> sum) -> SmallVector<Value> {
    Value otherNumber = b.range(first, some, 0);
    Value other = loadEntries(otherNumber);
    Value isRepeated = b.reduceMax(b.map(
        {other, block, otherNumber, number}, b.i32(), [&](ArrayRef<Expr> x) {
          return convert(isSameBefore(x[0], x[1], x[3], x[2]), b.i32());
        }));
    Value terms = b.map(
        {other, block, otherNumber, number, isRepeated}, b.i32(),
        [&](ArrayRef<Expr> x) {
          Expr isSmaller = (x[0] >= 0) & (x[4] == 0) & (x[0] < x[1]);
          return select(isSameBefore(x[0], x[1], x[2], x[3]),
                        x[4].constant(repeated), convert(isSmaller, b.i32()));
        });
    return {add(b, sum[0], b.reduceAdd(terms, /*axis=*/0))};
  };
  Value found = b.forLoop(0, entries, some, b.splat(b.constant(0), 1, entries),
                          compare)[0];
  Value isFirst = b.map({block, found}, b.i32(), [&](ArrayRef<Expr> x) {
    return convert((x[0] >= 0) & (x[1] < repeated), b.i32());
  });
  // Others have an index out of bounds.
  Value places = b.map({found, isFirst}, b.i32(), [](ArrayRef<Expr> x) {
    return select(x[1] != 0, x[0], -1);
  });
  b.store(block, selection.blocks, {batch, keyHead, tile, places});
  b.store(b.reduceAdd(isFirst), selection.counts,
          {batch, keyHead, b.range(tile, 1, 1)});
}

SelectionUnion SelectedAttention::launchUnion(KernelCache &cache,
                                              OpBuilder &builder, Operation *op,
                                              Value indices, Value start,
                                              Value at) const {
  if (!hasUnion())
    return {};
  SmallVector<Value> inputs = {indices};
  for (Value own : {start, at})
    if (own)
      inputs.push_back(own);
  KernelSpec spec;
  spec.ownName = "selection_union";
  spec.shape = name();
  // It depends on the width of the heads and on their type.
  spec.key = std::to_string(queryTile);
  spec.grid = {numQueryTiles(), shape.keyHeads, shape.batch};
  spec.takesExtents = !isPacked && !shape.isPlaced;
  SmallVector<Extent> counts = {shape.batch, shape.keyHeads, numQueryTiles()};
  SmallVector<Extent> blocks = counts;
  blocks.push_back(mostInUnion());
  Type i32 = cache.getI32Type();
  Type types[] = {cache.getTensorType(counts, i32),
                  cache.getTensorType(blocks, i32)};
  auto [number, members] = named<2>(cache.launchOnce(
      builder, op, spec, inputs, types,
      [&](TileBuilder &b, ArrayRef<Value> args) {
        ArrayRef<Value> in = args.drop_back(2);
        auto [number, members] = named<2>(args.take_back(2));
        // Marks of 32 blocks take as long as four or five entries.
        if (isPacked || int64_t(numBlocks()) <= 4 * queryTile * count)
          markUnion(b, b.programId(0), in.front(), start ? in[1] : Value(),
                    at ? in.back() : Value(), {number, members});
        else
          compareUnion(b, b.programId(0), in.front(), {number, members});
      }));
  return {number, members};
}
