//===- DenseAttention.cpp - attention to ranges of keys -------------------===//

#include "passes/Kernels/NSA/DenseAttentionKernels.h"

#include <numeric>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// The masks of queries for some blocks, and of packed sequences those for the
/// blocks before them; null without.
struct MaskWords {
  Value own, before;
};
} // namespace

bool DenseAttention::isLong() const {
  constexpr int64_t manyKeys = 1536, manyTokens = 8192;
  if (!visibility->attendsToTokens())
    return shape.valueWidth > 64 && int64_t(shape.keys) >= manyKeys;
  if (shape.valueWidth <= 64 && !isThin())
    return false;
  // Blocks that were selected are smaller than the tiles of keys.
  return selectBlock == 0 && shape.tokens.isConstant() &&
         visibility->getMaxKeys(int64_t(shape.tokens)) >= manyTokens;
}

/// Two warpgroups share the keys and values that a program copies, or three
/// where many keys follow each other. For a window one is faster, which waits
/// for no other.
int64_t DenseAttention::getOwnQueryTile(const KernelCut &cut) const {
  int64_t fixed = cut.sizes.getQueries();
  int64_t rows = getProductRows(cut);
  if (fixed != 0 || rows == 0 || int64_t(shape.sequence) < rows)
    return getQueryTile(cut, fixed);
  if (isShortWindow())
    return getTileSize(shape.sequence, rows, rows);
  return getTileSize(shape.sequence, (isLong() ? 3 : 2) * rows, rows);
}

/// Neighbouring queries see more keys of a window together than one of them
/// does, so that a program of fewer queries with several heads of their group
/// computes fewer pairs that do not count.
int64_t DenseAttention::getPackedHeads(const KernelCut &cut) const {
  bool fits =
      visibility->attendsToTokens() && ownQueryTile == 2 * getProductRows(cut);
  return fits ? std::gcd(ownQueryTile, shape.group()) : 1;
}

/// Three consumer warpgroups with a producer have registers for more keys at
/// once.
int64_t DenseAttention::getForwardKeyTile(const KernelCut &cut) const {
  // The lse of blocks, by which others are selected, do not depend on how many
  // there are.
  constexpr int64_t fewBlocks = 16;
  if (!cut.isParallel() && !visibility->attendsToTokens())
    return getKeyTile(cut, fewBlocks);
  int64_t rows = getProductRows(cut);
  int64_t tile = getKeyTile(cut, cut.sizes.getKeys());
  bool isLarge = rows != 0 && ownQueryTile == 3 * rows && tile == 64 &&
                 shape.keyWidth <= 128 && shape.valueWidth <= 128;
  if (!isLarge || cut.sizes.getKeys() != 0)
    return tile;
  return isThin() ? 128 : 80;
}

/// Warpgroups of one program wait for each other, those of two do not: the
/// exponentials of one program overlap with the dots of the other. Two fit with
/// 128 registers per thread.
int64_t DenseAttention::getMinBlocks(const KernelCut &cut) const {
  int64_t rows = getProductRows(cut);
  if (rows == 0 || hasWideHeads())
    return 0;
  if (ownQueryTile == rows && isShortWindow())
    return 4;
  return ownQueryTile == 2 * rows ? 2 : 0;
}

int64_t DenseAttention::getOwnKeyTile(const KernelCut &cut,
                                      int64_t fewest) const {
  int64_t tile = keyTile;
  if (cut.sizes.getKeys() != 0)
    return tile;
  auto countPrograms = [&] {
    return int64_t(ceilDiv(shape.keys, tile) * shape.keyHeads * shape.keyBatch);
  };
  while (countPrograms() < cut.getProcessors() && tile > fewest &&
         tile / 2 % cut.getTileMultiple() == 0)
    tile /= 2;
  return tile;
}

std::string DenseAttention::name() const {
  return shape.name() + "_" + visibility->getShapeName() +
         (isPacked ? "_packed" : "");
}

//===----------------------------------------------------------------------===//
// Key tiles
//===----------------------------------------------------------------------===//

std::pair<Expr, Expr>
DenseAttention::getKeyRange(TileBuilder &b, const QueryRange &queries) const {
  QueryPlace place = queries.place();
  Expr first = place.of(queries.first);
  Expr last =
      place.of(min(queries.first + (queries.count - 1), shape.sequence - 1));
  if (!queries.start)
    return {visibility.firstKey(first),
            place.limit(visibility.endKey(last), shape.keys)};
  Expr firstStart = b.loadScalar(queries.start, {place.batch, first});
  Expr lastStart = b.loadScalar(queries.start, {place.batch, last});
  // Where the last query sees nothing of its own sequence, the others see no
  // key from there on.
  return {visibility.keyBase(firstStart) +
              visibility.firstKey(first - firstStart),
          place.limit(visibility.keyBase(lastStart) +
                          max(visibility.endKey(last - lastStart), 0),
                      shape.keys)};
}

SmallVector<Value> DenseAttention::forEachKeyTile(const RowProgram &program,
                                                  Value k, Value v, Value masks,
                                                  ArrayRef<Value> inits,
                                                  KeyTileBody body) const {
  TileBuilder &b = program.b;
  const QueryRange &queries = program.range;
  int64_t size = queries.isGradient ? keyTile : forwardKeyTile;
  std::pair<Expr, Expr> range = getKeyRange(b, queries);
  Expr firstKey = range.first, endKey = range.second;
  std::optional<PackedRows> packed;
  if (queries.start)
    packed.emplace(b, visibility, queries.start, queries.place().batch,
                   queries.positions());
  auto forKeys = [&](Expr first, Expr end, const MaskWords &words,
                     ArrayRef<Value> inits) {
    return b.forLoop(
        first, end, size, inits, [&](Expr i0, ArrayRef<Value> carried) {
          Value i = b.range(i0, size, 0);
          KeyTile tile = queries.loadKeys(b, shape, i, k, v);
          tile.row = packed ? packed->row : queries.positions();
          tile.base = packed ? packed->base : Value();
          tile.key = b.range(i0, size, 1);
          tile.isVisible = [&](Expr t, Expr i) {
            return visibility.isVisible(t, i);
          };
          auto isSelected = [&](Value word) {
            return SelectionMasks::isSelected(b, word, i0 / selectBlock);
          };
          if (words.before)
            limitToBlocks(b, tile, selectBlock, i0, isSelected(words.own),
                          isSelected(words.before), packed->begin,
                          queries.positions());
          else if (words.own)
            tile.selected = isSelected(words.own);
          return body(tile, carried);
        });
  };
  if (!masks)
    return forKeys(firstKey, endKey, {}, inits);
  int64_t tokens = SelectionMasks::blocksPerWord * selectBlock;
  auto load = [&](tile::Operand word) {
    return b.load(masks, {queries.batch, queries.keyHead, word, queries.query});
  };
  // Each tile is to lie in one range of `selectBlock` tokens.
  if (packed)
    firstKey = firstKey / size * size;
  if (int64_t(shape.tokens) <= tokens) {
    MaskWords words = {load(0), {}};
    if (packed)
      words.before = SelectionMasks::ofBlocksBefore(b, words.own, Value());
    return forKeys(firstKey, endKey, words, inits);
  }
  return b.forLoop(packed ? firstKey / tokens * tokens : firstKey, endKey,
                   tokens, inits, [&](Expr first, ArrayRef<Value> carried) {
                     Expr word = first / tokens,
                          end = min(first + tokens, endKey);
                     MaskWords words = {load(word), {}};
                     if (!packed)
                       return forKeys(first, end, words, carried);
                     // No query sees a key of the block before the first one.
                     words.before = SelectionMasks::ofBlocksBefore(
                         b, words.own, load(max(word - 1, 0)));
                     return forKeys(max(first, firstKey), end, words, carried);
                   });
}

HeadProgram::HeadProgram(const DenseAttention &attention, int64_t queries,
                         TileBuilder &b)
    : RowProgram{b, {}, b.programId(1), Value()} {
  range.batch = b.programId(2);
  range.keyHead = b.expr(head) / attention.shape.group();
  range.first = getQueryTileOf(b.programId(0), attention.numQueryTiles(queries),
                               attention.isParallel) *
                queries;
  range.count = queries;
  range.query = stored = b.range(range.first, range.count, 0);
}

RowProgram DenseAttention::makeForwardProgram(TileBuilder &b) const {
  if (packedHeads == 1)
    return HeadProgram(*this, ownQueryTile, b);
  int64_t queries = ownQueryTile / packedHeads;
  Expr tile =
      getQueryTileOf(b.programId(0), numQueryTiles(queries), isParallel);
  return makeHeadsProgram(shape, queries, packedHeads, b, tile);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Rows of packed sequences are counted from where that of the key `i` begins,
/// and keys from its first one.
void DenseAttention::countFromSequence(TileBuilder &b, Expr batch, Value i,
                                       const KeyValueGradArgs &args,
                                       KeyTile &tile) const {
  int64_t stride = visibility->getKeyStride();
  // A token that is in every block that begins in a stride.
  Value token = b.map({i}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + (stride - 1);
  });
  tile.begin = b.load(args.start, {batch, token});
  tile.end = b.load(args.ends, {batch, token});
  tile.key = b.map({i, tile.begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] - visibility.keyBase(x[1]);
  });
  if (selectBlock == 0)
    return;
  tile.isNext = b.map({i, tile.begin}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr border = x[0] / selectBlock * selectBlock + x[1] % selectBlock;
    return convert(x[0] >= border, b.i32());
  });
}

/// Says which of the queries in the columns of a tile selected `block`, and of
/// packed sequences the block before.
void DenseAttention::selectQueries(TileBuilder &b, Expr batch, Expr keyHead,
                                   Expr block, const KeyValueGradArgs &args,
                                   Value query, KeyTile &tile) const {
  constexpr int64_t perWord = SelectionMasks::blocksPerWord;
  auto load = [&](tile::Operand word) {
    return b.load(args.masks, {batch, keyHead, word, query});
  };
  Expr word = block / perWord;
  Value words = load(word), before;
  tile.selected = SelectionMasks::isSelected(b, words, block);
  if (!args.start)
    return;
  if (int64_t(shape.tokens) > perWord * selectBlock)
    before = load(max(word - 1, 0));
  tile.selectedBefore = SelectionMasks::isSelected(
      b, SelectionMasks::ofBlocksBefore(b, words, before), block);
}

KeyProgram DenseAttention::getKeyProgram(TileBuilder &b, int64_t parts) const {
  Expr program = b.programId(0), number = program;
  std::optional<Expr> part;
  if (parts != 0) {
    number = program / parts;
    part = program % parts;
  }
  Expr first = number * ownKeyTile;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  return {batch, keyHead, first, ownKeyTile, part};
}

std::pair<Expr, Expr>
DenseAttention::getQueryRange(TileBuilder &b, const KeyProgram &program,
                              const KeyValueGradArgs &args) const {
  Expr first = program.first;
  Expr last = min(first + (ownKeyTile - 1), shape.keys - 1);
  // From a multiple of 16 bytes on in rows of f32, where copies begin.
  int64_t before =
      isParallel ? visibility->getFirstQuery(0).getNumber() % 4 : 0;
  Expr firstQuery = visibility.firstQuery(first) - static_cast<double>(before);
  Expr endQuery = visibility.endQuery(last);
  if (!args.start)
    return {firstQuery, endQuery};
  int64_t stride = visibility->getKeyStride();
  auto load = [&](Value from, Expr key) {
    Expr token = min(key * stride + (stride - 1), shape.tokens - 1);
    return b.loadScalar(from, {program.batch, token});
  };
  Expr lastEnd = load(args.ends, last);
  if (visibility->isShiftInvariant())
    return {firstQuery, min(endQuery, lastEnd)};
  auto countFrom = [&](Expr start, Expr key) {
    return key - visibility.keyBase(start);
  };
  Expr firstStart = load(args.start, first), firstEnd = load(args.ends, first);
  Expr lastStart = load(args.start, last);
  // Where no query of its own sequence sees the first key, those of the next
  // one come first. Tiles can be copied from a multiple of their rows on.
  firstQuery = firstStart + visibility.firstQuery(countFrom(firstStart, first));
  firstQuery = min(firstQuery, firstEnd) / queryTile * queryTile;
  endQuery = lastStart + visibility.endQuery(countFrom(lastStart, last));
  return {firstQuery, min(endQuery, lastEnd)};
}

void DenseAttention::buildKeyValueGrad(TileBuilder &b,
                                       const KeyProgram &program,
                                       const KeyValueGradArgs &args) const {
  Expr i0 = program.first, keyHead = program.keyHead, batch = program.batch;
  KeyValueGrad grad(b, shape, args, program);
  KeyTile &tile = grad.tile;
  Value i = tile.key;
  tile.isVisible = [&](Expr t, Expr i) { return visibility.isVisible(t, i); };
  if (args.start)
    countFromSequence(b, batch, i, args, tile);
  std::pair<Expr, Expr> positions = getQueryRange(b, program, args);
  Expr firstHead = keyHead * shape.group();
  SmallVector<Value> zeros = grad.zeros();
  auto addQueries = [&](Expr head, Expr row, ArrayRef<Value> inits) {
    auto place = QueryPlace::load(b, shape, args.at, row);
    // Loops go through positions, of which alone the warps that multiply need
    // to know. Queries from a multiple of their tile on can be copied by TMA.
    Expr first = positions.first, end = positions.second;
    if (place.first) {
      first = max(first - *place.first, 0) / queryTile * queryTile;
      first = first + *place.first;
      end = min(end, shape.sequence + *place.first);
      end = select(place.batch == batch, end, 0);
    }
    auto addTile = [&](Expr p0, ArrayRef<Value> sums) {
      Expr t0 = place.first ? (p0 - *place.first) / queryTile * queryTile : p0;
      Value t = b.range(t0, queryTile, 0);
      Value query = b.range(t0, queryTile, 1);
      tile.row = place.first ? b.range(p0, queryTile, 1) : query;
      return grad.addRows(row, t, query, head, head, sums, [&] {
        if (args.masks)
          selectQueries(b, row, keyHead, i0 / selectBlock, args, query, tile);
      });
    };
    return b.forLoop(first, end, queryTile, inits, addTile);
  };
  if (program.part) {
    auto addRow = [&](Expr row, ArrayRef<Value> sums) {
      return addQueries(firstHead + *program.part, row, sums);
    };
    return grad.store(forEachRow(b, shape, args.at, batch, zeros, addRow), i);
  }
  // A sum for each head and row first: the rounding errors of one long sum
  // would exceed those of the terms.
  auto numberOf = [&](Expr head) {
    return args.at ? head * shape.batch : head;
  };
  auto sums = b.forLoop(
      numberOf(firstHead), numberOf(firstHead + shape.group()), 1, zeros,
      [&](Expr number, ArrayRef<Value> carried) -> SmallVector<Value> {
        auto own = args.at ? addQueries(number / shape.batch,
                                        number % shape.batch, zeros)
                           : addQueries(number, batch, zeros);
        return {add(b, carried[0], own[0]), add(b, carried[1], own[1])};
      });
  grad.store(sums, i);
}

KernelSpec DenseAttention::forwardSpec(StringRef suffix,
                                       std::string name) const {
  KernelSpec spec = {suffix.str(),
                     std::move(name),
                     {numQueryTiles(ownQueryTile / packedHeads),
                      shape.queryHeads / packedHeads, shape.batch}};
  spec.flops = flops(shape.keyWidth + shape.valueWidth);
  spec.minBlocks = minBlocks;
  // Loops of wider heads have one for their sums.
  spec.hasProducer = isIssueBound();
  spec.takesExtents = !isPacked && !shape.isPlaced;
  spec.longestFirst = isGraded();
  return spec;
}
