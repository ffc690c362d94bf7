//===- CompressProjection.cpp - learned compression of blocks ------------===//
//
// Blocks overlap in memory as they do in the sequence: a tile of blocks is
// multiplied one token of the block at a time, so no block is ever copied.
// Positions are the same for every block: they are multiplied by the weight on
// their own, once, and come to the dot as a bias. The tokens stay operands
// in the type that they are stored in.
//
// Columns past the width read as 0 and are not written. Rows past it are those
// of the next token's matrix: as operands they meet such zeros, and they must
// not be written.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/CompressKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

std::pair<Expr, Expr> CompressKernel::splitProgram(Expr program) const {
  if (numColumnTiles() == 1)
    return {program, program.constant(0)};
  Expr tile = program / numColumnTiles();
  return {tile, (program - tile * numColumnTiles()) * columnTile()};
}

/// The rows of columns `m0` to `m0 + size` in the matrix of token `r`, but none
/// of another matrix.
Value CompressKernel::matrixRowsOf(TileBuilder &b, Expr r, Expr m0,
                                   int64_t size) const {
  if (size * numColumnTiles() == width)
    return b.range(r * width + m0, size, 0);
  return b.map({b.range(m0, size, 0)}, b.i32(), [&](ArrayRef<Expr> x) {
    return select(x[0] < width, x[0] + r * width, -1);
  });
}

static int64_t getNumColumns(Value cols) {
  return cast<TileType>(cols.getType()).getCols();
}

CompressKernel::Slice CompressKernel::sliceOf(TileBuilder &b, Expr n) const {
  int64_t slice = widthSlice(), slices = numSlices();
  if (slices == 1)
    return {n, n * width, b.range(0, slice, 1)};
  Expr matrix = floorDiv(n, slices), first = (n - matrix * slices) * slice;
  return {matrix, padded() == width ? n * slice : matrix * width + first,
          b.range(first, slice, 1)};
}

/// Columns `cols` of the dot of the blocks from `i0` on with the weight,
/// f32 [blockTile(), size of cols]. Program: (block tile, head, batch).
Value CompressKernel::project(TileBuilder &b, const In &in, Value first,
                              Expr i0, Value cols) const {
  int64_t rows = blockTile(), slice = widthSlice();
  Expr head = b.programId(1), batchRow = b.programId(2);
  Value zeros = b.zeros(rows, getNumColumns(cols));
  // Slice `n` is the same rows of the weight for every block.
  Value sum =
      b.forLoop(0, block * numSlices(), 1, {zeros},
                [&](Expr n, ArrayRef<Value> carried) -> SmallVector<Value> {
                  auto [r, row, some] = sliceOf(b, n);
                  Value t = getTokens(b, first, i0, r);
                  Value tokens = b.load(in.input, {batchRow, t, head, some});
                  Value matrix =
                      b.load(in.weight, {head, b.range(row, slice, 0), cols});
                  return {b.dot(tokens, matrix, carried[0])};
                })[0];
  return hasPositions ? add(b, sum, b.load(in.positions, {head, cols})) : sum;
}

/// 0 in the rows that are no blocks of packed sequences.
static Value zeroOthers(TileBuilder &b, Value rows, Value first) {
  if (!first)
    return rows;
  return b.map({rows, first}, b.f32(),
               [](ArrayRef<Expr> x) { return select(x[1] >= 0, x[0], 0); });
}

/// Program: (tile of columns, head).
void CompressKernel::buildBias(TileBuilder &b, const In &in, Out bias) const {
  int64_t columns = hiddenTile();
  Expr head = b.programId(1);
  Value cols = b.range(b.programId(0) * columns, columns, 1);
  // Tensor cores do not take a single row.
  Value sum = b.forLoop(
      0, block, 1, {b.zeros(width, columns)},
      [&](Expr r, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value matrix =
            b.load(in.weight, {head, b.range(r * width, width, 0), cols});
        Value position = b.load(in.positions, {head, r, b.range(0, width, 0)});
        return {b.map({carried[0], matrix, position}, b.f32(),
                      [](ArrayRef<Expr> x) { return x[0] + x[1] * x[2]; })};
      })[0];
  b.store(b.reduceAdd(sum, /*axis=*/0), bias[0], {head, cols});
}

/// SiLU.
static Value activate(TileBuilder &b, Value hidden) {
  return b.map({hidden}, b.f32(),
               [](ArrayRef<Expr> z) { return z[0] * sigmoid(z[0]); });
}

/// Program: (block tile, head, batch). It has all columns: compressed keys are
/// rotated by the program that writes them.
void CompressKernel::buildProjection(TileBuilder &b, const In &in,
                                     Out y) const {
  int64_t rows = blockTile(), slice = widthSlice();
  Expr i0 = b.programId(0) * rows, head = b.programId(1);
  Value first = findFirstTokens(b, in.start, b.programId(2), i0);
  auto product = [&](Value cols) {
    Value rows = project(b, in, first, i0, cols);
    return hasPositions ? zeroOthers(b, rows, first) : rows;
  };
  auto store = [&](Value result, Value cols) {
    b.store(result, y[0], {b.programId(2), b.range(i0, rows, 0), head, cols});
  };
  auto forEach = [&](int64_t size, function_ref<void(Value cols)> body) {
    b.forLoop(0, padded(), size, {}, [&](Expr c, ArrayRef<Value>) {
      body(b.range(c, size, 1));
      return SmallVector<Value>();
    });
  };
  Value all = b.range(0, padded(), 1);
  if (kind != CompressionKind::Mlp) {
    if (numColumnTiles() == 1)
      return store(product(all), all);
    return forEach(columnTile(),
                   [&](Value cols) { store(product(cols), cols); });
  }
  if (numColumnTiles() == 1) {
    Value active = activate(b, product(all));
    return forEach(slice, [&](Value cols) {
      Value matrix =
          b.load(in.outputWeight, {head, b.range(0, padded(), 0), cols});
      store(b.dot(active, matrix, b.zeros(rows, slice)), cols);
    });
  }
  // Some hidden columns at a time: registers do not hold all beside the result.
  Value sum =
      b.forLoop(0, padded(), slice, {b.zeros(rows, padded())},
                [&](Expr c, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value active = activate(b, product(b.range(c, slice, 1)));
                  Value matrix = b.load(in.outputWeight,
                                        {head, b.range(c, slice, 0), all});
                  return {b.dot(active, matrix, carried[0])};
                })[0];
  store(sum, all);
}

/// Program: (tile of columns of a block tile, head, batch).
void CompressKernel::buildHiddenGrad(TileBuilder &b, const In &in,
                                     Out out) const {
  int64_t rows = blockTile();
  auto [tile, column] = splitProgram(b.programId(0));
  Expr i0 = tile * rows, c0 = column, head = b.programId(1);
  Value first = findFirstTokens(b, in.start, b.programId(2), i0);
  Value own = b.range(c0, columnTile(), 1);
  Value hidden = project(b, in, first, i0, own);
  SmallVector<Operand> place = {b.programId(2), b.range(i0, rows, 0), head,
                                own};
  int64_t slice = widthSlice();
  Value activeGrad = b.forLoop(
      0, padded(), slice, {b.zeros(rows, columnTile())},
      [&](Expr c, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value cols = b.range(c, slice, 1);
        SmallVector<Operand> some(place);
        some.back() = cols;
        Value matrix =
            b.load(in.outputWeight, {head, b.range(c0, columnTile(), 0), cols});
        return {b.dot(b.load(in.outputGrad, some), matrix, carried[0],
                      /*transposeB=*/true)};
      })[0];
  SmallVector<Value> results =
      b.map({hidden, activeGrad}, {b.f32(), b.f32()},
            [](ArrayRef<Expr> x) -> SmallVector<Value> {
              Expr z = x[0], s = sigmoid(z);
              return {x[1] * (s * (1 + z * (1 - s))), z * s};
            });
  for (auto [result, output] : llvm::zip_equal(results, out))
    b.store(zeroOthers(b, result, first), output, place);
}

/// Whole strides of packed sequences from `a0` on, by the numbers of the rows
/// whose blocks begin with them. Blocks consist of such; tokens at the end of a
/// sequence that fill none lie in no block.
struct CompressKernel::PackedStrides {
  PackedStrides(const CompressKernel &kernel, TileBuilder &b, Value start,
                Expr batchRow, Expr a0);

  /// The tokens of the strides that are `phase` after their first ones; -1 of
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

/// Program: (tile of columns of tokens of one phase, head, batch). The phase of
/// a token is its offset from the start of its stride: token a*stride + phase
/// is token phase + m*stride of block a - m, for every token of the phase.
void CompressKernel::buildInputGrad(TileBuilder &b, const In &in,
                                    Out dX) const {
  int64_t rows = phaseTile();
  auto [tile, column] = splitProgram(b.programId(0));
  Expr phase = tile % stride, c0 = column;
  Expr a0 = tile / stride * rows;
  Expr head = b.programId(1), batchRow = b.programId(2);
  int64_t slices = numSlices(), columns = columnTile();
  Value cols = b.range(c0, columns, 1);
  std::optional<PackedStrides> strides;
  if (in.start)
    strides.emplace(*this, b, in.start, batchRow, a0);
  Value sum = b.forLoop(
      (1 - overlap()) * slices, slices, 1, {b.zeros(rows, columns)},
      [&](Expr n, ArrayRef<Value> carried) -> SmallVector<Value> {
        auto [offset, row, some] = sliceOf(b, n);
        Expr r = phase - offset * stride;
        Value i = strides ? strides->findBlocks(*this, b, offset)
                          : b.range(a0 + offset, rows, 0);
        Value grads = b.load(in.dotGrad, {batchRow, i, head, some});
        Value matrix = b.load(
            in.weight, {head, b.range(r * width + c0, columns, 0), some});
        return {b.dot(grads, matrix, carried[0], /*transposeB=*/true)};
      })[0];
  Value t = b.range(a0 * stride + phase, rows, 0, stride);
  if (strides) {
    b.store(b.zeros(rows, columns), dX[0],
            {batchRow, strides->findRest(*this, b, t), head, cols});
    t = strides->getTokens(b, phase);
  }
  b.store(sum, dX[0], {batchRow, t, head, cols});
}

/// Runs `body` on every tile of blocks of every batch row, in ascending order.
SmallVector<Value> CompressKernel::forEachBlockTile(
    TileBuilder &b, ArrayRef<Value> inits,
    function_ref<SmallVector<Value>(Expr batchRow, Expr i0,
                                    ArrayRef<Value> carried)>
        body) const {
  return b.forLoop(0, batch, 1, inits,
                   [&](Expr batchRow, ArrayRef<Value> carried) {
                     return b.forLoop(0, blocks, blockTile(), carried,
                                      [&](Expr i0, ArrayRef<Value> carried) {
                                        return body(batchRow, i0, carried);
                                      });
                   });
}

/// Program: (tile of rows and columns of the matrix of a token, head).
void CompressKernel::buildWeightGrad(TileBuilder &b, const In &in,
                                     Out out) const {
  auto [rowTile, column] = splitProgram(b.programId(0));
  auto [token, row] = splitProgram(rowTile);
  Expr r = token, m0 = row, c0 = column, head = b.programId(1);
  int64_t size = columnTile();
  Value cols = b.range(c0, size, 1), tokenCols = b.range(m0, size, 1);
  // Sums of the gradients' columns `cols`, and whether of the dot, too.
  auto sumUp = [&](Value cols, bool withSums, bool withProduct) {
    SmallVector<Value> inits;
    if (withProduct)
      inits.push_back(b.zeros(size, size));
    if (withSums)
      inits.push_back(b.zeros(1, getNumColumns(cols)));
    return forEachBlockTile(
        b, inits,
        [&](Expr batchRow, Expr i0,
            ArrayRef<Value> carried) -> SmallVector<Value> {
          Value first = findFirstTokens(b, in.start, batchRow, i0), tokens;
          if (withProduct)
            tokens = b.load(in.input, {batchRow, getTokens(b, first, i0, r),
                                       head, tokenCols});
          Value grads = b.load(
              in.dotGrad, {batchRow, getBlockRows(b, first, i0), head, cols});
          SmallVector<Value> next;
          if (withProduct)
            next.push_back(b.dot(tokens, grads, carried[0],
                                 /*transposeB=*/false, /*transposeA=*/true));
          if (withSums)
            next.push_back(add(b, carried.back(),
                               b.reduceAdd(b.toF32(grads), /*axis=*/0)));
          return next;
        });
  };
  SmallVector<Value> sums = sumUp(cols, hasPositions, /*withProduct=*/true);
  Value matrixRows = matrixRowsOf(b, r, m0, size);
  if (!hasPositions)
    return b.store(sums[0], out.front(), {head, matrixRows, cols});

  Value position = b.load(in.positions, {head, r, b.range(m0, size, 0)});
  Value weightGrad = b.map({sums[0], position, sums[1]}, b.f32(),
                           [](ArrayRef<Expr> x) { return x[0] + x[1] * x[2]; });
  b.store(weightGrad, out.front(), {head, matrixRows, cols});
  // In f32: the sum is no operand to round, nor is one row one of tensor cores.
  auto storePositions = [&](Value cols, Value sum) {
    int64_t slice = widthSlice();
    b.forLoop(0, padded(), slice, {}, [&](Expr c, ArrayRef<Value>) {
      Value matrix =
          b.load(in.weight, {head, b.range(r * width + c, slice, 0), cols});
      b.store(rowDot(b, matrix, sum), out.back(),
              {head, r, b.range(c, slice, 0)});
      return SmallVector<Value>();
    });
  };
  if (numColumnTiles() == 1)
    return storePositions(cols, sums[1]);
  b.ifThen((m0 + c0) == 0, [&] {
    Value all = b.range(0, padded(), 1);
    storePositions(all,
                   sumUp(all, /*withSums=*/true, /*withProduct=*/false)[0]);
  });
}

/// Program: (tile of hidden columns, head).
void CompressKernel::buildOutputWeightGrad(TileBuilder &b, const In &in,
                                           Out dWeight) const {
  int64_t rows = blockTile(), columns = hiddenTile();
  Expr c0 = b.programId(0) * columns, head = b.programId(1);
  Value cols = b.range(0, padded(), 1);
  Value sum = forEachBlockTile(
      b, b.zeros(columns, padded()),
      [&](Expr batchRow, Expr i0,
          ArrayRef<Value> carried) -> SmallVector<Value> {
        Value i = b.range(i0, rows, 0);
        Value hidden =
            b.load(in.active, {batchRow, i, head, b.range(c0, columns, 1)});
        Value grads = b.load(in.outputGrad, {batchRow, i, head, cols});
        return {b.dot(hidden, grads, carried[0], /*transposeB=*/false,
                      /*transposeA=*/true)};
      })[0];
  b.store(sum, dWeight[0], {head, b.range(c0, columns, 0), cols});
}
