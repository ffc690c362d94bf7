//===- SelectionLists.cpp - what some queries selected --------------------===//

#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

Expr SelectionLists::isSeen(Expr entry, Expr t) const {
  return (entry >= 0) & (entry * selectBlock <= place.of(t)) & (t < sequence);
}

Value SelectionLists::findBits(TileBuilder &b, Expr block,
                               int64_t blocks) const {
  assert(blocks > 0 && blocks <= 32 && "more blocks than a number has bits");
  return b.reduceAdd(b.map({entries, number}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr place = x[0] - block;
    Expr isOne = (place >= 0) & (place < blocks) & isSeen(x[0], x[1]);
    return select(isOne, x[0].constant(1) << (place & place.constant(31)), 0);
  }));
}

/// First bits of one number, then an element for each.
Value SelectionLists::findMembers(TileBuilder &b, Expr block,
                                  int64_t blocks) const {
  Value bits = findBits(b, block, blocks);
  return b.map({bits, b.range(0, blocks, 1)}, b.i32(), [](ArrayRef<Expr> x) {
    return (x[0] >> x[1]) & x[0].constant(1);
  });
}

Value nsa::sumBefore(TileBuilder &b, Value row) {
  int64_t cols = cast<TileType>(row.getType()).getCols();
  return b.reduceAdd(
      b.map({b.transpose(row), b.range(0, cols, 0), b.range(0, cols, 1)},
            b.i32(),
            [](ArrayRef<Expr> x) { return select(x[1] < x[2], x[0], 0); }),
      /*axis=*/0);
}
