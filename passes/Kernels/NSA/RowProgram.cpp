//===- RowProgram.cpp - rows of attention kernels, and their keys ---------===//

#include "passes/Kernels/NSA/RowProgram.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

void QueryRange::setSequences(TileBuilder &b, const AttentionShape &shape,
                              Value at, Value start) {
  this->start = start;
  if (!at)
    return;
  inside = QueryPlace::load(b, shape, at, batch);
  position = inside->of(b, query);
}

KeyTile QueryRange::loadKeys(TileBuilder &b, const AttentionShape &shape,
                             Value rows, Value k, Value v) const {
  auto load = [&](Value from, Value columns) {
    return b.load(from, {place().batch, rows, keyHead, columns});
  };
  KeyTile tile;
  tile.keys = load(k, shape.columns(b, shape.keyWidth));
  tile.values = load(v, isGradient ? shape.columns(b, shape.valueWidth)
                                   : shape.ownColumns(b, shape.valueWidth));
  if (isGradient && shape.columnParts > 1)
    tile.ownKeys = load(k, shape.ownColumns(b, shape.keyWidth));
  return tile;
}

Value RowProgram::dotRows(const AttentionShape &shape, Value loaded, Value lhs,
                          Value rhs) const {
  // Registers hold no long rows besides those of the program.
  constexpr int64_t most = 128, slice = 64;
  int64_t width = shape.padded(shape.valueWidth);
  if (shape.columnMultiple == 1 || width <= most)
    return rowDot(b, loaded, loadRows(rhs, b.range(0, width, 1)));
  return b.forLoop(
      0, width, slice, {b.zeros(numRows(), 1)},
      [&](Expr first, ArrayRef<Value> sum) -> SmallVector<Value> {
        Value columns = b.range(first, slice, 1);
        return {add(b, sum[0],
                    rowDot(b, loadRows(lhs, columns), loadRows(rhs, columns)))};
      })[0];
}

/// Rows of several heads of one query follow each other in memory.
RowProgram nsa::makeHeadsProgram(const AttentionShape &shape, int64_t queries,
                                 int64_t heads, TileBuilder &b, Expr tile) {
  Expr firstHead = b.programId(1) * heads;
  RowProgram program{b,
                     {b.programId(2), firstHead / shape.group(), tile * queries,
                      queries, Value()},
                     Value(),
                     Value()};
  auto coordinates = b.map({b.range(0, queries * heads, 0)}, {b.i32(), b.i32()},
                           [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                             return {program.range.first + x[0] / heads,
                                     firstHead + x[0] % heads};
                           });
  program.range.query = program.stored = coordinates[0];
  program.head = coordinates[1];
  return program;
}

GroupProgram::GroupProgram(const AttentionShape &shape, int64_t queries,
                           int64_t mTileRows, TileBuilder &b, Expr tile)
    : RowProgram{
          b,
          {b.programId(2), b.programId(1), tile * queries, queries, Value()},
          Value(),
          Value(),
          shape.group(),
          mTileRows,
          mTileRows / shape.group()} {
  Expr firstHead = range.keyHead * group;
  int64_t rows =
      mTileQueries == 0 ? queries * group : queries / mTileQueries * mTileRows;
  Value row = b.range(0, rows, 0);
  if (mTileQueries == 0) {
    auto coordinates = b.map(
        {row}, {b.i32(), b.i32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
          return {range.first + x[0] / group, firstHead + x[0] % group};
        });
    range.query = stored = coordinates[0];
    head = coordinates[1];
    return;
  }
  auto coordinates =
      b.map({row}, {b.i32(), b.i32(), b.i32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              Expr inMTile = x[0] % mTileRows;
              Expr number = min(inMTile / group, mTileQueries - 1);
              Expr query =
                  range.first + x[0] / mTileRows * mTileQueries + number;
              return {query, firstHead + inMTile % group,
                      select(headInGroup(x[0]) >= 0, query, -1)};
            });
  range.query = coordinates[0];
  head = coordinates[1];
  stored = coordinates[2];
}

Expr RowProgram::headInGroup(Expr row) const {
  if (mTileQueries == 0)
    return row % group;
  Expr inMTile = row % mTileRows;
  return select(inMTile < mTileQueries * group, inMTile % group, -1);
}

RowStatistics::RowStatistics(const AttentionShape &shape, int64_t branches,
                             bool gated, bool folded, bool isParallel)
    : shape({shape.batch, shape.queryHeads, shape.sequence}),
      pitch(getRowPitch(shape.sequence, isParallel)), branches(branches),
      gated(gated), folded(folded) {}

RankedTensorType RowStatistics::getType(KernelCache &cache) const {
  SmallVector<Extent> sizes(shape);
  if (int64_t numbers = perBranch() * branches; numbers > 1)
    sizes.insert(sizes.end() - 1, numbers);
  return cache.getRowsType(sizes, cache.getF32Type(), pitch);
}

SmallVector<tile::Operand> RowStatistics::place(tile::Operand batch,
                                                tile::Operand head,
                                                int64_t number,
                                                Value query) const {
  if (perBranch() * branches == 1)
    return {batch, head, query};
  return {batch, head, number, query};
}

void RowStatistics::store(const RowProgram &program, int64_t branch,
                          const RowTerms &terms, Value lse, Value ref) const {
  auto storeNumber = [&](Value value, int64_t number) {
    program.b.store(
        value, ref,
        place(program.range.batch, program.head, number, program.stored));
  };
  int64_t delta = deltaOf(branch);
  if (gated)
    storeNumber(folded ? terms.shift : terms.gate, delta - 1);
  storeNumber(terms.delta, delta);
  if (hasLse())
    storeNumber(lse, delta + 1);
}

RowTerms RowStatistics::load(TileBuilder &b, const Exponent &exponent,
                             int64_t branch, Value ref, Value lse,
                             tile::Operand batch, tile::Operand head,
                             Value query) const {
  auto loadNumber = [&](int64_t number) {
    return b.load(ref, place(batch, head, number, query));
  };
  int64_t delta = deltaOf(branch);
  RowTerms terms;
  if (folded)
    terms.shift = loadNumber(delta - 1);
  else
    terms.shift =
        exponent.fromLse(b, hasLse() ? loadNumber(delta + 1)
                                     : b.load(lse, {batch, head, query}));
  if (gated && !folded)
    terms.gate = loadNumber(delta - 1);
  terms.delta = loadNumber(delta);
  return terms;
}
