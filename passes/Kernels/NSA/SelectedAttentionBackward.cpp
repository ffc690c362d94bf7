//===- SelectedAttentionBackward.cpp - gradients of the selected branch ---===//
//
// The gradient of a query iterates over the blocks that it selected, that of a
// key over the queries that selected its block.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/SelectedAttentionKernels.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t SelectedAttention::getGradParts(const AttentionShape &shape,
                                        int64_t selectBlock, int64_t count,
                                        const KernelCut &cut) {
  if (!cut.isParallel())
    return 1;
  constexpr int64_t most = 16;
  // Lists have as many entries as all queries together, that of the first block
  // one for each query.
  int64_t atOnce = 2 * cut.getProcessors();
  // One row of the batch, which has the fewest lists, if its size is not known.
  int64_t rows = shape.keyBatch.isConstant() ? int64_t(shape.keyBatch) : 1;
  int64_t lists = count * shape.keyHeads * rows;
  auto parts = static_cast<int64_t>(
      llvm::bit_floor(static_cast<uint64_t>(2 * atOnce / lists)));
  // A rank that has fewer queries than there are tokens adds up fewer parts.
  int64_t queries = int64_t(shape.tokens);
  if (shape.isPlaced) {
    queries = int64_t(shape.sequence * shape.batch) / int64_t(shape.keyBatch);
    parts = parts * queries / int64_t(shape.tokens);
  }
  int64_t enough = queries / std::max(count * selectBlock, mostIndexQueries);
  return std::max<int64_t>(std::min({parts, enough, most}), 1);
}

KeyProgram SelectedAttention::getKeyProgram(TileBuilder &b,
                                            int64_t parts) const {
  Expr program = b.programId(0);
  auto make = [&](Expr batch, Expr keyHead, Expr tile,
                  Expr part) -> KeyProgram {
    return {batch, keyHead, firstKeyOf(tile), ownKeyTile,
            parts == 0 ? std::nullopt : std::optional(part)};
  };
  if (!isParallel)
    return make(b.programId(2), b.programId(1), program, program);
  int64_t heads = shape.keyHeads, each = std::max<int64_t>(parts, 1);
  Extent pairs = heads * shape.keyBatch;
  // The same tile and part for one head after the other.
  Expr pair = program % pairs, work = program / pairs;
  Expr tile = work / each, part = work % each;
  Expr keyHead = pair % heads, batch = pair / heads;
  constexpr int64_t manyPrograms = 2048;
  Extent all = numGradTiles() * each;
  if (all.isConstant() && int64_t(all) < manyPrograms)
    return make(batch, keyHead, tile, part);
  int64_t ofFirst = tilesPerBlock();
  Extent others = atLeast(numGradTiles() - ofFirst, 1);
  Extent firstPrograms = ofFirst * each * pairs;
  Expr isFirst = program < firstPrograms;
  if (!all.isConstant())
    isFirst = isFirst | (toExpr(all, program) < manyPrograms);
  // Tiles of one part, parts of one head.
  Expr other = max(program - firstPrograms, 0);
  Expr otherPart = other / others, otherPair = otherPart / each;
  Expr ownTile = select(isFirst, tile, other % others + ofFirst);
  part = select(isFirst, part, otherPart % each);
  keyHead = select(isFirst, keyHead, otherPair % heads);
  batch = select(isFirst, batch, otherPair / heads);
  return make(batch, keyHead, ownTile, part);
}

std::array<Extent, 3> SelectedAttention::keyGrid(int64_t parts) const {
  if (!isParallel)
    return {numGradTiles(), shape.keyHeads, shape.keyBatch};
  return {numGradTiles() * std::max<int64_t>(parts, 1) * shape.keyHeads *
              shape.keyBatch,
          1, 1};
}

void SelectedAttention::buildKeyValueGrad(TileBuilder &b,
                                          const KeyProgram &program,
                                          const KeyValueGradArgs &args) const {
  auto build = [&] { buildPartOfGrad(b, program, args); };
  if (!program.part)
    return build();
  // Others are unused.
  b.ifThen(*program.part >= firstPart(program.first / selectBlock), build);
}

/// Makes rows of queries that selected `block` see its keys up to their own.
void SelectedAttention::limitToBlock(TileBuilder &b, Value start, Expr batch,
                                     Expr block, KeyTile &tile) const {
  Value starts = b.load(start, {batch, tile.row});
  auto bounds = b.map({tile.row, starts}, {b.i32(), b.i32()},
                      [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                        Expr first = block * selectBlock + x[1] % selectBlock;
                        return {first, min(x[0] - first, selectBlock - 1)};
                      });
  tile.base = bounds[0];
  tile.row = bounds[1];
}

/// Runs `body` for the numbers of the blocks that the keys from `u0` on are in:
/// one or two.
SmallVector<Value> SelectedAttention::forEachBlockOf(
    TileBuilder &b, Value start, Expr batch, Expr u0, ArrayRef<Value> inits,
    llvm::function_ref<SmallVector<Value>(Expr, ArrayRef<Value>)> body) const {
  auto numberOf = [&](Expr token) {
    Expr begin = b.loadScalar(start, {batch, token});
    return begin / selectBlock + (token - begin) / selectBlock;
  };
  Expr last = min(u0 + (ownKeyTile - 1), shape.tokens - 1);
  if (reachesBeyondBlocks(ownKeyTile))
    last = min(last, (u0 / selectBlock + 1) * selectBlock - 1);
  return b.forLoop(numberOf(u0), numberOf(last) + 1, 1, inits, body);
}

void SelectedAttention::buildPartOfGrad(TileBuilder &b,
                                        const KeyProgram &program,
                                        const KeyValueGradArgs &args) const {
  Expr u0 = program.first, keyHead = program.keyHead, batch = program.batch;
  Expr block = u0 / selectBlock, firstHead = keyHead * shape.group();
  int64_t rows = gatherRows, listed = gatherTile * shape.group();
  KeyValueGrad grad(b, shape, args, program);
  KeyTile &tile = grad.tile;
  Value u = tile.key, stored = u;
  if (reachesBeyondBlocks(ownKeyTile))
    stored = b.map({u}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] < block * selectBlock + selectBlock, x[0], -1);
    });
  tile.isVisible = [](Expr t, Expr u) { return u <= t; };
  // The list of a row of queries.
  Expr row = batch, begin, end;
  QueryPlace place{batch};
  auto findList = [&] {
    std::tie(begin, end) =
        getListPart(b, args.offsets, row, keyHead, block,
                    program.part ? *program.part : b.constant(0),
                    program.part ? gradParts : 1);
    if (place.first)
      end = select(place.batch == batch, end, begin);
  };
  // Rows past the end of the list get a query outside of the sequence: they
  // read as 0.
  auto queryOfRow = [&](Expr entry, int axis) {
    Value number =
        b.map({b.range(0, rows, axis)}, b.i32(), [&](ArrayRef<Expr> x) {
          Expr own = entry + x[0] / shape.group();
          return rows == listed ? own : select(x[0] < listed, own, end);
        });
    Value query = b.load(args.list, {row, keyHead, number});
    return b.map({number, query}, b.i32(), [&](ArrayRef<Expr> x) {
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
    Value t = queryOfRow(entry, 0), query = queryOfRow(entry, 1);
    tile.row = place.of(b, query);
    tile.base = {};
    return grad.addRows(row, t, query, head, headRow, sums, [&] {
      if (args.start)
        limitToBlock(b, args.start, batch, block, tile);
    });
  };
  // Every query selects the first block. The rounding errors of one sum that
  // long would exceed those of the terms: sums of ranges first.
  int64_t perSum = 16 * gatherTile;
  SmallVector<Value> zeros = grad.zeros();
  auto addList = [&](Expr ofRow, ArrayRef<Value> sums) {
    row = ofRow;
    place = QueryPlace::load(b, shape, args.at, row);
    findList();
    return b.forLoop(
        begin, end, perSum, sums,
        [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
          auto own = b.forLoop(first, min(first + perSum, end), gatherTile,
                               zeros, addQueries);
          return {add(b, carried[0], own[0]), add(b, carried[1], own[1])};
        });
  };
  auto addBlock = [&](Expr listed, ArrayRef<Value> sums) {
    block = listed;
    return forEachRow(b, shape, args.at, batch, sums, addList);
  };
  grad.store(isPacked
                 ? forEachBlockOf(b, args.start, batch, u0, zeros, addBlock)
                 : addBlock(block, zeros),
             stored);
}
