//===- Argmax.cpp - the most likely token ---------------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// The largest number and, of those that are, the first index.
static SmallVector<Value> findLargest(TileBuilder &b, Value numbers,
                                      Value indices) {
  Value largest = b.reduceMax(numbers);
  Value are = b.map({numbers, indices, largest}, b.i32(), [](ArrayRef<Expr> x) {
    return select(x[0] == x[2], x[1], std::numeric_limits<int32_t>::max());
  });
  return {largest, b.reduce(ReduceKind::Min, are)};
}

/// Program: one tile of a row. A logit that is not finite becomes infinity,
/// which no other is.
static void buildTile(TileBuilder &b, const RowGrid &grid, int64_t tile,
                      nn::ArgmaxOp::Adaptor in, ArrayRef<Value> out) {
  Expr part = b.programId(0), row = b.programId(1);
  Value cols = b.range(part * double(tile), tile, 1);
  Value logits = b.load(grid.viewRows(b, in.getLogits()), {row, cols});
  Value bias = b.load(in.getBias(), {cols});
  Value numbers = b.map({logits, bias, cols}, b.f32(), [&](ArrayRef<Expr> x) {
    Expr number = select(abs(x[0]) < INFINITY, x[0] + x[1], INFINITY);
    return select(x[2] < double(grid.width), number, -INFINITY);
  });
  for (auto [value, memory] :
       llvm::zip_equal(findLargest(b, numbers, cols), out))
    b.store(value, memory, {row, b.range(part, 1, 1)});
}

/// Program: a row, of the largest of its tiles.
static void buildRow(TileBuilder &b, const RowGrid &grid, int64_t parts,
                     ArrayRef<Value> args) {
  auto [numbers, indices, out] = named<3>(args);
  Expr row = b.programId(0);
  Value cols = b.range(0, llvm::alignTo(parts, 16), 1);
  Value own = b.map({b.load(numbers, {row, cols}), cols}, b.f32(),
                    [&](ArrayRef<Expr> x) {
                      return select(x[1] < double(parts), x[0], -INFINITY);
                    });
  Value found = b.map(
      findLargest(b, own, b.load(indices, {row, cols})), b.i32(),
      [](ArrayRef<Expr> x) { return select(x[0] == INFINITY, -1, x[1]); });
  b.store(found, grid.viewPerRow(b, out), {b.range(row, 1, 0)});
}

static LogicalResult convertArgmax(nn::ArgmaxOp op, KernelCache &cache,
                                   PatternRewriter &rewriter) {
  RowGrid grid(op.getLogits(), /*elementsPerProgram=*/1);
  int64_t tile = std::min<int64_t>(llvm::alignTo(grid.width, 16), 2048),
          parts = llvm::divideCeil(grid.width, tile);
  auto type = [&](Type element) {
    return cache.getTensorType({grid.rows, parts}, element);
  };
  auto found = launchKernel(
      cache, rewriter, op, {"tile", grid.name(), {parts, grid.rows, 1}},
      {type(cache.getF32Type()), type(cache.getI32Type())},
      [&](auto &b, auto in, ArrayRef<Value> out) {
        buildTile(b, grid, tile, in, out);
      });
  return cache.replace(rewriter, op, {"row", grid.name(), {grid.rows, 1, 1}},
                       found, [&](TileBuilder &b, ArrayRef<Value> args) {
                         buildRow(b, grid, parts, args);
                       });
}

void nsa::populateArgmaxPatterns(KernelPatterns &patterns) {
  patterns.add(convertArgmax);
}
