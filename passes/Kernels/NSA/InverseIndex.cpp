//===- InverseIndex.cpp - which queries selected a block ------------------===//
//
// For each block the queries that selected it, ascending, in compressed rows of
// batch * key heads * sequence * count entries in all. On a GPU programs have a
// range of queries each: one launch counts how many of these selected each
// block, from which those of the next one know where to write.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/SelectedAttentionKernels.h"
#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

SmallVector<Type> SelectedAttention::getIndexTypes(KernelCache &cache) const {
  Type i32 = cache.getI32Type();
  SmallVector<Extent> offsets = {shape.batch, shape.keyHeads};
  if (isParallel)
    offsets.append({gradParts + 1, numBlocks()});
  else
    offsets.push_back(numBlocks() + 2);
  return {cache.getTensorType(offsets, i32),
          cache.getTensorType(
              {shape.batch, shape.keyHeads, shape.sequence * count}, i32)};
}

std::pair<Expr, Expr> SelectedAttention::getListPart(TileBuilder &b,
                                                     Value offsets, Expr batch,
                                                     Expr keyHead, Expr block,
                                                     Expr part,
                                                     int64_t parts) const {
  if (!isParallel)
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
        Expr exists = block >= 0;
        if (shape.isPlaced)
          exists = exists & (block < numBlocks());
        b.ifThen(exists, [&] { body(t, block); });
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

/// For each element of a tile of 0 and 1 the sum of those above it: a dot
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

namespace {
/// A program that counts or lists the queries of a range. Entries of blocks
/// that a query does not see are left out.
class IndexProgram {
public:
  IndexProgram(const SelectedAttention &attention, TileBuilder &b, Value at)
      : attention(attention), b(b), range(b.programId(0)),
        keyHead(b.programId(1)), batch(b.programId(2)),
        place(QueryPlace::load(b, attention.shape, at, batch)),
        sequence(attention.shape.sequence),
        first(range * attention.indexQueries()),
        end(min(first + attention.indexQueries(), sequence)),
        blocks(
            std::min<int64_t>(16, llvm::alignTo(int64_t(attention.numBlocks()),
                                                /*multiple=*/8))) {}

  /// `indices` are the lists of the queries, `counts` how many queries of each
  /// range selected each block, i32 [B, Hkv, ranges, blocks].
  void count(Value indices, Value counts);
  void list(Value indices, Value counts, Value offsets, Value list);

private:
  SelectionLists load(Value indices, Expr t0, int64_t queries) {
    Value t = b.range(t0, queries, 0);
    return {
        attention, t,
        b.load(indices, {batch, keyHead, t, b.range(0, attention.count, 1)}),
        place};
  }
  Value zeros(int64_t rows) { return b.splat(b.constant(0), rows, blocks); }
  /// How many queries selected each of the blocks from `block` on: all of them,
  /// and those before the range.
  std::array<Value, 2> sumCounts(Value counts, Expr block);
  void storeOffsets(Value offsets, Operand firstPart, Operand endPart,
                    Expr block, Value places);
  void placeQueries(Value indices, Value list, Expr block, Value starts,
                    Value triangle);

  const SelectedAttention &attention;
  TileBuilder &b;
  Expr range, keyHead, batch;
  QueryPlace place;
  Extent sequence;
  /// The queries of the range, from the first to past the last.
  Expr first, end;
  /// Blocks that are taken at once, as many as registers allow.
  int64_t blocks;
};
} // namespace

void IndexProgram::count(Value indices, Value counts) {
  SelectionLists queries = load(indices, first, attention.indexQueries());
  auto forBlocks = [&](Operand from, Operand to,
                       llvm::function_ref<Value(Expr)> countOf) {
    b.forLoop(from, to, blocks, {}, [&](Expr block, ArrayRef<Value>) {
      b.store(countOf(block), counts,
              {batch, keyHead, range, b.range(block, blocks, 1)});
      return SmallVector<Value>();
    });
  };
  // No query sees later blocks.
  Expr seen = place.of(end - 1) / attention.selectBlock / blocks + 1;
  forBlocks(0, seen * blocks, [&](Expr block) {
    return b.reduceAdd(queries.findMembers(b, block, blocks), /*axis=*/0);
  });
  forBlocks(seen * blocks, attention.numBlocks(),
            [&](Expr) { return zeros(1); });
}

std::array<Value, 2> IndexProgram::sumCounts(Value counts, Expr block) {
  Extent ranges = attention.numIndexPrograms();
  int64_t rows = getTileSize(ranges, 128, 16);
  auto sums = b.forLoop(
      0, ranges, rows, {zeros(rows), zeros(rows)},
      [&](Expr r0, ArrayRef<Value> sums) -> SmallVector<Value> {
        Value r = b.range(r0, rows, 0);
        Value own =
            b.load(counts, {batch, keyHead, r, b.range(block, blocks, 1)});
        Value before = b.map({own, r}, b.i32(), [&](ArrayRef<Expr> x) {
          return select(x[1] < range, x[0], 0);
        });
        return {add(b, sums[0], own), add(b, sums[1], before)};
      });
  return {b.reduceAdd(sums[0], /*axis=*/0), b.reduceAdd(sums[1], /*axis=*/0)};
}

/// Writes where these parts of the lists begin.
void IndexProgram::storeOffsets(Value offsets, Operand firstPart,
                                Operand endPart, Expr block, Value places) {
  b.forLoop(firstPart, endPart, 1, {}, [&](Expr part, ArrayRef<Value>) {
    b.store(places, offsets, {batch, keyHead, part, b.range(block, blocks, 1)});
    return SmallVector<Value>();
  });
}

/// Fills lists with the queries of the range, from `starts` on.
void IndexProgram::placeQueries(Value indices, Value list, Expr block,
                                Value starts, Value triangle) {
  int64_t rows = attention.indexTile();
  // Queries before the first block do not see it.
  Expr sees = block * attention.selectBlock;
  if (place.first)
    sees = max(sees - *place.first, 0);
  Expr from = max(first, sees / rows * rows);
  auto place = [&](Expr t0, ArrayRef<Value> carried) -> SmallVector<Value> {
    SelectionLists queries = load(indices, t0, rows);
    Value members = queries.findMembers(b, block, blocks);
    // Others have an index out of bounds.
    auto listed = b.map(
        {members, sumAbove(b, members, triangle), carried[0], queries.number},
        {b.i32(), b.i32()}, [](ArrayRef<Expr> x) -> SmallVector<Value> {
          return {select(x[0] != 0, x[1] + x[2], -1), x[3]};
        });
    b.store(listed[1], list, {batch, keyHead, listed[0]});
    return {add(b, carried[0], b.reduceAdd(members, /*axis=*/0))};
  };
  b.forLoop(from, end, rows, {starts}, place);
}

void IndexProgram::list(Value indices, Value counts, Value offsets,
                        Value list) {
  int64_t rows = attention.indexTile();
  Extent each = attention.partQueries();
  // Those that have queries.
  Operand parts =
      each.isConstant()
          ? Operand(ceilDiv(sequence, int64_t(each)))
          : Operand(ceilDiv(toExpr(sequence, range), toExpr(each, range)));
  Value triangle = b.map({b.range(0, rows, 0), b.range(0, rows, 1)},
                         b.getBuilder().getBF16Type(), [&](ArrayRef<Expr> x) {
                           return select(x[1] < x[0], b.constantF32(1), 0);
                         });
  auto listBlocks = [&](Expr block,
                        ArrayRef<Value> carried) -> SmallVector<Value> {
    std::array<Value, 2> sums = sumCounts(counts, block);
    Value all = sums[0];
    Value begins = add(b, sumBefore(b, all), carried[0]);
    Value starts = add(b, begins, sums[1]);
    b.ifThen(first % each == 0, [&] {
      Expr part = first / each;
      storeOffsets(offsets, part, part + 1, block, starts);
    });
    b.ifThen(range == attention.numIndexPrograms() - 1, [&] {
      storeOffsets(offsets, parts, attention.gradParts + 1, block,
                   add(b, begins, all));
    });
    placeQueries(indices, list, block, starts, triangle);
    return {add(b, carried[0], b.reduceAdd(all))};
  };
  b.forLoop(0, attention.numBlocks(), blocks, {b.splat(b.constant(0), 1, 1)},
            listBlocks);
}

InverseIndex SelectedAttention::launchLists(KernelCache &cache,
                                            OpBuilder &builder, Operation *op,
                                            Value indices, Value at) const {
  KernelSpec spec = {"lists", name(), {1, shape.keyHeads, shape.batch}, 0};
  spec.takesExtents = !isPacked && !shape.isPlaced;
  SmallVector<Value> inputs = {indices};
  auto placeOf = [&](ArrayRef<Value> args) { return at ? args[1] : Value(); };
  if (isParallel) {
    spec.grid[0] = numIndexPrograms();
    // One program alone would wait for its exchanges.
    spec.minBlocks = 2;
    KernelSpec countSpec = spec;
    countSpec.suffix = "counts";
    Type type = cache.getTensorType(
        {shape.batch, shape.keyHeads, numIndexPrograms(), numBlocks()},
        builder.getI32Type());
    if (at)
      inputs.push_back(at);
    auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
      IndexProgram(*this, b, placeOf(args)).count(args.front(), args.back());
    };
    inputs.push_back(
        cache.launch(builder, op, countSpec, inputs, type, build).front());
  }
  auto [offsets, list] =
      named<2>(cache.launch(builder, op, spec, inputs, getIndexTypes(cache),
                            [&](TileBuilder &b, ArrayRef<Value> args) {
                              auto [offsets, list] =
                                  named<2>(args.take_back(2));
                              ArrayRef<Value> in = args.drop_back(2);
                              if (isParallel)
                                IndexProgram(*this, b, placeOf(in))
                                    .list(in.front(), in.back(), offsets, list);
                              else
                                sortEntries(b, b.programId(1), b.programId(2),
                                            in.front(), offsets, list);
                            }));
  return {offsets, list};
}
