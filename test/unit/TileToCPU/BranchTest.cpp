//===- BranchTest.cpp - what branches find and leave ----------------------===//

#include "test/unit/TileToCPU/KernelTest.h"

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

namespace {
class BranchTest : public KernelTest {};
} // namespace

/// A branch multiplies what was loaded before it, by copies of whole pieces or,
/// where rows begin anywhere, of single elements.
TEST_F(BranchTest, DotsOfTilesLoadedBefore_AreRight) {
  for (const char *matrix : {"64x16xbf16", "64x16xbf16/21"})
    for (double taken : {0, 1}) {
      KernelCase test;
      test.inputs = {matrix, "1xi32"};
      test.outputs = {"64x64xf32"};
      test.data[1] = {taken};
      test.body = [](TileBuilder &b, ArrayRef<Value> args) {
        Value rows = b.range(0, 64, 0), cols = b.range(0, 16, 1);
        Value left = b.load(args[0], {rows, cols});
        Value right = b.load(args[0], {b.range(32, 64, 0), cols});
        Value zeros = b.zeros(64, 64);
        SmallVector<Value> result = b.ifThenElse(
            b.loadScalar(args[1], {0}) > 0,
            [&] { return SmallVector<Value>{b.dot(left, right, zeros, true)}; },
            [&] { return SmallVector<Value>{zeros}; });
        b.store(result[0], args[2], {rows, b.range(0, 64, 1)});
      };
      check(test);
    }
}

/// Both branches read what other threads stored before: a barrier in one of
/// them is none in the other.
TEST_F(BranchTest, LoadsOfWhatWasStoredBefore_AreRight) {
  for (double taken : {0, 1}) {
    KernelCase test;
    test.inputs = {"64x8xf32", "1xi32"};
    test.outputs = {"64x8xf32", "64x8xf32"};
    test.data[1] = {taken};
    test.body = [](TileBuilder &b, ArrayRef<Value> args) {
      Value rows = b.range(0, 64, 0), cols = b.range(0, 8, 1);
      Value back = b.range(63, 64, 0, -1);
      b.store(b.load(args[0], {rows, cols}), args[2], {rows, cols});
      SmallVector<Value> result = b.ifThenElse(
          b.loadScalar(args[1], {0}) > 0,
          [&] { return SmallVector<Value>{b.load(args[2], {back, cols})}; },
          [&] {
            return SmallVector<Value>{
                b.map({b.load(args[2], {back, cols})}, b.f32(),
                      [](ArrayRef<Expr> e) { return e[0] + e[0]; })};
          });
      b.store(result[0], args[3], {rows, cols});
    };
    check(test);
  }
}
