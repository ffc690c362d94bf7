//===- EmitDotMma.cpp - dots on tensor cores ------------------------------===//
//
// mma.sync.m16n8k16: each warp multiplies its M-tiles of 16 rows of a by all of
// b. The two registers of b that a dot needs are neighbours of one
// ldmatrix.x4.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Matrices from shared memory
//===----------------------------------------------------------------------===//

/// The row (and vector) that this lane addresses, of 16 rows and two vectors.
static Value laneRow(ThreadBuilder &b, Value lane, bool rowsFirst) {
  Value upper = rowsFirst ? b.rem(b.div(lane, 8), 2) : b.div(lane, 16);
  return b.add(b.rem(lane, 8), b.mul(upper, 8));
}
static Value laneVector(ThreadBuilder &b, Value lane, bool rowsFirst) {
  return rowsFirst ? b.div(lane, 16) : b.rem(b.div(lane, 8), 2);
}

/// Where this lane's row of a tile at the start of shared memory is, in vector
/// `flip` or the next one; other rows and vectors are at constant distances as
/// long as the vector keeps its remainder.
Value KernelEmitter::lanePointer(const SharedShape &shape, MatrixOrder order,
                                 int64_t flip) {
  Value &pointer = lanePointers[{shape.rowBytes(), int64_t(order), flip}];
  if (pointer)
    return pointer;
  bool rowsFirst = order == MatrixOrder::RowsFirst;
  Value lane = thread().lane;
  pointer = hoisted([&] {
    Value row = laneRow(b, lane, rowsFirst);
    Value vector = b.add(laneVector(b, lane, rowsFirst), flip);
    Value byte =
        b.add(b.mul(row, shape.rowBytes()),
              b.mul(swizzle(shape, row, vector), SharedShape::vectorBytes));
    return b.advance(sharedBase, byte);
  });
  return pointer;
}

static SmallVector<Value> loadMatrix(ThreadBuilder &b, Value pointer,
                                     bool transpose) {
  MLIRContext *context = b.getContext();
  Type i32 = b.getI32Type();
  auto type = LLVM::LLVMStructType::getLiteral(context, {i32, i32, i32, i32});
  Value matrices = NVVM::LdMatrixOp::create(
      b, type, pointer, 4u,
      transpose ? NVVM::MMALayout::col : NVVM::MMALayout::row,
      NVVM::LdStMatrixShapeAttr::get(context, 8, 8),
      NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> values;
  for (int64_t i = 0; i < 4; ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, matrices, i));
  return values;
}

SmallVector<Value> KernelEmitter::loadMatrices(const SharedBuffer &tile,
                                               MatrixOrder order,
                                               bool transpose, int64_t row,
                                               int64_t vector,
                                               Value firstByte) {
  int64_t atom = vector / tile.shape.atomVectors();
  int64_t flip = vector % tile.shape.atomVectors();
  Value pointer = lanePointer(tile.shape, order, flip);
  if (tile.stage)
    pointer = b.advance(pointer, tile.stage);
  if (firstByte)
    pointer = b.advance(pointer, firstByte);
  pointer = b.advance(pointer, tile.offset + row * tile.shape.rowBytes() +
                                   atom * tile.shape.atomBytes());
  return loadMatrix(b, pointer, transpose);
}

Value KernelEmitter::mTileOf(int64_t rows, int64_t mmaWarps, int64_t s) {
  int64_t mTiles = llvm::divideCeil(rows, 16);
  Value mTile = b.add(thread().warp, s * mmaWarps);
  if ((s + 1) * mmaWarps <= mTiles)
    return mTile;
  // An M-tile of padding: any rows will do.
  return arith::MinSIOp::create(b, mTile, b.i32(mTiles - 1));
}

Value KernelEmitter::mTileByte(const SharedShape &shape, int64_t mmaWarps,
                               int64_t s) {
  return b.mul(mTileOf(shape.rows, mmaWarps, s), 16 * shape.rowBytes());
}

SmallVector<Value> KernelEmitter::loadMma(const SharedBuffer &tile,
                                          const MmaLayout &layout) {
  SmallVector<Value> values(layout.registers());
  int64_t perRow = layout.colCount() / 2;
  for (int64_t s = 0; s < layout.mTiles(); ++s) {
    Value start = mTileByte(tile.shape, layout.warps, s);
    for (int64_t vector = 0; vector < perRow; vector += 2) {
      SmallVector<Value> matrices = loadMatrices(
          tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0, vector, start);
      for (int64_t i = 0; i < 4; ++i)
        if (vector + i / 2 < perRow)
          values[(2 * s + i % 2) * perRow + vector + i / 2] =
              b.bitcast(matrices[i], layout.registerType());
    }
  }
  return values;
}

/// Operand a that lies transposed: the warp chooses the vectors.
SmallVector<Value> KernelEmitter::loadTransposedA(const SharedBuffer &tile,
                                                  int64_t mmaWarps, int64_t s,
                                                  int64_t k) {
  Value lane = thread().lane;
  Value row = laneRow(b, lane, /*rowsFirst=*/false);
  Value mTile = mTileOf(tile.shape.cols, mmaWarps, s);
  Value vector =
      b.add(b.mul(mTile, 2), laneVector(b, lane, /*rowsFirst=*/false));
  Value pointer = bufferAddress(tile, row, vector);
  return loadMatrix(b, b.advance(pointer, 16 * k * tile.shape.rowBytes()),
                    /*transpose=*/true);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

SmallVector<Value> KernelEmitter::operandA(DotOp op, int64_t s, int64_t k) {
  int64_t accWarps = MmaLayout(op.getResult()).warps;
  if (isShared(op.getA().getType())) {
    SharedBuffer tile = sharedBufferOf(op.getA());
    if (op.getTransposeA())
      return loadTransposedA(tile, accWarps, s, k);
    return loadMatrices(tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0,
                        2 * k, mTileByte(tile.shape, accWarps, s));
  }
  MmaLayout layout(op.getA());
  SmallVector<Value> values = registersOf(op.getA()), operand;
  int64_t perRow = layout.colCount() / 2;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t vector = 2 * k + i / 2;
    if (vector >= perRow) {
      operand.push_back(b.i32(0));
      continue;
    }
    Value bits =
        b.bitcast(values[(2 * s + i % 2) * perRow + vector], b.getI32Type());
    if (!layout.hasCol(2 * vector)) {
      // Columns behind the last one must not count.
      Value low = b.select(hasCol(layout, 2 * vector), b.i32(0xffff), b.i32(0));
      Value high = b.select(hasCol(layout, 2 * vector + 1),
                            b.i32(int32_t(0xffff0000)), b.i32(0));
      bits = arith::AndIOp::create(b, bits, arith::OrIOp::create(b, low, high));
    }
    operand.push_back(bits);
  }
  return operand;
}

/// One m16n8k16 dot; the sums are four f32.
static void multiply(ThreadBuilder &b, Type element, ArrayRef<Value> lhs,
                     ArrayRef<Value> rhs, MutableArrayRef<Value *> sums) {
  auto asOperand = [&](Value bits) -> Value {
    if (element.isBF16())
      return bits;
    return b.bitcast(bits, VectorType::get({2}, element));
  };
  SmallVector<Value> a = llvm::map_to_vector(lhs, asOperand);
  SmallVector<Value> other = llvm::map_to_vector(rhs, asOperand);
  SmallVector<Value> c;
  for (Value *sum : sums)
    c.push_back(*sum);
  Type f32 = b.getF32Type();
  auto type =
      LLVM::LLVMStructType::getLiteral(b.getContext(), {f32, f32, f32, f32});
  auto kind = element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  Value result = NVVM::MmaOp::create(
      b, type, a, other, c, ArrayRef<int64_t>{16, 8, 16}, std::nullopt,
      std::nullopt, std::array<NVVM::MMATypes, 2>{kind, kind},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  for (auto [i, sum] : llvm::enumerate(sums))
    *sum = LLVM::ExtractValueOp::create(b, result, int64_t(i));
}

void KernelEmitter::emitMmaDot(DotOp op) {
  MmaLayout acc(op.getResult());
  TileType aType = op.getA().getType();
  int64_t length = op.getTransposeA() ? aType.getRows() : aType.getCols();
  SharedBuffer rhs = sharedBufferOf(op.getB());
  SmallVector<Value> sums = registersOf(op.getAcc());
  for (int64_t k = 0; 16 * k < length; ++k) {
    SmallVector<SmallVector<Value>> lhs;
    for (int64_t s = 0; s < acc.mTiles(); ++s)
      lhs.push_back(operandA(op, s, k));
    for (int64_t n = 0; n < acc.colCount() / 2; n += 2) {
      SmallVector<Value> matrices =
          op.getTransposeB()
              ? loadMatrices(rhs, MatrixOrder::ChunksFirst, false, 8 * n, 2 * k)
              : loadMatrices(rhs, MatrixOrder::RowsFirst, true, 16 * k, n);
      for (int64_t j = n; j < std::min(n + 2, acc.colCount() / 2); ++j)
        for (int64_t s = 0; s < acc.mTiles(); ++s) {
          SmallVector<Value *> four;
          for (int64_t i = 0; i < 4; ++i)
            four.push_back(
                &sums[(2 * s + i / 2) * acc.colCount() + 2 * j + i % 2]);
          multiply(b, aType.getElementType(), lhs[s],
                   ArrayRef(matrices).slice(2 * (j - n), 2), four);
        }
    }
  }
  registers[op.getResult()] = std::move(sums);
}
