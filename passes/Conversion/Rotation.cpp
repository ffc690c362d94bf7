//===- Rotation.cpp - rotary embedding of elements and of rows ------------===//

#include "passes/Conversion/Rotation.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/bit.h"

#include <numeric>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

std::array<Value, 2> nsa::rotatePair(TileBuilder &b, Expr lower, Expr upper,
                                     Expr cosine, Expr sine, bool inverse) {
  // Which product is rounded must not depend on what the code generator finds
  // around it.
  auto multiplyAdd = [&](Expr x, Expr y, Expr z) -> Value {
    return math::FmaOp::create(b.getBuilder(), x, y, z);
  };
  Expr turn = inverse ? -sine : sine;
  return {multiplyAdd(cosine, lower, -(turn * upper)),
          multiplyAdd(cosine, upper, turn * lower)};
}

static int64_t countPairs(Value ref) {
  return cast<MemRefType>(ref.getType()).getShape().back() / 2;
}

void nsa::rotateRows(TileBuilder &b, Value from, Value to, Value table,
                     const RowsOfHeads &rows, Operand position, bool inverse) {
  int64_t pairs = countPairs(from);
  Value low = b.range(0, pairs, 1), high = b.range(pairs, pairs, 1);
  auto load = [&](Value columns) {
    return b.load(from, {rows.batch, rows.row, rows.head, columns});
  };
  auto rotated =
      b.map({load(low), load(high), b.load(table, {position, low, 0}),
             b.load(table, {position, low, 1})},
            {b.f32(), b.f32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              auto pair = rotatePair(b, x[0], x[1], x[2], x[3], inverse);
              return {pair[0], pair[1]};
            });
  b.store(rotated[0], to, {rows.batch, rows.row, rows.head, low});
  b.store(rotated[1], to, {rows.batch, rows.row, rows.head, high});
}

void nsa::rotateStretch(TileBuilder &b, Value from, Value to, Value table,
                        Expr batch, Expr head, Expr first, int64_t count,
                        int64_t stride, bool inverse) {
  // Two halves and their angles, in the registers of a few warps.
  constexpr int64_t mostPairs = 2048;
  int64_t fitting = std::max<int64_t>(mostPairs / countPairs(from), 1);
  int64_t some =
      count <= fitting
          ? count
          : std::gcd(count, int64_t(llvm::bit_floor(uint64_t(fitting))));
  auto rotate = [&](Expr begin) {
    rotateRows(b, from, to, table, {batch, b.range(begin, some, 0), head},
               b.range(begin * stride, some, 0, stride), inverse);
  };
  if (some == count)
    return rotate(first);
  b.forLoop(first, first + count, some, {},
            [&](Expr begin, ArrayRef<Value>) -> SmallVector<Value> {
              rotate(begin);
              return {};
            });
}
