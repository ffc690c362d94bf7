//===- RowProgram.cpp - rows of attention kernels, and their keys ---------===//

#include "passes/Conversion/NSAToTile/RowProgram.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

GroupProgram::GroupProgram(const AttentionShape &shape, int64_t queries,
                           int64_t mTileQueries, TileBuilder &b, Expr tile)
    : RowProgram{
          b,
          {b.programId(2), b.programId(1), tile * queries, queries, Value()},
          Value(),
          Value()},
      group(shape.group()), mTileQueries(mTileQueries) {
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

Expr GroupProgram::headInGroup(Expr row) const {
  if (mTileQueries == 0)
    return row % group;
  Expr inMTile = row % mTileRows;
  return select(inMTile < mTileQueries * group, inMTile % group, -1);
}

RowTerms KeyValueGradArgs::loadTerms(TileBuilder &b, const Exponent &exponent,
                                     tile::Operand batch, tile::Operand head,
                                     Value query) const {
  RowTerms terms;
  terms.shift = exponent.fromLse(b, b.load(lse, {batch, head, query}));
  if (branch) {
    terms.gate = b.load(statistics, {batch, head, gateOf(*branch), query});
    terms.delta = b.load(statistics, {batch, head, deltaOf(*branch), query});
  } else {
    terms.delta = b.load(statistics, {batch, head, query});
  }
  return terms;
}

void nsa::addParts(TileBuilder &b, Value parts, Value out, Expr batch,
                   Value row, Expr head, double scale,
                   tile::Operand firstPart) {
  ArrayRef<int64_t> shape = cast<MemRefType>(parts.getType()).getShape();
  Value cols = b.range(0, shape.back(), 1);
  int64_t rows = cast<TileType>(row.getType()).getRows();
  Value sum =
      b.forLoop(firstPart, shape.front(), 1, {b.zeros(rows, shape.back())},
                [&](Expr part, ArrayRef<Value> carried) -> SmallVector<Value> {
                  return {add(b, carried[0],
                              b.load(parts, {part, batch, row, head, cols}))};
                })[0];
  b.store(scaled(b, sum, scale), out, {batch, row, head, cols});
}

void nsa::storeAttention(
    TileBuilder &b, const RowProgram &program, const AttentionShape &shape,
    Value q, Value o, Value lse,
    function_ref<SmallVector<Value>(ArrayRef<Value> inits, KeyTileBody body)>
        forEachKeyTile) {
  Value queries = program.loadRows(q, shape.keyWidth);
  auto init = OnlineSoftmax::init(b, program.numRows(), shape.valueWidth);
  auto results = forEachKeyTile(
      init.carried(), [&](const KeyTile &tile, ArrayRef<Value> carried) {
        return attend(b, queries, tile, shape.exponent(),
                      OnlineSoftmax::fromCarried(carried))
            .carried();
      });
  auto softmax = OnlineSoftmax::fromCarried(results);
  program.storeRows(softmax.output(b), o, shape.valueWidth);
  program.storeStatistic(softmax.lse(b, shape.exponent()), lse);
}
