//===- RowSums.cpp - the last step of many sums over rows -----------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// y[cols] = sum[cols] + the rows in ascending order.
static void addRows(TileBuilder &b, Value sum, Value rows, Value y, Value cols,
                    int64_t atOnce) {
  Value total = sumRows(b, rows, cols, atOnce);
  b.store(add(b, b.load(sum, {cols}), total), y, {cols});
}

/// Program: a tile of columns of one of the tensors.
static LogicalResult convertAccumulateRows(nn::AccumulateRowsOp op,
                                           KernelCache &cache,
                                           PatternRewriter &rewriter) {
  size_t count = op.getSums().size();
  SmallVector<int64_t> tiles, ends;
  int64_t programs = 0, flops = 0;
  for (Value rows : op.getRows()) {
    tiles.push_back(
        pickTile(getDim(rows, 1), cache.getMachine().getSumColumns()));
    programs += llvm::divideCeil(getDim(rows, 1), tiles.back());
    ends.push_back(programs);
    flops += ShapedType::getNumElements(getShape(rows));
  }
  auto build = [&](TileBuilder &b, auto in, ArrayRef<Value> out) {
    Expr program = b.programId(0);
    for (size_t i = 0; i < count; ++i) {
      int64_t first = i ? ends[i - 1] : 0;
      b.ifThen((program >= first) & (program < ends[i]), [&] {
        Value cols = b.range((program - first) * tiles[i], tiles[i], 1);
        addRows(b, in.getSums()[i], in.getRows()[i], out[i], cols,
                cache.getMachine().getSumRows());
      });
    }
  };
  KernelSpec spec = {"",
                     "n" + std::to_string(count),
                     {std::max<int64_t>(programs, 1), 1, 1},
                     flops};
  return replaceByKernel(cache, rewriter, op, spec, build);
}

void nsa::populateRowSumPatterns(KernelPatterns &patterns) {
  patterns.add(convertAccumulateRows);
}
