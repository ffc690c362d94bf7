//===- EmitRows.cpp - votes, transposition, top-n lists, sorting ----------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "passes/TileToCPU/CpuEmitter.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Transposition
//===----------------------------------------------------------------------===//

/// Transposes eight vectors of eight lanes: pairs of elements, then pairs of
/// pairs within 128-bit halves, then the halves.
static SmallVector<Value> transposeEight(VectorBuilder &b,
                                         SmallVector<Value> v) {
  auto step = [&](ArrayRef<int64_t> low, ArrayRef<int64_t> high,
                  ArrayRef<unsigned> first, unsigned distance) {
    SmallVector<Value> next(8);
    unsigned at = 0;
    for (unsigned i : first) {
      next[at++] = b.shuffle(v[i], v[i + distance], low);
      next[at++] = b.shuffle(v[i], v[i + distance], high);
    }
    v = next;
  };
  step({0, 8, 1, 9, 4, 12, 5, 13}, {2, 10, 3, 11, 6, 14, 7, 15}, {0, 2, 4, 6},
       1);
  step({0, 1, 8, 9, 4, 5, 12, 13}, {2, 3, 10, 11, 6, 7, 14, 15}, {0, 1, 4, 5},
       2);
  step({0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}, {0, 1, 2, 3},
       4);
  // The last step leaves rows 0, 4, 1, 5, 2, 6, 3, 7.
  return {v[0], v[2], v[4], v[6], v[1], v[3], v[5], v[7]};
}

/// Rows and columns of the blocks that are transposed in registers.
static constexpr int64_t transposeBlock = 8;

bool nsa::cpu::transposesVectors(Type elementType, int64_t rows, int64_t cols,
                                 unsigned width) {
  return rows >= transposeBlock && cols >= transposeBlock &&
         width >= transposeBlock && memoryBytes(elementType) == 4;
}

void nsa::cpu::emitTransposeBlocks(VectorBuilder &b, Type elementType,
                                   Value source, int64_t sourceStride,
                                   int64_t rows, int64_t cols, Value target,
                                   int64_t targetStride, unsigned width) {
  constexpr int64_t block = transposeBlock;
  if (!transposesVectors(elementType, rows, cols, width))
    return b.loop(rows, 1, [&](Value row) {
      b.loop(cols, 1, [&](Value col) {
        Value element = b.load(source, b.add(b.mul(row, sourceStride), col),
                               elementType, 1);
        b.store(element, target, b.add(b.mul(col, targetStride), row),
                elementType);
      });
    });
  b.loop(rows, block, [&](Value row) {
    b.loop(cols, block, [&](Value col) {
      SmallVector<Value> vectors;
      for (int64_t i = 0; i < block; ++i) {
        Value from = b.add(row, i);
        // Below the last row its copy is read; the result is unused.
        if (rows % block != 0)
          from = arith::MinUIOp::create(b, from, b.i64(rows - 1));
        vectors.push_back(b.load(source, b.add(b.mul(from, sourceStride), col),
                                 elementType, block));
      }
      for (auto [i, vector] :
           llvm::enumerate(transposeEight(b, std::move(vectors))))
        b.store(vector, target, b.add(b.mul(b.add(col, i), targetStride), row),
                elementType);
    });
  });
}

void CpuEmitter::estimateTranspose(Operation *op, Type elementType,
                                   int64_t rows, int64_t cols) {
  double count = static_cast<double>(rows) * cols;
  if (transposesVectors(elementType, rows, cols, width))
    work.addVectors(count, 3, transposeBlock);
  else
    work.addScalars(PerformanceLint::ScalarLoop, op, count, 2);
}

void CpuEmitter::emitTranspose(TransposeOp op) {
  Buffer from = bufferOf(op.getInput()), to = bufferOf(op.getResult());
  estimateTranspose(op, from.layout.elementType, from.layout.rows,
                    from.layout.cols);
  emitTransposeBlocks(b, memoryType(from.layout.elementType), from.base,
                      from.layout.rowStride, from.layout.rows, from.layout.cols,
                      to.base, to.layout.rowStride, width);
}

//===----------------------------------------------------------------------===//
// Votes
//===----------------------------------------------------------------------===//

/// Whether any lane of a vector of i1 is set.
static Value anyLane(VectorBuilder &b, Value mask) {
  auto type = dyn_cast<VectorType>(mask.getType());
  if (!type)
    return mask;
  Type bits = b.getIntegerType(type.getNumElements());
  Value word = LLVM::BitcastOp::create(b, bits, mask);
  Value zero = arith::ConstantOp::create(b, b.getIntegerAttr(bits, 0));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, word, zero);
}

void CpuEmitter::emitAny(AnyOp op) {
  Buffer buffer = bufferOf(op.getInput());
  const TileLayout &layout = buffer.layout;
  // A column is stored as a row.
  bool isColumn = layout.cols == 1;
  int64_t rows = isColumn ? 1 : layout.rows;
  int64_t cols = isColumn ? layout.rows : layout.cols;
  unsigned lanes = lanesFor(cols, width);
  work.addVectors(layout.size, 1, lanes);
  auto take = [&](Value place, Value sum, int64_t count) -> Value {
    Value values = b.load(buffer.base, place, b.getI1Type(), lanes);
    if (count < lanes)
      values = b.logicalAnd(values, b.firstLanes(count, lanes));
    return arith::OrIOp::create(b, sum, values);
  };
  int64_t whole = cols / lanes * lanes;
  Value none = b.constant(b.getI1Type(), 0, lanes);
  auto visit = [&](Value row, ValueRange carried) -> SmallVector<Value> {
    Value first = b.mul(row, layout.rowStride);
    Value sum = b.loop(b.i64(0), b.i64(whole), lanes, carried,
                       [&](Value col, ValueRange sums) -> SmallVector<Value> {
                         return {take(b.add(first, col), sums[0], lanes)};
                       })[0];
    if (whole < cols)
      sum = take(b.add(first, whole), sum, cols - whole);
    return {sum};
  };
  Value sum = b.loop(b.i64(0), b.i64(rows), 1, none, visit)[0];
  scalars.map(op.getResult(), anyLane(b, sum));
}

//===----------------------------------------------------------------------===//
// Lists of the largest values
//===----------------------------------------------------------------------===//

void CpuEmitter::emitTopN(TopNOp op) {
  copyTile(op.getBestValues(), op.getTopValues());
  copyTile(op.getBestIndices(), op.getTopIndices());
  Buffer candidates = bufferOf(op.getValues());
  Buffer best = bufferOf(op.getTopValues());
  Buffer bestIndices = bufferOf(op.getTopIndices());
  int64_t cols = candidates.layout.cols, slots = best.layout.cols;
  // Most candidates are only compared.
  work.addVectors(candidates.layout.size, 3, width);
  unsigned lanes = lanesFor(cols, width);
  Type f32 = b.getF32Type();
  Value base = scalar(op.getBase());
  b.loop(candidates.layout.rows, 1, [&](Value row) {
    Value first = b.mul(row, candidates.layout.rowStride);
    Value last = b.add(b.mul(row, best.layout.rowStride), slots - 1);
    auto exceeds = [&](Value value, unsigned lanes) -> Value {
      Value least = arith::MaxNumFOp::create(b, b.load(best.base, last, f32, 1),
                                             b.f32(-0.5));
      return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, value,
                                   b.splat(least, lanes));
    };
    auto visit = [&](Value col, int64_t count) {
      Value values = b.load(candidates.base, b.add(first, col), f32, lanes);
      Value enters = exceeds(values, lanes);
      if (count < lanes)
        enters = b.logicalAnd(enters, b.firstLanes(count, lanes));
      b.ifThen(anyLane(b, enters), [&] {
        b.loop(count, 1, [&](Value lane) {
          Value place = b.add(col, lane);
          Value value = b.load(candidates.base, b.add(first, place), f32, 1);
          b.ifThen(exceeds(value, 1), [&] {
            insertCandidate(best, bestIndices, row, value,
                            b.add(base, b.toI32(place)));
          });
        });
      });
    };
    int64_t whole = cols / lanes * lanes;
    b.loop(whole, lanes, [&](Value col) { visit(col, lanes); });
    if (whole < cols)
      visit(b.i64(whole), cols - whole);
  });
}

/// Shifts the smaller values of a list by one, the last one out. Vectors
/// are visited from the end, so that each still sees its left neighbour.
void CpuEmitter::insertCandidate(const Buffer &values, const Buffer &indices,
                                 Value row, Value value, Value index) {
  unsigned lanes = lanesFor(values.layout.cols, width);
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  Value first = b.mul(row, values.layout.rowStride);
  Value newValue = b.splat(value, lanes), newIndex = b.splat(index, lanes);
  Value infinity =
      b.splat(b.f32(std::numeric_limits<double>::infinity()), lanes);
  SmallVector<int64_t> shifted{lanes};
  llvm::append_range(shifted, llvm::seq<int64_t>(0, lanes - 1));
  auto leftOf = [&](Value base, Value place, Type type, Value current,
                    Value edge, bool isFirst) -> Value {
    if (!isFirst)
      return b.load(base, b.add(place, -1), type, lanes);
    return lanes == 1 ? edge : b.shuffle(current, edge, shifted);
  };
  auto exceeds = [&](Value x) {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, newValue, x);
  };
  auto merge = [&](Value here, Value further, Value current, Value left,
                   Value entering) {
    Value moved = arith::SelectOp::create(b, further, left, entering);
    return arith::SelectOp::create(b, here, moved, current);
  };
  int64_t chunks = (values.layout.cols + lanes - 1) / lanes;
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    Value place = b.add(first, chunk * lanes);
    Value current = b.load(values.base, place, f32, lanes);
    Value currentIndex = b.load(indices.base, place, i32, lanes);
    Value left = leftOf(values.base, place, f32, current, infinity, chunk == 0);
    Value leftIndex =
        leftOf(indices.base, place, i32, currentIndex, newIndex, chunk == 0);
    Value here = exceeds(current), further = exceeds(left);
    b.store(merge(here, further, current, left, newValue), values.base, place,
            f32);
    b.store(merge(here, further, currentIndex, leftIndex, newIndex),
            indices.base, place, i32);
  }
}

//===----------------------------------------------------------------------===//
// Sorting
//===----------------------------------------------------------------------===//

void CpuEmitter::emitSort(SortOp op) {
  copyTile(op.getInput(), op.getResult());
  Buffer buffer = bufferOf(op.getResult());
  int64_t cols = buffer.layout.cols;
  // Every pair of a row is exchanged once.
  work.addVectors(buffer.layout.rows * cols * (cols - 1) / 2, 2, /*lanes=*/1);
  Type i32 = b.getI32Type();
  b.loop(buffer.layout.rows, 1, [&](Value row) {
    Value first = b.mul(row, buffer.layout.rowStride);
    b.loop(cols - 1, 1, [&](Value at) {
      Value place = b.add(first, at);
      Value start = b.load(buffer.base, place, i32, 1);
      Value least =
          b.loop(b.add(at, 1), b.i64(cols), 1, start,
                 [&](Value other, ValueRange carried) -> SmallVector<Value> {
                   Value there = b.add(first, other);
                   Value value = b.load(buffer.base, there, i32, 1);
                   b.store(arith::MaxUIOp::create(b, value, carried[0]),
                           buffer.base, there, i32);
                   return {arith::MinUIOp::create(b, value, carried[0])};
                 })
              .front();
      b.store(least, buffer.base, place, i32);
    });
  });
}
