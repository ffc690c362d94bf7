//===- Compress.cpp - one row for each block of tokens --------------------===//

#include "passes/Kernels/NSA/CompressKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

static constexpr int64_t columnMultiple = 16;

int64_t CompressKernel::padded() const {
  return isParallel ? static_cast<int64_t>(llvm::alignTo(width, columnMultiple))
                    : width;
}

int64_t CompressKernel::widthSlice() const {
  constexpr int64_t most = 64;
  if (isParallel && padded() > most)
    for (int64_t slice = most; slice > 0; slice -= columnMultiple)
      if (padded() % slice == 0)
        return slice;
  return padded();
}

int64_t CompressKernel::numColumnTiles() const {
  constexpr int64_t most = 128;
  return isParallel ? static_cast<int64_t>(llvm::divideCeil(padded(), most))
                    : 1;
}

int64_t CompressKernel::columnTile() const {
  return numColumnTiles() == 1
             ? padded()
             : static_cast<int64_t>(
                   llvm::alignTo(llvm::divideCeil(padded(), numColumnTiles()),
                                 columnMultiple));
}

Extent CompressKernel::numBlockTiles() const {
  return atLeast(ceilDiv(blocks, blockTile()), 1);
}

int64_t CompressKernel::getRowTile(const Extent &count) const {
  constexpr int64_t most = 64;
  return isParallel && kind != CompressionKind::Mean ? most
                                                     : getTileSize(count);
}

int64_t CompressKernel::phaseTile() const {
  return getRowTile(ceilDiv(sequence, stride));
}

Extent CompressKernel::numPhaseTiles() const {
  return ceilDiv(ceilDiv(sequence, stride), phaseTile());
}

//===----------------------------------------------------------------------===//
// Packed sequences
//===----------------------------------------------------------------------===//

/// A block is no shorter than a stride, so it has the last token of the stride
/// that its row stands for, which says whose block it is.
Value CompressKernel::findFirstTokens(TileBuilder &b, Value start,
                                      Expr batchRow, Expr i0) const {
  if (!start)
    return {};
  Value row = b.range(i0, blockTile(), 0);
  Value inBlock = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + (stride - 1);
  });
  Value begin = b.load(start, {batchRow, inBlock});
  Value first = b.map({row, begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + x[1] % stride;
  });
  Value last = b.map({first}, b.i32(),
                     [&](ArrayRef<Expr> x) { return x[0] + (block - 1); });
  Value beginOfLast = b.load(start, {batchRow, last});
  return b.map({first, last, begin, beginOfLast}, b.i32(),
               [&](ArrayRef<Expr> x) {
                 Expr isBlock = (x[1] < sequence) & (x[2] == x[3]);
                 return select(isBlock, x[0], static_cast<double>(-block));
               });
}

Value CompressKernel::getTokens(TileBuilder &b, Value first, Expr i0,
                                Expr r) const {
  if (!first)
    return b.range(i0 * stride + r, blockTile(), 0, stride);
  return b.map({first}, b.i32(), [&](ArrayRef<Expr> x) { return x[0] + r; });
}

Value CompressKernel::getBlockRows(TileBuilder &b, Value first, Expr i0) const {
  Value row = b.range(i0, blockTile(), 0);
  if (!first)
    return row;
  return b.map({row, first}, b.i32(),
               [](ArrayRef<Expr> x) { return select(x[1] >= 0, x[0], -1); });
}

KernelSpec CompressKernel::spec(StringRef suffix, std::array<Extent, 3> grid,
                                int64_t perElement) const {
  std::string shape =
      (stringifyCompressionKind(kind) + (hasPositions ? "_positions" : "") +
       "_b" + formatExtent(batch) + "s" + formatExtent(sequence) + "h" +
       Twine(heads) + "d" + Twine(width) + "_l" + Twine(block) + "d" +
       Twine(stride) + (isPacked ? "_packed" : ""))
          .str();
  KernelSpec own = {suffix.str(), shape, grid,
                    perElement *
                        int64_t(batch * blocks * block * heads * width)};
  own.takesExtents = !isPacked;
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
void CompressKernel::buildMean(TileBuilder &b, const In &in, Out y) const {
  int64_t rows = blockTile();
  Expr i0 = b.programId(0) * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  Value first = findFirstTokens(b, in.start, batchRow, i0);
  Value sum =
      b.forLoop(0, block, 1, {b.zeros(rows, width)},
                [&](Expr r, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value t = getTokens(b, first, i0, r);
                  Value tokens = b.load(in.input, {batchRow, t, head, cols});
                  return {add(b, carried[0], tokens)};
                })[0];
  b.store(scaled(b, sum, 1.0 / block), y[0],
          {batchRow, b.range(i0, rows, 0), head, cols});
}

/// The rows of the blocks which begin `offset` strides from those of the tokens
/// `t` of packed sequences, that begin at `begin`; -1 where there is none.
Value CompressKernel::findBlockOf(TileBuilder &b, Value start, Expr batchRow,
                                  Value t, Value begin, Expr offset) const {
  auto number = [&](Expr t, Expr begin) {
    return (t - begin) / stride + offset;
  };
  Value last = b.map({t, begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[1] + number(x[0], x[1]) * stride + (block - 1);
  });
  Value beginOfLast = b.load(start, {batchRow, last});
  return b.map({t, begin, last, beginOfLast}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr own = number(x[0], x[1]);
    Expr isBlock = (own >= 0) & (x[2] < sequence) & (x[3] == x[1]);
    return select(isBlock, x[1] / stride + own, -1);
  });
}

/// Program: (token tile, head, batch). Token t lies in the last `overlap()`
/// blocks up to block t / stride; those that do not exist read as 0.
void CompressKernel::buildMeanInputGrad(TileBuilder &b, const In &in,
                                        Out dX) const {
  int64_t rows = getTileSize(sequence);
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value t = b.range(b.programId(0) * rows, rows, 0);
  Value cols = b.range(0, width, 1);
  Value begin = in.start ? b.load(in.start, {batchRow, t}) : Value();
  Value sum = b.forLoop(
      1 - overlap(), 1, 1, {b.zeros(rows, width)},
      [&](Expr offset, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value i = in.start
                      ? findBlockOf(b, in.start, batchRow, t, begin, offset)
                      : b.map({t}, b.i32(), [&](ArrayRef<Expr> x) {
                          return x[0] / stride + offset;
                        });
        Value grads = b.load(in.outputGrad, {batchRow, i, head, cols});
        return {add(b, carried[0], grads)};
      })[0];
  b.store(scaled(b, sum, 1.0 / block), dX[0], {batchRow, t, head, cols});
}
