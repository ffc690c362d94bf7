//===- MemoryTest.cpp - loads and stores, inside and outside --------------===//

#include "test/unit/TileToCPU/KernelTest.h"
#include <numeric>

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

namespace {
class MemoryTest : public KernelTest {};
} // namespace

TEST_F(MemoryTest, BlocksThatReachOutside_ReadZeros) {
  struct Block {
    int64_t rows, cols;
    int row, col;
  };
  const Block blocks[] = {{8, 16, 0, 0},   {8, 16, 16, 0},      {8, 12, 3, 2},
                          {5, 16, -2, -2}, {5, 16, 18, 9},      {1, 24, 4, 0},
                          {3, 40, -1, 10}, {20, 1, 2, 0},       {8, 16, 100, 0},
                          {8, 16, 0, -40}, {4, 3, 100000000, 0}};
  for (Block block : blocks)
    for (std::string element : {"f32", "bf16", "f16", "i32"})
      for (bool known : {false, true}) {
        KernelCase test;
        test.inputs = {"20x2x13x" + element, "2xi32"};
        test.outputs = {"20x2x13x" + element, "20x13x" + element};
        test.data[1] = {double(block.row), double(block.col)};
        test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
          Expr row = known ? b.constant(block.row) : b.loadScalar(args[1], {0});
          Expr col = known ? b.constant(block.col) : b.loadScalar(args[1], {1});
          Value rows = b.range(row, block.rows, 0);
          Value cols = b.range(col, block.cols, 1);
          Value x = b.load(args[0], {rows, 1, cols});
          b.store(x, args[2], {rows, 0, cols});
          b.store(x, args[2],
                  {b.range(row + 1, block.rows, 0), 1,
                   b.range(col - 1, block.cols, 1)});
          // Through arithmetic, so that load and store meet in one loop.
          Value y = b.load(args[0], {rows, 0, cols});
          Value twice = b.map({y}, cast<TileType>(y.getType()).getElementType(),
                              [](ArrayRef<Expr> e) { return e[0] + e[0]; });
          b.store(twice, args[3], {rows, cols});
        };
        check(test);
      }
}

/// Columns of wider matrices: nothing between them is touched.
TEST_F(MemoryTest, Columns_AreReadAndWritten) {
  for (std::string element : {"f32", "bf16", "f16", "i32"})
    for (std::string columns : {"13", "16", "36"}) {
      KernelCase test;
      std::string shape = "2x20x" + columns + "x" + element;
      test.inputs = {shape + "/50", "2xi32"};
      test.outputs = {shape + "/37", shape};
      test.data[1] = {1, 3};
      int64_t width = std::stoll(columns);
      test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
        Expr one = b.loadScalar(args[1], {0}),
             three = b.loadScalar(args[1], {1});
        Value cols = b.range(0, width, 1), rows = b.range(0, 20, 0);
        Value x = b.load(args[0], {one, rows, cols});
        b.store(x, args[2], {0, rows, cols});
        // In part outside, shifted, and through arithmetic.
        Value y =
            b.load(args[0], {0, b.range(three, 20, 0), b.range(three, 24, 1)});
        Value twice = b.map({y}, cast<TileType>(y.getType()).getElementType(),
                            [](ArrayRef<Expr> e) { return e[0] + e[0]; });
        b.store(twice, args[2], {1, b.range(one, 20, 0), b.range(-2, 24, 1)});
        // A column, and scalars.
        b.store(b.load(args[0], {1, rows, 5}), args[3], {1, rows, 2});
        b.storeScalar(b.loadScalar(args[0], {one, three, 4}), args[3],
                      {0, three, 1});
      };
      check(test);
    }
}

/// Products in 16 bits, of which some columns are outside.
TEST_F(MemoryTest, NarrowColumnsThatReachOutside_ReadZeros) {
  for (int first : {0, 8, -8}) {
    KernelCase test;
    test.grid = {2, 1, 1};
    test.inputs = {"64x16xbf16", "48x16xbf16"};
    test.outputs = {"64x48xbf16"};
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Expr start = b.programId(0) * 32 + first;
      Value rows = b.range(0, 64, 0), across = b.range(0, 16, 1);
      Value left = b.load(args[0], {rows, across});
      Value right = b.load(args[1], {b.range(start, 32, 0), across});
      Value sums = b.dot(left, right, b.zeros(64, 32), /*transposeB=*/true);
      auto element = cast<TileType>(left.getType()).getElementType();
      Value narrow = b.map({sums}, element, [&](ArrayRef<Expr> e) {
        return convert(e[0], element);
      });
      b.store(narrow, args[2], {rows, b.range(start, 32, 1)});
    };
    check(test);
  }
}

TEST_F(MemoryTest, GatheredRows_AreRight) {
  KernelCase test;
  test.inputs = {"10x24xf32", "6xi32"};
  test.outputs = {"6x24xf32", "24x10xf32", "12x24xf32", "24xf32"};
  test.data[1] = {3, -1, 9, 0, 10, 5};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value six = b.range(0, 6, 0);
    // Rows by index, -1 among them.
    Value ids = b.load(args[1], {six});
    Value cols = b.range(0, 24, 1);
    b.store(b.load(args[0], {ids, cols}), args[2], {six, cols});
    // Transposed, with steps, and a column.
    Value rows = b.range(0, 10, 1), down = b.range(0, 24, 0);
    b.store(b.load(args[0], {rows, down}), args[3], {down, rows});
    Value odd = b.load(args[0], {b.range(1, 4, 0, 3), b.range(0, 12, 1, 2)});
    b.store(odd, args[4], {b.range(0, 4, 0, 2), b.range(1, 12, 1, 2)});
    b.store(b.load(args[0], {b.range(-2, 16, 0), 5}), args[5],
            {b.range(3, 16, 0)});
  };
  check(test);
}

TEST_F(MemoryTest, ScalarsAndEmptyTensors_AreRight) {
  KernelCase test;
  test.inputs = {"4x4xf32", "2xi32", "0x24xf32", "1xbf16"};
  test.outputs = {"4xf32", "24xf32", "1xbf16"};
  test.data[1] = {2, 7};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Expr inside = b.loadScalar(args[1], {0});
    Expr outside = b.loadScalar(args[1], {1});
    Value x = b.load(args[0], {inside, inside});
    b.storeScalar(x, args[4], {0});
    b.storeScalar(b.load(args[0], {inside, outside}), args[4], {1});
    b.storeScalar(x, args[4], {inside});
    b.storeScalar(x, args[4], {outside});
    Value cols = b.range(0, 24, 1);
    b.store(b.load(args[2], {0, cols}), args[5], {cols});
    Expr narrow = convert(b.loadScalar(args[3], {0}), b.f32());
    b.storeScalar(narrow * 3, args[6], {0});
  };
  check(test);
}

TEST_F(MemoryTest, GridOfThreeAxes_IsCovered) {
  KernelCase test;
  test.grid = {3, 2, 4};
  test.inputs = {"4x2x3x8xf32"};
  test.outputs = {"3x2x4x8xf32"};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Expr x = b.programId(0), y = b.programId(1), z = b.programId(2);
    Value cols = b.range(0, 8, 1);
    Value v = b.load(args[0], {z, y, x, cols});
    b.store(b.map({v}, b.f32(),
                  [&](ArrayRef<Expr> e) {
                    return e[0] + convert(x * 100 + y * 10 + z, b.f32());
                  }),
            args[1], {x, y, z, cols});
  };
  check(test);
}

TEST_F(MemoryTest, Stores_KeepTheirOrder) {
  KernelCase test;
  test.inputs = {};
  test.outputs = {"16xf32", "16xf32"};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value here = b.range(0, 8, 1), next = b.range(1, 8, 1);
    // Each load sees what was stored before it, and nothing later.
    Value before = b.load(args[0], {here});
    b.store(b.full(2, 1, 8), args[0], {here});
    Value after = b.load(args[0], {next});
    Value sum = b.map({before, after}, b.f32(),
                      [](ArrayRef<Expr> e) { return e[0] * 10 + e[1]; });
    b.store(sum, args[0], {next});
    b.store(sum, args[1], {here});
    b.store(b.load(args[0], {here}), args[1], {b.range(8, 8, 1)});
  };
  check(test);
}

/// A store may run with what it stores, but not before an earlier load of the
/// same place, which may run later.
TEST_F(MemoryTest, Loads_SeeNoLaterStore) {
  KernelCase test;
  test.inputs = {"3x24xf32"};
  test.outputs = {"3x24xf32", "3x24xf32"};
  test.data[1] = std::vector<double>(72);
  std::iota(test.data[1].begin(), test.data[1].end(), 100.0);
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value cols = b.range(0, 24, 1);
    b.forLoop(0, 3, 1, {}, [&](Expr row, ArrayRef<Value>) {
      Value twice = b.map({b.load(args[0], {row, cols})}, b.f32(),
                          [](ArrayRef<Expr> e) { return e[0] + e[0]; });
      Value sum = b.map({twice, b.load(args[1], {row, cols})}, b.f32(),
                        [](ArrayRef<Expr> e) { return e[0] + e[1]; });
      b.store(twice, args[1], {row, cols});
      Value top = b.reduce(ReduceKind::Max, sum, 1);
      Value distance = b.map({sum, top}, b.f32(),
                             [](ArrayRef<Expr> e) { return e[1] - e[0]; });
      b.store(distance, args[2], {row, cols});
      return llvm::SmallVector<Value>{};
    });
  };
  check(test);
}
