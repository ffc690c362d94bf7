//===- ElementwiseTest.cpp - maps, reductions, functions, 16 bits ---------===//
//------------===//

#include "test/unit/TileToCPU/KernelTest.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

static constexpr double infinity = std::numeric_limits<double>::infinity();
static constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();

namespace {
class ElementwiseTest : public KernelTest {
protected:
  /// Applies a function to given numbers, on vectors and on a scalar.
  void checkFunction(Expr (*function)(Expr), std::vector<double> numbers,
                     double tolerance = 3e-7) {
    std::string type = std::to_string(numbers.size()) + "xf32";
    int64_t count = numbers.size();
    KernelCase test;
    test.inputs = {type};
    test.outputs = {type, "1xf32"};
    test.data[0] = std::move(numbers);
    test.tolerance = tolerance;
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      Value i = b.range(0, count, 1);
      Value y = b.map({b.load(args[0], {i})}, b.f32(),
                      [&](ArrayRef<Expr> x) { return function(x[0]); });
      b.store(y, args[1], {i});
      b.storeScalar(function(b.loadScalar(args[0], {0})), args[2], {0});
    };
    check(test);
  }
};
} // namespace

static std::vector<double> numbersBetween(double low, double high) {
  std::vector<double> numbers;
  for (int i = 0; i <= 500; ++i)
    numbers.push_back(static_cast<float>(low + (high - low) * i / 500));
  return numbers;
}

TEST_F(ElementwiseTest, Exponentials_AreExact) {
  // The tolerance is relative to the largest number: small ranges.
  for (double low : {-80.0, -10.0, -1.0, 0.0, 40.0, 87.0})
    checkFunction(exp, numbersBetween(low, low + 1));
  checkFunction(exp2, numbersBetween(-3, 3));
  checkFunction(
      exp, {-infinity, infinity, notANumber, 0, -0.0, 89, 1000, -104, -1e30});
  checkFunction(exp2,
                {-infinity, infinity, notANumber, 0, -0.0, 128, 1000, -200});
}

TEST_F(ElementwiseTest, OtherFunctions_AreExact) {
  checkFunction(log, numbersBetween(0.01, 3));
  checkFunction(log, numbersBetween(0.99, 1.01));
  checkFunction(log, {0, infinity, notANumber, 1e-40, 3e38, -1});
  checkFunction(rsqrt, numbersBetween(0.1, 10));
  checkFunction(rsqrt, {infinity, 4, notANumber});
  checkFunction(sqrt, numbersBetween(0, 10));
  checkFunction(tanh, numbersBetween(-5, 5), 1e-6);
  checkFunction(sin, numbersBetween(-5, 5), 1e-6);
  checkFunction(cos, numbersBetween(-5, 5), 1e-6);
}

TEST_F(ElementwiseTest, BF16_RoundsToNearestEven) {
  KernelCase test;
  test.inputs = {"14xf32"};
  test.outputs = {"14xbf16", "14xf32"};
  test.data[0] = {
      1.00390625, 1.01171875, 1.005859375,        infinity, -infinity,
      notANumber, -0.0,       1.0000001192092896, 65504,    3.38e38,
      1e-30,      -1.0039062, 1.0117189884185791, 0};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value i = b.range(0, 14, 1);
    Value narrow =
        b.convertTo(b.load(args[0], {i}), b.getBuilder().getBF16Type());
    b.store(narrow, args[1], {i});
    b.store(b.toF32(narrow), args[2], {i});
  };
  test.tolerance = 0;
  check(test);
}

// Beside ties: subnormal numbers, the largest one, and what rounds to infinity.
TEST_F(ElementwiseTest, F16_RoundsToNearestEven) {
  KernelCase test;
  test.inputs = {"14xf32"};
  test.outputs = {"14xf16", "14xf32"};
  test.data[0] = {1.00048828125,  1.00146484375,
                  1.000732421875, infinity,
                  -infinity,      notANumber,
                  -0.0,           65504,
                  65519.99,       65520,
                  6e-8,           2.9e-8,
                  -6.1e-5,        1.0000001192092896};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value i = b.range(0, 14, 1);
    Value narrow =
        b.convertTo(b.load(args[0], {i}), b.getBuilder().getF16Type());
    b.store(narrow, args[1], {i});
    b.store(b.toF32(narrow), args[2], {i});
  };
  test.tolerance = 0;
  check(test);
}

TEST_F(ElementwiseTest, ReductionsOfEveryShape_AreRight) {
  const std::pair<int64_t, int64_t> shapes[] = {
      {8, 16}, {5, 11}, {1, 33}, {33, 1}, {1, 1}, {3, 3}, {7, 8}};
  for (auto [rows, cols] : shapes)
    for (int axis : {0, 1})
      for (auto kind : {ReduceKind::Add, ReduceKind::Max, ReduceKind::Min}) {
        int64_t r = rows, c = cols;
        std::string shape = std::to_string(r) + "x" + std::to_string(c);
        std::string reduced =
            axis == 0 ? "1x" + std::to_string(c) : std::to_string(r) + "x1";
        KernelCase test;
        test.inputs = {shape + "xf32", shape + "xi32"};
        test.outputs = {reduced + "xf32", reduced + "xi32", shape + "xf32"};
        test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
          Value row = b.range(0, r, 0), col = b.range(0, c, 1);
          Value x = b.map({b.load(args[0], {row, col})}, b.f32(),
                          [](ArrayRef<Expr> x) { return exp(x[0]); });
          llvm::SmallVector<Operand> all{row, col}, rest{row, col};
          rest[axis] = Operand(0);
          b.store(b.reduce(kind, x, axis), args[2], rest);
          b.store(b.reduce(kind, b.load(args[1], {row, col}), axis), args[3],
                  rest);
          b.store(x, args[4], all);
        };
        check(test);
      }
}

TEST_F(ElementwiseTest, MasksAndSeveralResults_AreRight) {
  KernelCase test;
  test.inputs = {"9x13xf32", "9x13xi32"};
  test.outputs = {"9x13xf32", "9x13xf32", "9x13xi32"};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value row = b.range(0, 9, 0), col = b.range(0, 13, 1);
    Value x = b.load(args[0], {row, col}), n = b.load(args[1], {row, col});
    auto maps = b.map({x, n, row, col}, {b.i1(), b.f32(), b.i32()},
                      [](ArrayRef<Expr> e) -> llvm::SmallVector<Value> {
                        Expr visible = (e[2] <= e[3]) & (e[1] != 3);
                        return {visible, e[0] * e[0] - 1, e[1] / 7 + e[1] % 5};
                      });
    // The mask is used twice, so it lives in memory.
    for (int i : {0, 1}) {
      Value chosen = b.map({maps[0], maps[1]}, b.f32(), [&](ArrayRef<Expr> e) {
        return select(e[0], e[1] + i, -1.0);
      });
      b.store(chosen, args[2 + i], {row, col});
    }
    // Division by a variable, with a divisor of zero in the padding.
    Value quotient = b.map({maps[2], col}, b.i32(),
                           [](ArrayRef<Expr> e) { return e[0] / (e[1] + 1); });
    b.store(quotient, args[4], {row, col});
  };
  check(test);
}

/// The last of nine columns is alone in its vector, and what is computed for it
/// alone must be rounded no other way.
TEST_F(ElementwiseTest, Elements_DoNotDependOnTheirPlace) {
  KernelCase test;
  test.inputs = {"64x16xf32"};
  test.outputs = {"64x16xf32", "64x9xf32", "64x9xf32"};
  test.body = [](TileBuilder &b, ArrayRef<Value> args) {
    Value nine = b.range(0, 9, 1), all = b.range(0, 16, 1);
    auto apply = [&](Value x) {
      return b.map({x}, b.f32(), [](ArrayRef<Expr> e) {
        Expr y = e[0] * (1 - e[0]) + 1;
        return (y - e[0] * y) * (3 - y * y);
      });
    };
    Value rows = b.range(0, 64, 0);
    b.store(apply(b.load(args[0], {rows, all})), args[1], {rows, all});
    b.store(apply(b.load(args[0], {rows, nine})), args[2], {rows, nine});
    Value x = b.load(args[1], {rows, nine}), y = b.load(args[2], {rows, nine});
    b.store(
        b.map({x, y}, b.f32(), [](ArrayRef<Expr> e) { return e[0] - e[1]; }),
        args[3], {rows, nine});
  };
  check(test);
}
