//===- Rotation.cpp - rotary embedding of elements and of rows ------------===//

#include "passes/Kernels/Rotation.h"
#include "passes/Kernels/KernelOperands.h"

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

bool nsa::hasAnglesOfAll(Value table, const Extent &rows) {
  return !table || rows.isConstant() || !getExtent(table, 0).isConstant();
}

static int64_t countPairs(Value ref) {
  return cast<ShapedType>(ref.getType()).getShape().back() / 2;
}

/// Rows, a power of two, whose halves and angles fit the registers of a few
/// warps.
static int64_t getFittingRows(Value ref) {
  constexpr int64_t mostPairs = 4096;
  return llvm::bit_floor<uint64_t>(
      std::max<int64_t>(mostPairs / countPairs(ref), 1));
}

namespace {
/// Cosines and sines of some rows, f32 [rows, pairs] each.
struct Angles {
  Angles(TileBuilder &b, Value table, Operand position, int64_t pairs)
      : low(b.range(0, pairs, 1)), high(b.range(pairs, pairs, 1)),
        cosines(b.load(table, {position, low, 0})),
        sines(b.load(table, {position, low, 1})) {}

  void rotate(TileBuilder &b, Value from, Value to, const RowsOfHeads &rows,
              const RowsOfHeads &target, bool inverse) const;

  /// Columns of the two halves of a head.
  Value low, high;
  Value cosines, sines;
};
} // namespace

void Angles::rotate(TileBuilder &b, Value from, Value to,
                    const RowsOfHeads &rows, const RowsOfHeads &target,
                    bool inverse) const {
  auto load = [&](Value columns) {
    return b.load(from, {rows.batch, rows.row, rows.head, columns});
  };
  auto rotated =
      b.map({load(low), load(high), cosines, sines}, {b.f32(), b.f32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              auto pair = rotatePair(b, x[0], x[1], x[2], x[3], inverse);
              return {pair[0], pair[1]};
            });
  b.store(rotated[0], to, {target.batch, target.row, target.head, low});
  b.store(rotated[1], to, {target.batch, target.row, target.head, high});
}

void nsa::rotateRows(TileBuilder &b, Value from, Value to, Value table,
                     const RowsOfHeads &rows, Operand position, bool inverse,
                     const RowsOfHeads *target) {
  Angles(b, table, position, countPairs(from))
      .rotate(b, from, to, rows, target ? *target : rows, inverse);
}

Expr nsa::getPackedPosition(Expr row, Expr begin, int64_t stride,
                            const Extent &rows) {
  // The bounds prove that it is inside of the table.
  return min(max((row - begin / stride) * stride, 0), (rows - 1) * stride);
}

Value nsa::getPackedPositions(TileBuilder &b, Value row, Value start,
                              Operand batch, const Extent &rows) {
  if (!start)
    return row;
  return b.map({row, b.load(start, {batch, row})}, b.i32(),
               [&](ArrayRef<Expr> x) {
                 return getPackedPosition(x[0], x[1], /*stride=*/1, rows);
               });
}

/// The positions of the `count` rows of `ref` [B, rows, H, D] from `first` on.
static Value getPositions(TileBuilder &b, Value ref, Value start, Expr batch,
                          Expr first, int64_t count, int64_t stride) {
  if (!start)
    return b.range(first * stride, count, 0, stride);
  Extent rows = getExtent(ref, 1);
  Value begin = b.load(
      start, {batch, b.range(first * stride + (stride - 1), count, 0, stride)});
  return b.map({b.range(first, count, 0), begin}, b.i32(),
               [&](ArrayRef<Expr> x) {
                 return getPackedPosition(x[0], x[1], stride, rows);
               });
}

void nsa::rotateRange(TileBuilder &b, Value from, Value to, Value table,
                      Expr batch, Expr head, Expr first, int64_t count,
                      int64_t stride, bool inverse, Value start) {
  int64_t fitting = getFittingRows(from);
  int64_t some = count <= fitting ? count : std::gcd(count, fitting);
  auto rotate = [&](Expr begin) {
    rotateRows(b, from, to, table, {batch, b.range(begin, some, 0), head},
               getPositions(b, from, start, batch, begin, some, stride),
               inverse);
  };
  if (some == count)
    return rotate(first);
  b.forLoop(first, first + count, some, {},
            [&](Expr begin, ArrayRef<Value>) -> SmallVector<Value> {
              rotate(begin);
              return {};
            });
}

namespace {
struct RotationOperands {
  SmallVector<Value *> slots() { return {&from, &table, &start}; }

  Value from, table, start;
};
} // namespace

LaunchPart nsa::rotateTensor(Value from, Value table, Value start,
                             bool inverse) {
  constexpr int64_t mostHeads = 4;
  int64_t rows = std::min<int64_t>(64, getFittingRows(from));
  auto type = cast<RankedTensorType>(from.getType());
  Extent sequence = getExtent(from, 1);
  int64_t heads = type.getDimSize(2), width = type.getDimSize(3);
  KernelSpec spec = {"rotary",
                     "",
                     {ceilDiv(sequence, rows),
                      static_cast<int64_t>(llvm::divideCeil(heads, mostHeads)),
                      getExtent(from, 0)},
                     3 * type.getNumElements()};
  spec.takesExtents = !start && hasAnglesOfAll(table, sequence);
  return makeLaunch(
      spec, RotationOperands{from, table, start}, {type},
      [=](TileBuilder &b, const RotationOperands &in, ArrayRef<Value> out) {
        Expr firstHead = b.programId(1) * mostHeads;
        Expr firstRow = b.programId(0) * rows, batch = b.programId(2);
        Value row = b.range(firstRow, rows, 0);
        Angles angles(b, in.table,
                      getPositions(b, in.from, in.start, batch, firstRow, rows,
                                   /*stride=*/1),
                      width / 2);
        b.forLoop(firstHead, min(firstHead + mostHeads, heads), 1, {},
                  [&](Expr head, ArrayRef<Value>) -> SmallVector<Value> {
                    RowsOfHeads own = {batch, row, head};
                    angles.rotate(b, in.from, out.front(), own, own, inverse);
                    return {};
                  });
      });
}
