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
TEST_F(BranchTest, ProductsOfTilesThatAreLoadedBefore) {
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
