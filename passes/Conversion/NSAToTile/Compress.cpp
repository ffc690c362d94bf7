//===- Compress.cpp - one row for each block of tokens --------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/AttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// x [B, S, H, D] and y [B, Nc, H, D], with blocks of `block` tokens that start
/// every `stride` tokens. A token lies in at most `overlap()` blocks.
struct CompressKernel {
  template <typename OpT>
  explicit CompressKernel(OpT op)
      : batch(getDim(op.getInput(), 0)), sequence(getDim(op.getInput(), 1)),
        heads(getDim(op.getInput(), 2)), width(getDim(op.getInput(), 3)),
        block(op.getBlock()), stride(op.getStride()),
        blocks(getNumCompressedBlocks(sequence, block, stride)) {}

  int64_t overlap() const { return block / stride; }
  int64_t blockTile() const { return getTileSize(blocks); }
  /// At least one, so that a launch without blocks is still a launch.
  int64_t numBlockTiles() const {
    return std::max<int64_t>(llvm::divideCeil(blocks, blockTile()), 1);
  }
  /// Tokens at one offset from the start of a stride: one per stride.
  int64_t phaseTile() const {
    return getTileSize(llvm::divideCeil(sequence, stride));
  }
  int64_t numPhaseTiles() const {
    return llvm::divideCeil(llvm::divideCeil(sequence, stride), phaseTile());
  }
  std::string name(StringRef kind) const {
    return (kind + "_b" + Twine(batch) + "s" + Twine(sequence) + "h" +
            Twine(heads) + "d" + Twine(width) + "_l" + Twine(block) + "d" +
            Twine(stride))
        .str();
  }
  int64_t flops(int64_t perElement) const {
    return perElement * batch * blocks * block * heads * width;
  }

  void buildMean(TileBuilder &b, ArrayRef<Value> args) const;
  void buildMeanInputGrad(TileBuilder &b, ArrayRef<Value> args) const;
  void buildLinear(TileBuilder &b, ArrayRef<Value> args) const;
  void buildLinearInputGrad(TileBuilder &b, ArrayRef<Value> args) const;
  void buildLinearWeightGrad(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t batch, sequence, heads, width, block, stride, blocks;
};
} // namespace

//===----------------------------------------------------------------------===//
// Mean
//===----------------------------------------------------------------------===//

/// Program: (block tile, head, batch).
void CompressKernel::buildMean(TileBuilder &b, ArrayRef<Value> args) const {
  Value x = args[0], y = args[1];
  int64_t rows = blockTile();
  Expr i0 = b.programId(0) * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  Value sum =
      b.forLoop(0, block, 1, {b.zeros(rows, width)},
                [&](Expr r, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value t = b.range(i0 * stride + r, rows, 0, stride);
                  Value tokens = b.load(x, {batchRow, t, head, cols});
                  return {add(b, carried[0], tokens)};
                })[0];
  b.store(scaled(b, sum, 1.0 / block), y,
          {batchRow, b.range(i0, rows, 0), head, cols});
}

/// Program: (token tile, head, batch). Token t lies in the last `overlap()`
/// blocks up to block t / stride; those that do not exist read as 0.
void CompressKernel::buildMeanInputGrad(TileBuilder &b,
                                        ArrayRef<Value> args) const {
  Value dY = args[0], dX = args[2];
  int64_t rows = getTileSize(sequence);
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  Value sum = b.forLoop(
      1 - overlap(), 1, 1, {b.zeros(rows, width)},
      [&](Expr offset, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value i = b.map({t}, b.i32(), [&](ArrayRef<Expr> x) {
          return x[0] / stride + offset;
        });
        Value grads = b.load(dY, {batchRow, i, head, cols});
        return {add(b, carried[0], grads)};
      })[0];
  b.store(scaled(b, sum, 1.0 / block), dX, {batchRow, t, head, cols});
}

//===----------------------------------------------------------------------===//
// Linear
//===----------------------------------------------------------------------===//

/// Program: (block tile, head, batch).
void CompressKernel::buildLinear(TileBuilder &b, ArrayRef<Value> args) const {
  Value x = args[0], weight = args[1], y = args[2];
  int64_t rows = blockTile();
  Expr i0 = b.programId(0) * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  Value sum =
      b.forLoop(0, block, 1, {b.zeros(rows, width)},
                [&](Expr r, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value t = b.range(i0 * stride + r, rows, 0, stride);
                  Value tokens = b.load(x, {batchRow, t, head, cols});
                  Value matrix = b.load(
                      weight, {head, b.range(r * width, width, 0), cols});
                  return {b.dot(tokens, matrix, carried[0])};
                })[0];
  b.store(sum, y, {batchRow, b.range(i0, rows, 0), head, cols});
}

/// Program: (tile of tokens of one phase, head, batch). The phase of a token is
/// its offset from the start of its stride: token a*stride + phase is token
/// phase + m*stride of block a - m, for every token of the phase.
void CompressKernel::buildLinearInputGrad(TileBuilder &b,
                                          ArrayRef<Value> args) const {
  Value dY = args[0], weight = args[2], dX = args[3];
  int64_t rows = phaseTile();
  Expr phase = b.programId(0) % stride;
  Expr a0 = b.programId(0) / stride * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  Value sum = b.forLoop(
      1 - overlap(), 1, 1, {b.zeros(rows, width)},
      [&](Expr offset, ArrayRef<Value> carried) -> SmallVector<Value> {
        Expr r = phase - offset * stride;
        Value i = b.range(a0 + offset, rows, 0);
        Value grads = b.load(dY, {batchRow, i, head, cols});
        Value matrix =
            b.load(weight, {head, b.range(r * width, width, 0), cols});
        return {b.dot(grads, matrix, carried[0], /*transposeB=*/true)};
      })[0];
  Value t = b.range(a0 * stride + phase, rows, 0, stride);
  b.store(sum, dX, {batchRow, t, head, cols});
}

/// Program: (token of a block, head). Sums over batch rows and blocks in
/// ascending order.
void CompressKernel::buildLinearWeightGrad(TileBuilder &b,
                                           ArrayRef<Value> args) const {
  Value dY = args[0], x = args[1], dW = args[2];
  int64_t rows = blockTile();
  Expr r = b.programId(0), head = b.programId(1);
  Value cols = b.range(0, width, 1);
  auto addBlocks = [&](Expr batchRow, Expr i0, Value sum) {
    Value t = b.range(i0 * stride + r, rows, 0, stride);
    Value tokens = b.load(x, {batchRow, t, head, cols});
    Value grads = b.load(dY, {batchRow, b.range(i0, rows, 0), head, cols});
    return b.dot(tokens, grads, sum, /*transposeB=*/false,
                 /*transposeA=*/true);
  };
  Value sum = b.forLoop(
      0, batch, 1, {b.zeros(width, width)},
      [&](Expr batchRow, ArrayRef<Value> carried) {
        return b.forLoop(
            0, blocks, rows, carried,
            [&](Expr i0, ArrayRef<Value> carried) -> SmallVector<Value> {
              return {addBlocks(batchRow, i0, carried[0])};
            });
      })[0];
  b.store(sum, dW, {head, b.range(r * width, width, 0), cols});
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
struct ConvertCompress : KernelPattern<CompressOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CompressOp op,
                                PatternRewriter &rewriter) const override {
    CompressKernel kernel(op);
    bool linear = op.getKind() == CompressionKind::Linear;
    KernelSpec spec = {"",
                       kernel.name(stringifyCompressionKind(op.getKind())),
                       {kernel.numBlockTiles(), kernel.heads, kernel.batch},
                       kernel.flops(linear ? 2 * kernel.width : 1)};
    auto body = [&](TileBuilder &b, ArrayRef<Value> args) {
      linear ? kernel.buildLinear(b, args) : kernel.buildMean(b, args);
    };
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, op->getOperands(),
                                        op->getResultTypes(), body));
    return success();
  }
};

struct ConvertCompressBackward : KernelPattern<CompressBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CompressBackwardOp op,
                                PatternRewriter &rewriter) const override;
};
} // namespace

LogicalResult
ConvertCompressBackward::matchAndRewrite(CompressBackwardOp op,
                                         PatternRewriter &rewriter) const {
  CompressKernel kernel(op);
  bool linear = op.getKind() == CompressionKind::Linear;
  std::string name = kernel.name(stringifyCompressionKind(op.getKind()));
  int64_t flops = kernel.flops(linear ? 2 * kernel.width : 1);
  int64_t tokenTiles =
      linear ? kernel.numPhaseTiles() * kernel.stride
             : llvm::divideCeil(kernel.sequence, getTileSize(kernel.sequence));
  KernelSpec inputSpec = {
      "dx", name, {tokenTiles, kernel.heads, kernel.batch}, flops};
  auto inputBody = [&](TileBuilder &b, ArrayRef<Value> args) {
    linear ? kernel.buildLinearInputGrad(b, args)
           : kernel.buildMeanInputGrad(b, args);
  };
  auto inputGrad = cache.launch(rewriter, op, inputSpec, op->getOperands(),
                                op.getInputGrad().getType(), inputBody);
  if (!linear) {
    rewriter.replaceOp(op, inputGrad);
    return success();
  }
  KernelSpec weightSpec = {"dw", name, {kernel.block, kernel.heads, 1}, flops};
  auto weightGrad = cache.launch(
      rewriter, op, weightSpec, {op.getOutputGrad(), op.getInput()},
      op.getWeightGrad().getType(), [&](TileBuilder &b, ArrayRef<Value> args) {
        kernel.buildLinearWeightGrad(b, args);
      });
  rewriter.replaceOp(op, ValueRange{inputGrad[0], weightGrad[0]});
  return success();
}

void nsa::populateCompressPatterns(RewritePatternSet &patterns,
                                   KernelCache &cache) {
  patterns.add<ConvertCompress, ConvertCompressBackward>(patterns.getContext(),
                                                         cache);
}
