//===- SelectedAttention.cpp - attention within the selected blocks -------===//
//
// A program takes several neighbouring queries of a group and goes through the
// union of their blocks in ascending order: neighbours share most of them. Rows
// that did not select a block are masked.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/AttentionBranches.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Keys and rows of a tile, about: fewer of heads that are wider than those of
/// most models where programs share what memory there is.
static int64_t getTileLimit(const AttentionShape &shape, const KernelCut &cut) {
  return cut.isParallel() && shape.keyWidth + shape.valueWidth > 256 ? 32 : 64;
}

int64_t SelectedAttention::getKeyTile(const AttentionShape &shape,
                                      int64_t selectBlock,
                                      const KernelCut &cut) {
  int64_t limit = cut.sizes.getSelectedKeys() != 0 ? cut.sizes.getSelectedKeys()
                                                   : getTileLimit(shape, cut);
  // Tensor cores add 16 products at once.
  bool isOnTensorCores = cut.isParallel() && shape.elementBits == 16 &&
                         selectBlock % 16 == 0 && limit % 16 == 0;
  int64_t step = isOnTensorCores ? 16 : 1;
  int64_t tile = std::min(selectBlock, limit);
  while (selectBlock % tile != 0)
    tile -= step;
  return tile;
}

int64_t SelectedAttention::getWholeTile(const KernelCut &cut) const {
  constexpr int64_t atOnce = 16;
  bool isOnTensorCores = cut.isParallel() && shape.elementBits == 16;
  if (!isOnTensorCores || keyTile % atOnce == 0 ||
      cut.sizes.getSelectedKeys() % atOnce != 0)
    return keyTile;
  int64_t limit = cut.sizes.getSelectedKeys() != 0 ? cut.sizes.getSelectedKeys()
                                                   : getTileLimit(shape, cut);
  return std::min(limit,
                  static_cast<int64_t>(llvm::alignTo(selectBlock, atOnce)));
}

int64_t SelectedAttention::getStepTile(const KernelCut &cut) const {
  if (cut.sizes.getSelectedKeys() == 0 && cut.isParallel() &&
      queryTile * shape.group() <= 16)
    for (int64_t tile : {32, 16})
      if (selectBlock % tile == 0)
        return tile;
  return getWholeTile(cut);
}

/// The fixed number of queries, but no more than there are and a GPU's dots
/// need; whole M-tiles of them where each skips what it did not select.
static int64_t fillMTiles(const AttentionShape &shape, int64_t selectBlock,
                          int64_t count, const KernelCut &cut) {
  int64_t needed =
      std::max(int64_t(shape.sequence), cut.getLeastQueries(shape.group()));
  int64_t queries = std::min(cut.sizes.getSelectedQueries(), needed);
  bool hasMTiles = cut.isParallel() &&
                   SelectedAttention::isLong(shape, selectBlock, count) &&
                   shape.group() <= SelectedAttention::kWarpRows;
  int64_t inMTile =
      hasMTiles ? SelectedAttention::kWarpRows / shape.group() : 1;
  return static_cast<int64_t>(llvm::alignTo(queries, inMTile));
}

int64_t SelectedAttention::getQueryTile(const AttentionShape &shape,
                                        int64_t selectBlock, int64_t count,
                                        const KernelCut &cut) {
  if (cut.sizes.getSelectedQueries() != 0)
    return fillMTiles(shape, selectBlock, count, cut);
  if (cut.isParallel()) {
    if (isLong(shape, selectBlock, count)) {
      int64_t queries = kWarpRows / shape.group();
      bool isShared = cut.getWarpgroupRows() != 0 && shape.elementBits == 16 &&
                      queries >= 1 && queries <= 4 &&
                      shape.keyWidth + shape.valueWidth <= 256;
      return isShared ? 4 * queries : std::max<int64_t>(queries, 1);
    }
    // Whole warpgroups, if not too many queries fill their rows.
    int64_t product = shape.elementBits == 16 ? cut.getWarpgroupRows() : 0;
    if (product != 0 && shape.keyWidth + shape.valueWidth <= 256) {
      int64_t queries = product / std::gcd(shape.group(), product);
      if (queries <= 32 && queries * shape.group() <= 3 * product)
        return queries;
    }
    constexpr int64_t mostQueries = 16, mostRows = 96;
    int64_t rows = getTileLimit(shape, cut);
    int64_t queries = std::clamp<int64_t>(rows / shape.group(), 1, mostQueries);
    return cut.alignQueriesDown(queries, shape.group(),
                                std::min(2 * rows, mostRows));
  }
  int64_t queries = std::max<int64_t>(16 / shape.group(), 8);
  return std::min(queries, std::max<int64_t>(96 / shape.group(), 1));
}

int64_t SelectedAttention::getGatherTile(const AttentionShape &shape,
                                         const KernelCut &cut) {
  if (cut.sizes.getGatheredQueries() != 0)
    return cut.sizes.getGatheredQueries();
  int64_t rows = getTileLimit(shape, cut);
  int64_t queries = std::max<int64_t>(rows / shape.group(), 1);
  return cut.alignQueriesDown(queries, shape.group(), 2 * rows);
}

std::string SelectedAttention::selectionName() const {
  return "s" + std::to_string(selectBlock) + "n" + std::to_string(count) +
         (isPacked ? "_packed" : "");
}

int64_t SelectedAttention::flops(int64_t width) const {
  return shape.flops(width, visibility.countPairs(int64_t(shape.tokens),
                                                  int64_t(shape.keys), count));
}

//===----------------------------------------------------------------------===//
// Key tiles
//===----------------------------------------------------------------------===//

/// The tile of the keys from `first` on, in `block`. `blocks` are those that
/// the rows of the program selected; null if all of them selected this one.
KeyTile SelectedAttention::makeKeyTile(const RowProgram &program, Value blocks,
                                       Value k, Value v, Expr block,
                                       Expr first) const {
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  Value u = b.range(first, stepTile, 0);
  Value selected;
  if (blocks)
    selected = b.reduceMax(b.map({blocks}, b.i32(), [&](ArrayRef<Expr> x) {
      return convert(x[0] == block, b.i32());
    }));
  KeyTile tile = range.loadKeys(b, shape, u, k, v);
  // The last key that a row sees.
  if (reachesBeyondBlocks(stepTile)) {
    SmallVector<Value> inputs = {range.positions()};
    if (selected)
      inputs.push_back(selected);
    tile.row = b.map(inputs, b.i32(), [&](ArrayRef<Expr> x) {
      Expr last = min(x[0], block * selectBlock + (selectBlock - 1));
      return select(selected ? x[1] != 0 : block >= 0, last, -1);
    });
  } else if (multipliesUnions()) {
    // A number for each row: single keys are checked in the last block alone.
    tile.row = range.positions();
    tile.selected = selected;
  } else if (selected)
    tile.row =
        b.map({selected, range.positions()}, b.i32(),
              [](ArrayRef<Expr> x) { return select(x[0] != 0, x[1], -1); });
  else
    tile.row = b.map({range.positions()}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(block >= 0, x[0], -1);
    });
  tile.key = b.range(first, stepTile, 1);
  tile.isVisible = [](Expr lastKey, Expr key) { return key <= lastKey; };
  return tile;
}

//===----------------------------------------------------------------------===//
// Key tiles of packed sequences
//===----------------------------------------------------------------------===//

struct SelectedAttention::PackedLists {
  /// Of the queries `query` of the program's key head, i32 [queries, 1].
  PackedLists(const SelectedAttention &attention, const RowProgram &program,
              Value indices, Value query);

  /// Whether an entry is the block of this number, of which there are tokens in
  /// the key tile from `first` on; or the block before it.
  Expr isOwn(Expr entry, Expr block, Expr border, Expr first) const {
    return (entry == block) & (first + attention.stepTile > border);
  }
  Expr isBefore(Expr entry, Expr block, Expr border, Expr first) const {
    return (entry == block - 1) & (first < border);
  }
  /// Where the block of a number begins, for queries whose sequence begins at
  /// `start`.
  Expr getBorder(Expr block, Expr start) const {
    return block * attention.selectBlock + start % attention.selectBlock;
  }

  const SelectedAttention &attention;
  /// Where the sequences begin, i32 [queries, 1], and the blocks, i32
  /// [queries, count].
  Value start, entries;
};

SelectedAttention::PackedLists::PackedLists(const SelectedAttention &attention,
                                            const RowProgram &program,
                                            Value indices, Value query)
    : attention(attention) {
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  QueryPlace place = range.place();
  start = b.load(range.start, {place.batch, place.of(b, query)});
  entries = b.load(indices, {range.batch, range.keyHead, query,
                             b.range(0, attention.count, 1)});
}

/// In the tile from `first` on, a row sees the keys of one block before the
/// border, and of the next one past it; none where it selected neither.
static KeyTile makePackedKeyTile(const RowProgram &program,
                                 const SelectedAttention::PackedLists &rows,
                                 Value k, Value v, Expr first) {
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  const AttentionShape &shape = rows.attention.shape;
  int64_t keys = rows.attention.stepTile;
  Expr block = first / rows.attention.selectBlock;
  // Entries of a row differ, but for those that are -1.
  Value members =
      b.reduceAdd(b.map({rows.entries}, b.i32(), [&](ArrayRef<Expr> x) {
        Expr isBefore = (x[0] >= 0) & (x[0] == block - 1);
        return select(x[0] == block, x[0].constant(2),
                      convert(isBefore, b.i32()));
      }));
  auto isMember = [&](double bit) {
    return b.map({members}, b.i32(),
                 [&](ArrayRef<Expr> x) { return x[0] & x[0].constant(bit); });
  };
  Value u = b.range(first, keys, 0);
  KeyTile tile = range.loadKeys(b, shape, u, k, v);
  tile.key = b.range(first, keys, 1);
  limitToBlocks(b, tile, rows.attention.selectBlock, first, isMember(2),
                isMember(1), rows.start, range.positions());
  tile.row = b.map({tile.row, tile.selected}, b.i32(), [](ArrayRef<Expr> x) {
    return select(x[1] != 0, x[0], -1);
  });
  tile.selected = {};
  return tile;
}

/// Tiles in which no query of the program selected a key are skipped, those
/// before the sequence of the first one are not looked at.
SmallVector<Value> SelectedAttention::forEachKeyTileOfPacked(
    const RowProgram &program, Value indices, Value k, Value v,
    ArrayRef<Value> inits, KeyTileBody body) const {
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  PackedLists rows(*this, program, indices, range.query);
  PackedLists queries(*this, program, indices,
                      b.range(range.first, range.count, 0));
  QueryPlace place = range.place();
  Expr begin = b.loadScalar(range.start, {place.batch, place.of(range.first)});
  Expr end = min(place.of(range.first + range.count), shape.tokens);
  // Tiles by their first keys, or by number where the last one of a block
  // reaches into the next: those are as long as tiles of a program's own keys.
  bool isCut = reachesBeyondBlocks(stepTile);
  int64_t perBlock = tilesPerBlock();
  return b.forLoop(
      isCut ? begin / selectBlock * perBlock : begin / stepTile * stepTile,
      isCut ? (end + (selectBlock - 1)) / selectBlock * perBlock : end,
      isCut ? 1 : stepTile, inits, [&](Expr at, ArrayRef<Value> carried) {
        Expr first = isCut ? firstKeyOf(at) : at;
        Expr block = first / selectBlock;
        Value isListed = b.map(
            {queries.entries, queries.start}, b.i1(), [&](ArrayRef<Expr> x) {
              Expr border = queries.getBorder(block, x[1]);
              return queries.isOwn(x[0], block, border, first) |
                     queries.isBefore(x[0], block, border, first);
            });
        return b.ifThenElse(
            b.any(isListed),
            [&] {
              return body(makePackedKeyTile(program, rows, k, v, first),
                          carried);
            },
            [&] { return llvm::to_vector(carried); });
      });
}

Value SelectedAttention::launchNumbers(KernelCache &cache, OpBuilder &builder,
                                       Operation *op, Value indices,
                                       Value start, Value at) const {
  if (!start)
    return indices;
  int64_t queries = getTileSize(shape.sequence);
  KernelSpec spec;
  spec.ownName = "selection_numbers";
  spec.shape = shape.rowsName() + "h" + std::to_string(shape.keyHeads) + "_" +
               selectionName();
  spec.grid = {ceilDiv(shape.sequence, queries), shape.keyHeads, shape.batch};
  spec.setIndices(indices, selectBlock, at);
  SmallVector<Value> inputs = {indices, start};
  if (at)
    inputs.push_back(at);
  return cache.launchOnce(
      builder, op, spec, inputs, indices.getType(),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        auto [inSequence, starts] = named<2>(args.take_front(2));
        Value inRow = args.back();
        Expr batch = b.programId(2);
        auto sequence =
            QueryPlace::load(b, shape, at ? args[2] : Value(), batch);
        Value t = b.range(b.programId(0) * queries, queries, 0);
        SmallVector<tile::Operand> place = {batch, b.programId(1), t,
                                            b.range(0, count, 1)};
        Value numbers =
            b.map({b.load(inSequence, place),
                   b.load(starts, {sequence.batch, sequence.of(b, t)})},
                  b.i32(), [&](ArrayRef<Expr> x) {
                    return select(x[0] >= 0, x[0] + x[1] / selectBlock, -1);
                  });
        b.store(numbers, inRow, place);
      })[0];
}

//===----------------------------------------------------------------------===//
// Key tiles
//===----------------------------------------------------------------------===//

SmallVector<Value> AttentionBranches::forEachKeyTile(
    const RowProgram &program, int64_t branch, const AttentionOperands &in,
    ArrayRef<Value> inits, KeyTileBody body) const {
  const AttentionOperands::Branch &own = in.branches[branch];
  if (const auto &range = ranges[branch])
    return range->forEachKeyTile(program, own.key, own.value, own.indices,
                                 inits, body);
  return selected->forEachKeyTile(program, own.indices, in.selection, own.key,
                                  own.value, inits, body);
}

SmallVector<Value> SelectedAttention::forEachKeyTile(
    const RowProgram &program, Value indices, const SelectionUnion &selection,
    Value k, Value v, ArrayRef<Value> inits, KeyTileBody body) const {
  if (isPacked && !selection.counts)
    return forEachKeyTileOfPacked(program, indices, k, v, inits, body);
  TileBuilder &b = program.b;
  const QueryRange &range = program.range;
  Value slots = b.range(0, count, 1);
  bool isAlone = isParallel && !selection.counts;
  Value blocks;
  std::optional<PackedLists> packed;
  if (isPacked)
    packed.emplace(*this, program, indices, range.query);
  else if (!isAlone)
    blocks = b.load(indices, {range.batch, range.keyHead, range.query, slots});
  auto perBlock = static_cast<int64_t>(llvm::divideCeil(selectBlock, stepTile));
  // The key tiles of `number` blocks.
  auto forEachOf = [&](Expr number, llvm::function_ref<Expr(Expr)> blockOf) {
    return b.forLoop(
        0, number * perBlock, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
          Expr block = blockOf(perBlock == 1 ? i : i / perBlock);
          Expr first = block * selectBlock;
          if (perBlock > 1)
            first = first + i % perBlock * stepTile;
          KeyTile tile = packed
                             ? makePackedKeyTile(program, *packed, k, v, first)
                             : makeKeyTile(program, blocks, k, v, block, first);
          if (!skipsPerWarp())
            return body(tile, carried);
          Value isSelected = b.map({tile.row}, b.i1(),
                                   [](ArrayRef<Expr> x) { return x[0] >= 0; });
          return b.ifThenElse(
              b.anyOfWarp(isSelected), [&] { return body(tile, carried); },
              [&] { return llvm::to_vector(carried); });
        });
  };
  if (selection.counts) {
    Expr tile = range.first / queryTile;
    return forEachOf(
        b.loadScalar(selection.counts, {range.batch, range.keyHead, tile}),
        [&](Expr i) {
          return b.loadScalar(selection.blocks,
                              {range.batch, range.keyHead, tile, i});
        });
  }
  if (isAlone) {
    Expr own = range.place().of(range.first) / selectBlock;
    return forEachOf(min(own + 1, count), [&](Expr i) {
      return b.loadScalar(indices,
                          {range.batch, range.keyHead, range.first, i});
    });
  }
  // The same as `blocks`, but once for each query instead of once for each row.
  Value lists = b.load(indices, {range.batch, range.keyHead,
                                 b.range(range.first, range.count, 0), slots});
  Expr endKey = min(range.place().of(range.first + range.count), shape.tokens);
  return b.forLoop(
      0, endKey, stepTile, inits, [&](Expr u0, ArrayRef<Value> carried) {
        Expr block = u0 / selectBlock;
        // -1 never matches.
        Value isListed = b.map({lists}, b.i1(),
                               [&](ArrayRef<Expr> x) { return x[0] == block; });
        return b.ifThenElse(
            b.any(isListed),
            [&] {
              return body(makeKeyTile(program, blocks, k, v, block, u0),
                          carried);
            },
            [&] { return llvm::to_vector(carried); });
      });
}
