//===- CompressProjection.cpp - learned compression of blocks ------------===//
//
// Blocks overlap in memory as they do in the sequence: a tile of blocks is
// multiplied one token of the block at a time, so no block is ever copied.
// Positions are the same for every block: they are multiplied by the weight on
// their own, once, and come to the product as a bias. The tokens stay operands
// in the type that they are stored in.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NNToTile/NNToTile.h"
#include "passes/Conversion/NSAToTile/CompressKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

std::pair<Expr, Value> CompressKernel::sliceOf(TileBuilder &b, Expr n) const {
  int64_t slice = widthSlice(), slices = width / slice;
  if (slices == 1)
    return {n, b.range(0, width, 1)};
  Expr matrix = floorDiv(n, slices);
  return {matrix, b.range((n - matrix * slices) * slice, slice, 1)};
}

/// The product of the blocks from `i0` on with the weight, f32
/// [blockTile(), width]. Program: (block tile, head, batch).
Value CompressKernel::project(TileBuilder &b, Value x, Args parameters,
                              Value first, Expr i0) const {
  Value weight = parameters[0];
  int64_t rows = blockTile(), slice = widthSlice(), slices = width / slice;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  // Slice `n` is the same rows of the weight for every block.
  Value sum =
      b.forLoop(0, block * slices, 1, {b.zeros(rows, width)},
                [&](Expr n, ArrayRef<Value> carried) -> SmallVector<Value> {
                  auto [r, some] = sliceOf(b, n);
                  Value t = getTokens(b, first, i0, r);
                  Value tokens = b.load(x, {batchRow, t, head, some});
                  Value matrix = b.load(
                      weight, {head, b.range(n * slice, slice, 0), cols});
                  return {b.dot(tokens, matrix, carried[0])};
                })[0];
  return hasPositions ? add(b, sum, b.load(parameters.back(), {head, cols}))
                      : sum;
}

/// 0 in the rows that are no blocks of packed sequences.
static Value zeroOthers(TileBuilder &b, Value rows, Value first) {
  if (!first)
    return rows;
  return b.map({rows, first}, b.f32(),
               [](ArrayRef<Expr> x) { return select(x[1] >= 0, x[0], 0); });
}

/// Program: (tile of columns, head).
void CompressKernel::buildBias(TileBuilder &b, Args args) const {
  Value weight = args[0], positions = args[1];
  int64_t columns = hiddenTile();
  Expr head = b.programId(1);
  Value cols = b.range(b.programId(0) * columns, columns, 1);
  // One row is no operand of tensor cores.
  Value sum = b.forLoop(
      0, block, 1, {b.zeros(width, columns)},
      [&](Expr r, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value matrix =
            b.load(weight, {head, b.range(r * width, width, 0), cols});
        Value position = b.load(positions, {head, r, b.range(0, width, 0)});
        return {b.map({carried[0], matrix, position}, b.f32(),
                      [](ArrayRef<Expr> x) { return x[0] + x[1] * x[2]; })};
      })[0];
  b.store(b.reduceAdd(sum, /*axis=*/0), args[2], {head, cols});
}

/// Columns `cols` of the output weight of the program's head.
static Value loadOutputWeight(TileBuilder &b, Value weight, int64_t width,
                              Value cols) {
  return b.load(weight, {b.programId(1), b.range(0, width, 0), cols});
}

/// Program: (block tile, head, batch).
void CompressKernel::buildProjection(TileBuilder &b, Args args) const {
  Args parameters = args.drop_front().drop_back();
  Value start = takeStart(parameters);
  int64_t rows = blockTile();
  Expr i0 = b.programId(0) * rows;
  Value first = findFirstTokens(b, start, b.programId(2), i0);
  Value y = project(b, args[0], parameters, first, i0);
  if (hasPositions)
    y = zeroOthers(b, y, first);
  auto store = [&](Value result, Value cols) {
    b.store(result, args.back(),
            {b.programId(2), b.range(i0, rows, 0), b.programId(1), cols});
  };
  if (kind != CompressionKind::Mlp)
    return store(y, b.range(0, width, 1));
  Value active = b.map({y}, b.f32(),
                       [](ArrayRef<Expr> z) { return z[0] * sigmoid(z[0]); });
  int64_t slice = widthSlice();
  b.forLoop(0, width, slice, {}, [&](Expr c, ArrayRef<Value>) {
    Value cols = b.range(c, slice, 1);
    Value matrix = loadOutputWeight(b, parameters[1], width, cols);
    store(b.dot(active, matrix, b.zeros(rows, slice)), cols);
    return SmallVector<Value>();
  });
}

/// Program: (block tile, head, batch).
void CompressKernel::buildHiddenGrad(TileBuilder &b, Args args) const {
  Value dY = args[0], x = args[1];
  Args parameters = args.drop_front(2).drop_back(2),
       outputs = args.take_back(2);
  Value start = takeStart(parameters);
  int64_t rows = blockTile();
  Expr i0 = b.programId(0) * rows;
  Value first = findFirstTokens(b, start, b.programId(2), i0);
  Value hidden = project(b, x, parameters, first, i0);
  SmallVector<Operand> place = {b.programId(2), b.range(i0, rows, 0),
                                b.programId(1), b.range(0, width, 1)};
  int64_t slice = widthSlice();
  Value activeGrad =
      b.forLoop(0, width, slice, {b.zeros(rows, width)},
                [&](Expr c, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value cols = b.range(c, slice, 1);
                  SmallVector<Operand> some(place);
                  some.back() = cols;
                  return {b.dot(b.load(dY, some),
                                loadOutputWeight(b, parameters[1], width, cols),
                                carried[0], /*transposeB=*/true)};
                })[0];
  SmallVector<Value> results =
      b.map({hidden, activeGrad}, {b.f32(), b.f32()},
            [](ArrayRef<Expr> x) -> SmallVector<Value> {
              Expr z = x[0], s = sigmoid(z);
              return {x[1] * (s * (1 + z * (1 - s))), z * s};
            });
  for (auto [result, output] : llvm::zip_equal(results, outputs))
    b.store(zeroOthers(b, result, first), output, place);
}

/// Whole strides of packed sequences from `a0` on, by the numbers of the rows
/// whose blocks begin with them. Blocks consist of such; tokens at the end of a
/// sequence that fill none lie in no block.
struct CompressKernel::PackedStrides {
  PackedStrides(const CompressKernel &kernel, TileBuilder &b, Value start,
                Expr batchRow, Expr a0);

  /// The tokens of the strides that are `phase` behind their first ones; -1 of
  /// strides that are not whole.
  Value getTokens(TileBuilder &b, Expr phase) const {
    return b.map({first}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] >= 0, x[0] + phase, -1);
    });
  }
  /// The rows of the blocks which begin `offset` strides further; -1 of those
  /// that are none.
  Value findBlocks(const CompressKernel &kernel, TileBuilder &b,
                   Expr offset) const;
  /// Those of the tokens that lie in no whole stride, -1 in place of the
  /// others.
  Value findRest(const CompressKernel &kernel, TileBuilder &b, Value t) const;

  Value start;
  Expr batchRow;
  /// i32 [rows, 1]: number, where the sequence begins, and the first token, -1
  /// of a stride that is not whole.
  Value number, begin, first;
};

CompressKernel::PackedStrides::PackedStrides(const CompressKernel &kernel,
                                             TileBuilder &b, Value start,
                                             Expr batchRow, Expr a0)
    : start(start), batchRow(batchRow),
      number(b.range(a0, kernel.phaseTile(), 0)) {
  int64_t stride = kernel.stride;
  Value inStride = b.map({number}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + (stride - 1);
  });
  begin = b.load(start, {batchRow, inStride});
  Value last = b.map({number, begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + x[1] % stride + (stride - 1);
  });
  Value beginOfLast = b.load(start, {batchRow, last});
  first = b.map({last, begin, beginOfLast}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr isWhole = (x[0] < kernel.sequence) & (x[1] == x[2]);
    return select(isWhole, x[0] - (stride - 1), -1);
  });
}

Value CompressKernel::PackedStrides::findBlocks(const CompressKernel &kernel,
                                                TileBuilder &b,
                                                Expr offset) const {
  int64_t stride = kernel.stride;
  Value last = b.map({first}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] + offset * stride + (kernel.block - 1);
  });
  Value beginOfLast = b.load(start, {batchRow, last});
  return b.map({number, begin, first, last, beginOfLast}, b.i32(),
               [&](ArrayRef<Expr> x) {
                 Expr row = x[0] + offset;
                 Expr isBlock = (x[2] >= 0) & (row >= x[1] / stride) &
                                (x[3] < kernel.sequence) & (x[1] == x[4]);
                 return select(isBlock, row, -1);
               });
}

Value CompressKernel::PackedStrides::findRest(const CompressKernel &kernel,
                                              TileBuilder &b, Value t) const {
  int64_t stride = kernel.stride;
  Value begin = b.load(start, {batchRow, t});
  Value last = b.map({t, begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[1] + (x[0] - x[1]) / stride * stride + (stride - 1);
  });
  Value beginOfLast = b.load(start, {batchRow, last});
  return b.map({t, begin, last, beginOfLast}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr isWhole = (x[2] < kernel.sequence) & (x[1] == x[3]);
    return select(isWhole, x[0].constant(-1), x[0]);
  });
}

/// Program: (tile of tokens of one phase, head, batch). The phase of a token is
/// its offset from the start of its stride: token a*stride + phase is token
/// phase + m*stride of block a - m, for every token of the phase.
void CompressKernel::buildInputGrad(TileBuilder &b, Args args) const {
  Args inputs = args.drop_back();
  Value start = takeStart(inputs);
  Value dZ = inputs[0], weight = inputs[1], dX = args.back();
  int64_t rows = phaseTile();
  Expr phase = b.programId(0) % stride;
  Expr a0 = b.programId(0) / stride * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value cols = b.range(0, width, 1);
  int64_t slice = widthSlice(), slices = width / slice;
  std::optional<PackedStrides> strides;
  if (start)
    strides.emplace(*this, b, start, batchRow, a0);
  Value sum = b.forLoop(
      (1 - overlap()) * slices, slices, 1, {b.zeros(rows, width)},
      [&](Expr n, ArrayRef<Value> carried) -> SmallVector<Value> {
        auto [offset, some] = sliceOf(b, n);
        Expr r = phase - offset * stride;
        Value i = strides ? strides->findBlocks(*this, b, offset)
                          : b.range(a0 + offset, rows, 0);
        Value grads = b.load(dZ, {batchRow, i, head, some});
        Value matrix =
            b.load(weight, {head, b.range(r * width, width, 0), some});
        return {b.dot(grads, matrix, carried[0], /*transposeB=*/true)};
      })[0];
  Value t = b.range(a0 * stride + phase, rows, 0, stride);
  if (strides) {
    b.store(b.zeros(rows, width), dX,
            {batchRow, strides->findRest(*this, b, t), head, cols});
    t = strides->getTokens(b, phase);
  }
  b.store(sum, dX, {batchRow, t, head, cols});
}

/// Runs `body` on every tile of blocks of every batch row, in ascending order.
SmallVector<Value> CompressKernel::forEachBlockTile(
    TileBuilder &b, Args inits,
    function_ref<SmallVector<Value>(Expr batchRow, Expr i0, Args carried)> body)
    const {
  return b.forLoop(0, batch, 1, inits,
                   [&](Expr batchRow, ArrayRef<Value> carried) {
                     return b.forLoop(0, blocks, blockTile(), carried,
                                      [&](Expr i0, ArrayRef<Value> carried) {
                                        return body(batchRow, i0, carried);
                                      });
                   });
}

/// Program: (token of a block, head).
void CompressKernel::buildWeightGrad(TileBuilder &b, Args args) const {
  Args inputs = args.drop_back(hasPositions ? 2 : 1);
  Value start = takeStart(inputs), x = inputs[0], dZ = inputs[1];
  Expr r = b.programId(0), head = b.programId(1);
  Value cols = b.range(0, width, 1);
  SmallVector<Value> inits = {b.zeros(width, width)};
  if (hasPositions)
    inits.push_back(b.zeros(1, width));
  SmallVector<Value> sums = forEachBlockTile(
      b, inits,
      [&](Expr batchRow, Expr i0, Args carried) -> SmallVector<Value> {
        Value first = findFirstTokens(b, start, batchRow, i0);
        Value t = getTokens(b, first, i0, r);
        Value tokens = b.load(x, {batchRow, t, head, cols});
        Value grads =
            b.load(dZ, {batchRow, getBlockRows(b, first, i0), head, cols});
        SmallVector<Value> next = {b.dot(tokens, grads, carried[0],
                                         /*transposeB=*/false,
                                         /*transposeA=*/true)};
        if (hasPositions)
          next.push_back(
              add(b, carried[1], b.reduceAdd(b.toF32(grads), /*axis=*/0)));
        return next;
      });
  Value matrixRows = b.range(r * width, width, 0);
  if (!hasPositions)
    return b.store(sums[0], args.back(), {head, matrixRows, cols});

  Value weight = inputs[2], positions = inputs[3];
  Value position = b.load(positions, {head, r, b.range(0, width, 0)});
  Value weightGrad = b.map({sums[0], position, sums[1]}, b.f32(),
                           [](ArrayRef<Expr> x) { return x[0] + x[1] * x[2]; });
  b.store(weightGrad, args.drop_back().back(), {head, matrixRows, cols});
  // In f32: the sum is no operand to round, nor is one row one of tensor cores.
  int64_t slice = widthSlice();
  b.forLoop(0, width, slice, {}, [&](Expr c, ArrayRef<Value>) {
    Value matrix =
        b.load(weight, {head, b.range(r * width + c, slice, 0), cols});
    b.store(rowDot(b, matrix, sums[1]), args.back(),
            {head, r, b.range(c, slice, 0)});
    return SmallVector<Value>();
  });
}

/// Program: (tile of hidden columns, head).
void CompressKernel::buildOutputWeightGrad(TileBuilder &b, Args args) const {
  Value active = args[0], dY = args[1], dWeight = args[2];
  int64_t rows = blockTile(), columns = hiddenTile();
  Expr c0 = b.programId(0) * columns, head = b.programId(1);
  Value cols = b.range(0, width, 1);
  Value sum = forEachBlockTile(
      b, b.zeros(columns, width),
      [&](Expr batchRow, Expr i0, Args carried) -> SmallVector<Value> {
        Value i = b.range(i0, rows, 0);
        Value hidden =
            b.load(active, {batchRow, i, head, b.range(c0, columns, 1)});
        Value grads = b.load(dY, {batchRow, i, head, cols});
        return {b.dot(hidden, grads, carried[0], /*transposeB=*/false,
                      /*transposeA=*/true)};
      })[0];
  b.store(sum, dWeight, {head, b.range(c0, columns, 0), cols});
}
