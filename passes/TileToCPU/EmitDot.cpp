//===- EmitDot.cpp - register-blocked matmuls -----------------------------===//
//
// Two forms:
//   - columns: vectors run along the columns of b; a block of mr rows and nv
//     vectors of the result stays in registers while k runs, one broadcast of a
//     and one vector of b per step. A transposed b is transposed into scratch
//     memory first.
//   - inner: for few rows and a transposed b, vectors run along k of both
//     operands, and each block of results is summed across lanes at its end.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "passes/TileToCPU/CpuEmitter.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

/// From so many rows on, transposing b costs less than summing across lanes.
static constexpr int64_t minRowsToTranspose = 16;

namespace {
/// A matrix in memory: element (i, j) is at i * row + j * col.
struct Matrix {
  Value base;
  int64_t row = 0, col = 0;
};

struct DotShape {
  explicit DotShape(DotOp op) {
    TileType a = op.getA().getType(), acc = op.getAcc().getType();
    m = acc.getRows();
    n = acc.getCols();
    k = op.getTransposeA() ? a.getRows() : a.getCols();
    // A single column of b lies along k in memory either way; a single row of
    // results of a transposed a is a dot with b on the left.
    swapped = n == 1 && op.getTransposeA();
    alongK = !swapped && (op.getTransposeB() || n == 1) && k > 1;
    packed = alongK && n > 1 && (m >= minRowsToTranspose || op.getTransposeA());
    alongK &= !packed;
  }
  int64_t m, n, k;
  bool swapped, alongK, packed;
};

/// How many rows and vectors of results one micro-kernel computes.
struct Blocking {
  int64_t rows, vectors;
};

class DotEmitter {
public:
  DotEmitter(CpuEmitter &kernel, DotOp op);
  void emit(Value scratch);

private:
  void emitColumns();
  void emitRowBlocks(Value column, int64_t vectors, Blocking blocking);
  void emitColumnKernel(Value row, Value column, int64_t rows, int64_t vectors);
  void emitAlongK();
  void emitAlongKBlocks(Value row, int64_t rows, int64_t cols);
  void emitAlongKKernel(Value row, Value column, int64_t rows, int64_t cols);
  Value sumFour(ArrayRef<Value> sums);
  Value initial(Value place, unsigned lanes);
  void finish(Value value, Value place);

  CpuEmitter &kernel;
  VectorBuilder &b;
  DotOp op;
  DotShape shape;
  unsigned lanes;
  Type f32;
  Matrix a, rhs, out;
  Value accBase;
};
} // namespace

/// Bytes of the transposed b.
int64_t nsa::cpu::dotScratchBytes(DotOp op, unsigned width) {
  DotShape shape(op);
  if (!shape.packed)
    return 0;
  return roundUp(shape.k, width) * roundUp(shape.n, lanesFor(shape.n, width)) *
         4;
}

DotEmitter::DotEmitter(CpuEmitter &kernel, DotOp op)
    : kernel(kernel), b(kernel.getBuilder()), op(op), shape(op),
      f32(b.getF32Type()) {
  auto matrix = [&](Value tile, bool transposed) -> Matrix {
    CpuEmitter::Buffer buffer = kernel.bufferOf(tile);
    if (transposed)
      return {buffer.base, 1, buffer.layout.rowStride};
    return {buffer.base, buffer.layout.rowStride, 1};
  };
  a = matrix(op.getA(), op.getTransposeA());
  rhs = matrix(op.getB(), op.getTransposeB());
  out = matrix(op.getResult(), false);
  if (kernel.hasBuffer(op.getAcc()))
    accBase = kernel.bufferOf(op.getAcc()).base;
  if (shape.swapped) {
    std::swap(a, rhs);
    std::swap(a.row, a.col);
    std::swap(rhs.row, rhs.col);
    std::swap(shape.m, shape.n);
  }
  // b of one column, and b of one row transposed, lie along k.
  if (shape.alongK && !op.getTransposeB())
    rhs = {rhs.base, 1, shape.k};
  lanes = lanesFor(shape.alongK ? shape.k : shape.n, kernel.getWidth());
}

void DotEmitter::emit(Value scratch) {
  if (shape.alongK)
    return emitAlongK();
  if (shape.packed) {
    Matrix packed{scratch, roundUp(shape.n, lanes), 1};
    emitTransposeBlocks(b, f32, rhs.base, rhs.col, shape.n, shape.k, scratch,
                        packed.row, kernel.getWidth());
    rhs = packed;
  }
  emitColumns();
}

/// The initial value of an element of the result.
Value DotEmitter::initial(Value place, unsigned lanes) {
  if (accBase)
    return b.load(accBase, place, f32, lanes);
  return b.splat(kernel.splatScalar(op.getAcc()), lanes);
}

void DotEmitter::finish(Value value, Value place) {
  b.store(value, out.base, place, f32);
}

//===----------------------------------------------------------------------===//
// Vectors along columns
//===----------------------------------------------------------------------===//

/// The blocking with the least estimated time: per step of k two multiply-adds
/// and two loads start per cycle, and a sum takes four cycles to be available
/// again; five, so that ten sums in flight are preferred to eight, which leave
/// no slack. `registers` bounds sums, one row of b and one broadcast.
static Blocking chooseBlocking(int64_t rows, int64_t vectors,
                               int64_t registers) {
  Blocking best{1, 1};
  double bestCost = std::numeric_limits<double>::max();
  auto kernelCost = [](int64_t r, int64_t v) {
    return r * v == 0 ? 0.0
                      : std::max({r * v / 2.0, (r + v) / 2.0, 5.0}) + 0.25;
  };
  for (int64_t r = 1; r <= rows; ++r)
    for (int64_t v = 1; v <= vectors && r * v + v + 1 <= registers; ++v) {
      int64_t rowsLeft = rows % r, vectorsLeft = vectors % v;
      auto panelCost = [&](int64_t width) {
        return rows / r * kernelCost(r, width) + kernelCost(rowsLeft, width);
      };
      double cost = vectors / v * panelCost(v) + panelCost(vectorsLeft);
      // Each remainder is one more micro-kernel to compile.
      cost *= 1.0 + 0.02 * ((rowsLeft != 0) + (vectorsLeft != 0));
      if (cost < bestCost) {
        bestCost = cost;
        best = {r, v};
      }
    }
  return best;
}

void DotEmitter::emitColumns() {
  int64_t vectors = (shape.n + lanes - 1) / lanes;
  int64_t registers = kernel.getWidth() >= 16 ? 32 : 16;
  Blocking blocking = chooseBlocking(shape.m, vectors, registers);
  int64_t step = blocking.vectors * lanes;
  int64_t whole = vectors / blocking.vectors * step;
  b.loop(whole, step, [&](Value column) {
    emitRowBlocks(column, blocking.vectors, blocking);
  });
  if (int64_t left = vectors % blocking.vectors)
    emitRowBlocks(b.i64(whole), left, blocking);
}

void DotEmitter::emitRowBlocks(Value column, int64_t vectors,
                               Blocking blocking) {
  int64_t whole = shape.m / blocking.rows * blocking.rows;
  b.loop(whole, blocking.rows, [&](Value row) {
    emitColumnKernel(row, column, blocking.rows, vectors);
  });
  if (int64_t left = shape.m - whole)
    emitColumnKernel(b.i64(whole), column, left, vectors);
}

void DotEmitter::emitColumnKernel(Value row, Value column, int64_t rows,
                                  int64_t vectors) {
  Value aRow = b.address(a.base, b.mul(row, a.row), f32);
  Value bColumn = b.address(rhs.base, column, f32);
  Value corner = b.add(b.mul(row, out.row), column);
  auto place = [&](int64_t r, int64_t v) {
    return b.add(corner, r * out.row + v * lanes);
  };
  SmallVector<Value> sums;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      sums.push_back(initial(place(r, v), lanes));
  sums = b.loop(
      b.i64(0), b.i64(shape.k), 1, sums, [&](Value k, ValueRange carried) {
        SmallVector<Value> next(carried), columns;
        for (int64_t v = 0; v < vectors; ++v)
          columns.push_back(
              b.load(bColumn, b.add(b.mul(k, rhs.row), v * lanes), f32, lanes));
        for (int64_t r = 0; r < rows; ++r) {
          Value element =
              b.load(aRow, b.add(b.mul(k, a.col), r * a.row), f32, 1);
          Value repeated = b.splat(element, lanes);
          for (int64_t v = 0; v < vectors; ++v) {
            Value &sum = next[r * vectors + v];
            sum = LLVM::FMulAddOp::create(b, repeated, columns[v], sum);
          }
        }
        return next;
      });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      finish(sums[r * vectors + v], place(r, v));
}

//===----------------------------------------------------------------------===//
// Vectors along k
//===----------------------------------------------------------------------===//

void DotEmitter::emitAlongK() {
  int64_t blocks = (shape.m + 2) / 3;
  int64_t rows = (shape.m + blocks - 1) / blocks;
  int64_t cols = std::min<int64_t>(shape.n, rows == 1 ? 8 : 4);
  int64_t whole = shape.m / rows * rows;
  b.loop(whole, rows, [&](Value row) { emitAlongKBlocks(row, rows, cols); });
  if (int64_t left = shape.m - whole)
    emitAlongKBlocks(b.i64(whole), left, cols);
}

void DotEmitter::emitAlongKBlocks(Value row, int64_t rows, int64_t cols) {
  int64_t whole = shape.n / cols * cols;
  b.loop(whole, cols,
         [&](Value column) { emitAlongKKernel(row, column, rows, cols); });
  if (int64_t left = shape.n - whole)
    emitAlongKKernel(row, b.i64(whole), rows, left);
}

void DotEmitter::emitAlongKKernel(Value row, Value column, int64_t rows,
                                  int64_t cols) {
  Value aRow = b.address(a.base, b.mul(row, a.row), f32);
  Value bRow = b.address(rhs.base, b.mul(column, rhs.col), f32);
  Value zero = b.constant(f32, 0, lanes);
  auto accumulate = [&](Value k, ValueRange carried, Value mask) {
    auto read = [&](Value base, int64_t offset) -> Value {
      Value value = b.load(base, b.add(k, offset), f32, lanes);
      // Padding holds anything.
      return mask ? arith::SelectOp::create(b, mask, value, zero).getResult()
                  : value;
    };
    SmallVector<Value> next(carried), columns;
    for (int64_t c = 0; c < cols; ++c)
      columns.push_back(read(bRow, c * rhs.col));
    for (int64_t r = 0; r < rows; ++r) {
      Value left = read(aRow, r * a.row);
      for (int64_t c = 0; c < cols; ++c) {
        Value &sum = next[r * cols + c];
        sum = LLVM::FMulAddOp::create(b, left, columns[c], sum);
      }
    }
    return next;
  };
  SmallVector<Value> sums(rows * cols, zero);
  int64_t whole = shape.k / lanes * lanes;
  sums = b.loop(b.i64(0), b.i64(whole), lanes, sums,
                [&](Value k, ValueRange carried) {
                  return accumulate(k, carried, Value());
                });
  if (whole < shape.k)
    sums = accumulate(b.i64(whole), sums, b.firstLanes(shape.k - whole, lanes));

  Value corner = b.add(b.mul(row, out.row), column);
  auto add = [&](Value x, Value y) -> Value {
    return arith::AddFOp::create(b, x, y);
  };
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols;) {
      Value place = b.add(corner, r * out.row + c);
      ArrayRef<Value> rest = ArrayRef(sums).slice(r * cols + c);
      bool four = lanes >= 4 && c + 4 <= cols;
      Value sum =
          four ? sumFour(rest.take_front(4)) : b.horizontal(rest.front(), add);
      finish(add(initial(place, four ? 4 : 1), sum), place);
      c += four ? 4 : 1;
    }
}

/// The sums across lanes of four vectors, as one vector of four.
Value DotEmitter::sumFour(ArrayRef<Value> sums) {
  auto add = [&](Value x, Value y) -> Value {
    return arith::AddFOp::create(b, x, y);
  };
  auto addHalves = [&](Value vector, int64_t lanes) {
    auto low = llvm::to_vector(llvm::seq<int64_t>(0, lanes / 2));
    auto high = llvm::to_vector(llvm::seq<int64_t>(lanes / 2, lanes));
    return add(b.shuffle(vector, vector, low), b.shuffle(vector, vector, high));
  };
  SmallVector<Value> parts(sums);
  int64_t count = lanes;
  for (; count > 8; count /= 2)
    for (Value &part : parts)
      part = addHalves(part, count);
  // Neighbours are added within each group of four lanes, which is one
  // instruction of AVX.
  auto addPairs = [&](Value x, Value y) {
    SmallVector<int64_t> even, odd;
    for (int64_t group = 0; group < count; group += 4)
      for (int64_t source : {int64_t(0), count})
        for (int64_t i : {0, 2}) {
          even.push_back(source + group + i);
          odd.push_back(source + group + i + 1);
        }
    return add(b.shuffle(x, y, even), b.shuffle(x, y, odd));
  };
  Value all =
      addPairs(addPairs(parts[0], parts[1]), addPairs(parts[2], parts[3]));
  return count == 8 ? addHalves(all, 8) : all;
}

void CpuEmitter::emitDot(DotOp op) {
  Value scratch;
  DotShape shape(op);
  // Two multiply-adds per cycle.
  work.addVectors(static_cast<double>(shape.m) * shape.n * shape.k, 0.5,
                  lanesFor(shape.alongK ? shape.k : shape.n, width));
  if (shape.packed) {
    scratch = slots[buffers.getScratchSlot(op)];
    estimateTranspose(op, b.getF32Type(), shape.n, shape.k);
  }
  DotEmitter(*this, op).emit(scratch);
}
