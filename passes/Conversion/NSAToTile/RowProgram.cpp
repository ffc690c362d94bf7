//===- RowProgram.cpp - rows of attention kernels, and their keys ---------===//

#include "passes/Conversion/NSAToTile/RowProgram.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

GroupProgram::GroupProgram(const AttentionShape &shape, int64_t queries,
                           TileBuilder &b, Expr tile)
    : b(b), group(shape.group()),
      range{b.programId(2), b.programId(1), tile * queries, queries, Value()} {
  Expr firstHead = range.keyHead * group;
  auto coordinates =
      b.map({b.range(0, numRows(), 0)}, {b.i32(), b.i32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              return {range.first + x[0] / group, firstHead + x[0] % group};
            });
  range.query = coordinates[0];
  head = coordinates[1];
}

RowTerms KeyValueGradArgs::loadTerms(TileBuilder &b, tile::Operand batch,
                                     tile::Operand head, Value query) const {
  RowTerms terms;
  terms.shift = finiteOrZero(b, b.load(lse, {batch, head, query}));
  if (branch) {
    terms.gate = b.load(statistics, {batch, head, gateOf(*branch), query});
    terms.delta = b.load(statistics, {batch, head, deltaOf(*branch), query});
  } else {
    terms.delta = b.load(statistics, {batch, head, query});
  }
  return terms;
}
