//===- RowsTest.cpp - transposition, top-n lists, sorting, control flow ---===//

#include "test/unit/TileToCPU/KernelTest.h"

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

namespace {
class RowsTest : public KernelTest {};
} // namespace

static std::string shapeOf(int64_t rows, int64_t cols, const char *element) {
  return std::to_string(rows) + "x" + std::to_string(cols) + "x" + element;
}

TEST_F(RowsTest, Transpose_IsRight) {
  const std::pair<int64_t, int64_t> shapes[] = {
      {8, 8}, {16, 24}, {9, 17}, {3, 5}, {1, 12}, {12, 1}, {13, 8}};
  for (auto [rows, cols] : shapes)
    for (const char *element : {"f32", "bf16", "f16"}) {
      int64_t r = rows, c = cols;
      KernelCase test;
      test.inputs = {shapeOf(r, c, element)};
      test.outputs = {shapeOf(c, r, element)};
      test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
        Value x = b.load(args[0], {b.range(0, r, 0), b.range(0, c, 1)});
        b.store(b.transpose(x), args[1], {b.range(0, c, 0), b.range(0, r, 1)});
      };
      check(test);
    }
}

/// Whether a tile holds each of some numbers: at its ends, in the middle, or
/// not at all.
TEST_F(RowsTest, Any_IsRight) {
  const std::pair<int64_t, int64_t> shapes[] = {{8, 16}, {3, 5},  {1, 1},
                                                {1, 9},  {13, 1}, {4, 8}};
  for (auto [rows, cols] : shapes) {
    int64_t r = rows, c = cols, numbers = 5;
    KernelCase test;
    test.inputs = {shapeOf(r, c, "i32")};
    test.outputs = {shapeOf(1, numbers, "i32")};
    test.data[0].assign(r * c, -1);
    test.data[0][0] = 0;
    test.data[0][r * c / 2] = 1;
    test.data[0][r * c - 1] = 2;
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Value x = b.load(args[0], {b.range(0, r, 0), b.range(0, c, 1)});
      b.forLoop(0, numbers, 1, {},
                [&](Expr number, ArrayRef<Value>) -> llvm::SmallVector<Value> {
                  Value equal = b.map({x}, b.i1(), [&](ArrayRef<Expr> e) {
                    return e[0] == number;
                  });
                  b.storeScalar(convert(b.any(equal), b.i32()), args[1],
                                {0, number});
                  return {};
                });
    };
    check(test);
  }
}

/// Sums of the rows of a product, and of these: a tile of one column that
/// several warps of a GPU hold, each row four times.
TEST_F(RowsTest, SumsOfSums_AreRight) {
  const int64_t numRows[] = {16, 40, 64, 130};
  for (int64_t rows : numRows) {
    KernelCase test;
    test.inputs = {shapeOf(rows, 16, "bf16"), shapeOf(16, 16, "bf16")};
    test.outputs = {shapeOf(rows, 1, "f32"), shapeOf(1, 1, "f32")};
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Value row = b.range(0, rows, 0), col = b.range(0, 16, 1);
      Value x = b.load(args[0], {row, col});
      Value y = b.load(args[1], {b.range(0, 16, 0), col});
      Value sums = b.reduceAdd(b.dot(x, y, b.zeros(rows, 16)), /*axis=*/1);
      b.store(sums, args[2], {row, b.range(0, 1, 1)});
      b.store(b.reduceAdd(sums, /*axis=*/0), args[3],
              {b.range(0, 1, 0), b.range(0, 1, 1)});
    };
    check(test);
  }
}

TEST_F(RowsTest, TopNAndSort_AreRight) {
  struct Shape {
    int64_t rows, cols, slots, tiles;
  };
  // With many tiles, few candidates of the last ones enter.
  const Shape shapes[] = {{4, 32, 4, 2},   {3, 9, 1, 2},    {5, 17, 16, 2},
                          {2, 5, 20, 2},   {1, 64, 3, 2},   {6, 8, 8, 2},
                          {3, 24, 40, 2},  {70, 31, 16, 9}, {9, 24, 8, 7},
                          {33, 40, 32, 6}, {17, 32, 12, 8}};
  for (Shape shape : shapes) {
    KernelCase test;
    test.inputs = {shapeOf(shape.rows, shape.tiles * shape.cols, "f32")};
    test.outputs = {shapeOf(shape.rows, shape.slots, "f32"),
                    shapeOf(shape.rows, shape.slots, "i32"),
                    shapeOf(shape.rows, shape.slots, "i32")};
    // Ties, zeros and columns that are no candidates.
    const double choices[] = {-1, 0, 0.25, 0.25, 0.5, -0.5, -0.25};
    for (int64_t i = 0; i < shape.rows * shape.cols * shape.tiles; ++i)
      test.data[0].push_back(random() % 3 ? choices[random() % 7]
                                          : random() % 1024 / 1024.0);
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Value rows = b.range(0, shape.rows, 0);
      Value slots = b.range(0, shape.slots, 1);
      auto [values, indices] = std::pair<Value, Value>(
          b.full(-1, shape.rows, shape.slots),
          b.splat(b.constant(-1), shape.rows, shape.slots));
      auto results = b.forLoop(
          0, shape.tiles * shape.cols, shape.cols, {values, indices},
          [&](Expr base, ArrayRef<Value> best) -> llvm::SmallVector<Value> {
            Value x = b.load(args[0], {rows, b.range(base, shape.cols, 1)});
            auto [v, i] = b.topN(x, base, best[0], best[1]);
            return {v, i};
          });
      b.store(results[0], args[1], {rows, slots});
      b.store(results[1], args[2], {rows, slots});
      b.store(b.sort(results[1]), args[3], {rows, slots});
    };
    check(test);
  }
}

TEST_F(RowsTest, Loops_CarryTilesAndScalars) {
  KernelCase test;
  test.inputs = {"8x8xf32", "8x8xf32", "1xi32"};
  test.outputs = {"8x8xf32", "8x8xf32", "2xf32"};
  for (int trips : {0, 1, 5}) {
    test.data[2] = {double(trips)};
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Value rows = b.range(0, 8, 0), cols = b.range(0, 8, 1);
      Value x = b.load(args[0], {rows, cols});
      Value y = b.load(args[1], {rows, cols});
      // Tiles change places, and one start serves twice.
      auto results = b.forLoop(
          0, b.loadScalar(args[2], {0}), 1, {x, y, x, b.constantF32(1)},
          [&](Expr i, ArrayRef<Value> c) -> llvm::SmallVector<Value> {
            Value next = b.map({c[0], c[2]}, b.f32(), [&](ArrayRef<Expr> e) {
              return e[0] * 0.5 + e[1] + convert(i, b.f32());
            });
            return {c[1], next, c[0], b.expr(c[3]) * 2};
          });
      b.store(results[0], args[3], {rows, cols});
      b.store(results[1], args[4], {rows, cols});
      b.storeScalar(results[3], args[5], {0});
      Expr first = b.loadScalar(args[0], {0, 0});
      auto chosen = b.ifThenElse(
          first > 0.0,
          [&] { return llvm::SmallVector<Value>{results[2], first}; },
          [&] { return llvm::SmallVector<Value>{y, first * -1}; });
      b.storeScalar(chosen[1], args[5], {1});
      b.ifThen(first < 0.5,
               [&] { b.store(chosen[0], args[4], {b.range(4, 8, 0), cols}); });
    };
    check(test);
  }
}
