//===- Compress.cpp - one row for each block of tokens --------------------===//

#include "passes/Conversion/NSAToTile/CompressKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t CompressKernel::widthSlice() const {
  constexpr int64_t most = 64, multiple = 16;
  if (isGPU && width > most)
    for (int64_t slice = most; slice > 0; slice -= multiple)
      if (width % slice == 0)
        return slice;
  return width;
}

Extent CompressKernel::numBlockTiles() const {
  return atLeast(ceilDiv(blocks, blockTile()), 1);
}

int64_t CompressKernel::phaseTile() const {
  return getTileSize(ceilDiv(sequence, stride));
}

Extent CompressKernel::numPhaseTiles() const {
  return ceilDiv(ceilDiv(sequence, stride), phaseTile());
}

KernelSpec CompressKernel::spec(StringRef suffix, std::array<Extent, 3> grid,
                                int64_t perElement) const {
  std::string shape =
      (stringifyCompressionKind(kind) + (hasPositions ? "_positions" : "") +
       "_b" + formatExtent(batch) + "s" + formatExtent(sequence) + "h" +
       Twine(heads) + "d" + Twine(width) + "_l" + Twine(block) + "d" +
       Twine(stride))
          .str();
  KernelSpec own = {suffix.str(), shape, grid,
                    perElement *
                        int64_t(batch * blocks * block * heads * width)};
  own.takesExtents = true;
  return own;
}

KernelSpec CompressKernel::biasSpec() const {
  KernelSpec own = spec("bias", {numHiddenTiles(), heads, 1}, 0);
  own.flops = 2 * heads * block * width * width;
  return own;
}

//===----------------------------------------------------------------------===//
// Mean
//===----------------------------------------------------------------------===//

/// Program: (block tile, head, batch).
void CompressKernel::buildMean(TileBuilder &b, Args args) const {
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
void CompressKernel::buildMeanInputGrad(TileBuilder &b, Args args) const {
  Value dY = args[0], dX = args[1];
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
// Patterns
//===----------------------------------------------------------------------===//

/// The operands of a projection: the parameters are the last ones of `op`, with
/// the bias in place of the positions.
template <typename OpT>
static SmallVector<Value> withBias(OpT op, const CompressKernel &kernel,
                                   KernelCache &cache, OpBuilder &builder) {
  SmallVector<Value> operands(op->getOperands());
  if (kernel.hasPositions)
    operands.back() = cache.launch(builder, op, kernel.biasSpec(),
                                   {op.getWeight(), op.getPositions()},
                                   kernel.biasType(builder.getContext()),
                                   [&](TileBuilder &b, ArrayRef<Value> args) {
                                     kernel.buildBias(b, args);
                                   })[0];
  return operands;
}

namespace {
struct ConvertCompress : KernelPattern<CompressOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CompressOp op,
                                PatternRewriter &rewriter) const override {
    CompressKernel kernel(op, getSchedule());
    bool mean = op.getKind() == CompressionKind::Mean;
    KernelSpec spec =
        kernel.spec("", kernel.blockGrid(), mean ? 1 : 2 * kernel.width);
    auto body = [&](TileBuilder &b, ArrayRef<Value> args) {
      mean ? kernel.buildMean(b, args) : kernel.buildProjection(b, args);
    };
    SmallVector<Value> operands = withBias(op, kernel, cache, rewriter);
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, operands,
                                        op->getResultTypes(), body));
    return success();
  }
};

struct ConvertCompressBackward : KernelPattern<CompressBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(CompressBackwardOp op,
                                PatternRewriter &rewriter) const override;

private:
  using Build = void (CompressKernel::*)(TileBuilder &,
                                         CompressKernel::Args) const;
  /// Launches one of the kernels, which has `perElement` operations for each
  /// element of a block.
  ResultRange launch(OpBuilder &builder, CompressBackwardOp op,
                     const CompressKernel &kernel, const KernelSpec &spec,
                     ValueRange inputs, TypeRange outputs, Build build) const {
    return cache.launch(builder, op, spec, inputs, outputs,
                        [&](TileBuilder &b, ArrayRef<Value> args) {
                          (kernel.*build)(b, args);
                        });
  }
  void convertProjection(CompressBackwardOp op, const CompressKernel &kernel,
                         PatternRewriter &rewriter) const;
};
} // namespace

void ConvertCompressBackward::convertProjection(
    CompressBackwardOp op, const CompressKernel &kernel,
    PatternRewriter &rewriter) const {
  int64_t product = 2 * kernel.width;
  Value x = op.getInput(), dY = op.getOutputGrad(), dZ = dY, active;
  if (op.getKind() == CompressionKind::Mlp) {
    ResultRange hidden = launch(
        rewriter, op, kernel, kernel.spec("dz", kernel.blockGrid(), product),
        withBias(op, kernel, cache, rewriter), {dY.getType(), dY.getType()},
        &CompressKernel::buildHiddenGrad);
    dZ = hidden[0];
    active = hidden[1];
  }

  SmallVector<Value> grads;
  llvm::append_range(grads,
                     launch(rewriter, op, kernel,
                            kernel.spec("dx",
                                        {kernel.numPhaseTiles() * kernel.stride,
                                         kernel.heads, kernel.batch},
                                        product),
                            {dZ, op.getWeight()}, x.getType(),
                            &CompressKernel::buildInputGrad));

  SmallVector<Value> inputs = {x, dZ};
  SmallVector<Type> types = {op.getParameterGrads()[0].getType()};
  if (kernel.hasPositions) {
    inputs.append({op.getWeight(), op.getPositions()});
    types.push_back(op.getParameterGrads().back().getType());
  }
  ResultRange parameters =
      launch(rewriter, op, kernel,
             kernel.spec("dw", {kernel.block, kernel.heads, 1}, product),
             inputs, types, &CompressKernel::buildWeightGrad);
  grads.push_back(parameters[0]);
  if (active) {
    KernelSpec spec =
        kernel.spec("dw2", {kernel.numHiddenTiles(), kernel.heads, 1}, 0);
    spec.flops = product * int64_t(kernel.batch * kernel.blocks * kernel.heads *
                                   kernel.width);
    llvm::append_range(grads, launch(rewriter, op, kernel, spec, {active, dY},
                                     op.getParameterGrads()[1].getType(),
                                     &CompressKernel::buildOutputWeightGrad));
  }
  if (kernel.hasPositions)
    grads.push_back(parameters[1]);
  rewriter.replaceOp(op, grads);
}

LogicalResult
ConvertCompressBackward::matchAndRewrite(CompressBackwardOp op,
                                         PatternRewriter &rewriter) const {
  CompressKernel kernel(op, getSchedule());
  if (op.getKind() != CompressionKind::Mean) {
    convertProjection(op, kernel, rewriter);
    return success();
  }
  Extent tiles = ceilDiv(kernel.sequence, getTileSize(kernel.sequence));
  KernelSpec spec = kernel.spec("dx", {tiles, kernel.heads, kernel.batch}, 1);
  rewriter.replaceOp(op, launch(rewriter, op, kernel, spec, op.getOutputGrad(),
                                op.getInputGrad().getType(),
                                &CompressKernel::buildMeanInputGrad));
  return success();
}

void nsa::populateCompressPatterns(RewritePatternSet &patterns,
                                   KernelCache &cache) {
  patterns.add<ConvertCompress, ConvertCompressBackward>(patterns.getContext(),
                                                         cache);
}
