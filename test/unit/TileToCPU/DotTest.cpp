//===- DotTest.cpp - matmuls of every shape -------------------------------===//

#include "test/unit/TileToCPU/KernelTest.h"

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

namespace {
struct DotShape {
  int64_t m, n, k;
};

class DotTest : public KernelTest {
protected:
  void checkDot(DotShape s, bool transposeA, bool transposeB,
                const std::string &element, const std::string &cpu) {
    auto matrix = [](int64_t rows, int64_t cols, const std::string &type) {
      return std::to_string(rows) + "x" + std::to_string(cols) + "x" + type;
    };
    DotShape shape = s;
    int64_t aRows = transposeA ? s.k : s.m, aCols = transposeA ? s.m : s.k;
    int64_t bRows = transposeB ? s.n : s.k, bCols = transposeB ? s.k : s.n;
    KernelCase test;
    test.cpu = cpu;
    test.tolerance = 3e-6;
    test.inputs = {matrix(aRows, aCols, element), matrix(bRows, bCols, element),
                   matrix(s.m, s.n, "f32")};
    test.outputs = {matrix(s.m, s.n, "f32"), matrix(s.m, s.n, "f32")};
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      auto load = [&](Value ref, int64_t rows, int64_t cols) {
        return b.load(ref, {b.range(0, rows, 0), b.range(0, cols, 1)});
      };
      Value left = load(args[0], aRows, aCols);
      Value right = load(args[1], bRows, bCols);
      Value acc = load(args[2], shape.m, shape.n);
      Value sum = b.dot(left, right, acc, transposeB, transposeA);
      Value product =
          b.dot(left, right, b.zeros(shape.m, shape.n), transposeB, transposeA);
      llvm::SmallVector<Operand> all{b.range(0, shape.m, 0),
                                     b.range(0, shape.n, 1)};
      b.store(sum, args[3], all);
      b.store(product, args[4], all);
    };
    SCOPED_TRACE(cpu + " " + element + (transposeA ? " a^T" : "") +
                 (transposeB ? " b^T" : ""));
    check(test);
  }
};
} // namespace

TEST_F(DotTest, AllFormsAndRemainders_AreRight) {
  const DotShape shapes[] = {{64, 64, 64},
                             {1, 1, 1},
                             {5, 7, 3},
                             {17, 9, 13},
                             {6, 64, 64},
                             {1, 64, 24},
                             {64, 1, 32},
                             {33, 24, 1},
                             {3, 4, 6},
                             {20, 8, 8},
                             {12, 31, 40},
                             {2, 2, 2},
                             // One to three warpgroups, swizzle atom columns of
                             // 32, 64 and 128 bytes, the last M-tile cut off.
                             {64, 16, 32},
                             {128, 96, 16},
                             {192, 48, 48},
                             {60, 128, 64},
                             {256, 72, 128}};
  for (DotShape shape : shapes)
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true})
        checkDot(shape, transposeA, transposeB,
                 (shape.m + shape.k) % 2 ? "f32"
                 : transposeB            ? "bf16"
                                         : "f16",
                 "x86-64-v3");
}

TEST_F(DotTest, OtherProcessors_GiveTheSame) {
  for (bool transposeB : {false, true}) {
    checkDot({13, 21, 10}, false, transposeB, "f32", "x86-64-v2");
    checkDot({20, 21, 10}, false, transposeB, "bf16", "x86-64-v2");
    if (!__builtin_cpu_supports("avx512f"))
      continue;
    checkDot({13, 40, 19}, false, transposeB, "f32", "x86-64-v4");
    checkDot({20, 40, 19}, true, transposeB, "bf16", "x86-64-v4");
    checkDot({20, 40, 19}, true, transposeB, "f16", "x86-64-v4");
  }
}
