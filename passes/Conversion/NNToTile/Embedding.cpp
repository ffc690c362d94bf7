//===- Embedding.cpp - rows of a table and their gradients ----------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Program: a stretch of tokens. An id outside the table reads as zeros.
static void buildForward(TileBuilder &b, const RowGrid &grid,
                         ArrayRef<Value> args) {
  Value table = args[0], ids = grid.viewPerRow(b, args[1]);
  Value y = grid.viewRows(b, args[2]);
  Value cols = b.range(0, grid.width, 1);
  grid.forEachRow(b, {}, [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
    Expr id = b.loadScalar(ids, {t});
    b.store(b.load(table, {id, cols}), y, {t, cols});
    return {};
  });
}

/// Program: a slice of columns of the table, which no other program touches. It
/// adds the tokens in order.
static void buildBackward(TileBuilder &b, const RowGrid &grid, int64_t slice,
                          ArrayRef<Value> args) {
  Value dy = grid.viewRows(b, args[0]), ids = grid.viewPerRow(b, args[1]);
  Value dTable = args[2];
  int64_t vocab = cast<MemRefType>(dTable.getType()).getDimSize(0);
  constexpr int64_t zeroRows = 16;
  Value cols = b.range(b.programId(0) * slice, slice, 1);
  Value zeros = b.zeros(zeroRows, slice);
  int64_t zeroTiles = llvm::divideCeil(vocab, zeroRows);
  b.forLoop(0, zeroTiles, 1, {},
            [&](Expr i, ArrayRef<Value>) -> SmallVector<Value> {
              Value rows = b.range(i * zeroRows, zeroRows, 0);
              b.store(zeros, dTable, {rows, cols});
              return {};
            });
  b.forLoop(0, grid.rows, 1, {},
            [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
              Expr id = b.loadScalar(ids, {t});
              Value sum =
                  b.map({b.load(dTable, {id, cols}), b.load(dy, {t, cols})},
                        b.f32(), [](ArrayRef<Expr> x) { return x[0] + x[1]; });
              b.store(sum, dTable, {id, cols});
              return {};
            });
}

namespace {
struct ConvertEmbedding : KernelPattern<nn::EmbeddingOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::EmbeddingOp op,
                                PatternRewriter &rewriter) const override {
    RowGrid grid(op.getOutput());
    KernelSpec spec = {"", grid.name(), {grid.programs, 1, 1}};
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, op->getOperands(),
                                        op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          buildForward(b, grid, args);
                                        }));
    return success();
  }
};

struct ConvertEmbeddingBackward : KernelPattern<nn::EmbeddingBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(nn::EmbeddingBackwardOp op,
                                PatternRewriter &rewriter) const override {
    RowGrid grid(op.getOutputGrad());
    int64_t slice = pickTile(grid.width, grid.width >= 512 ? 64 : 32);
    int64_t slices = std::max<int64_t>(llvm::divideCeil(grid.width, slice), 1);
    KernelSpec spec = {"", grid.name(), {slices, 1, 1}, grid.rows * grid.width};
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, op->getOperands(),
                                        op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          buildBackward(b, grid, slice, args);
                                        }));
    return success();
  }
};
} // namespace

void nsa::populateEmbeddingPatterns(RewritePatternSet &patterns,
                                    KernelCache &cache) {
  patterns.add<ConvertEmbedding, ConvertEmbeddingBackward>(
      patterns.getContext(), cache);
}
