//===- EmitDotMma.cpp - products on tensor cores --------------------------===//
//
// mma.sync.m16n8k16: each warp multiplies its slabs of 16 rows of a by all of
// b. The two registers of b that a product needs are neighbours of one
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

/// The row (and chunk) that this lane addresses, of 16 rows and two chunks.
static Value laneRow(ThreadBuilder &b, Value lane, bool rowsFirst) {
  Value upper = rowsFirst ? b.rem(b.div(lane, 8), 2) : b.div(lane, 16);
  return b.add(b.rem(lane, 8), b.mul(upper, 8));
}
static Value laneChunk(ThreadBuilder &b, Value lane, bool rowsFirst) {
  return rowsFirst ? b.div(lane, 16) : b.rem(b.div(lane, 8), 2);
}

/// Where this lane's row of a tile at the start of shared memory is, in chunk
/// `flip` or the next one; other rows and chunks are at constant distances as
/// long as the chunk keeps its remainder.
Value KernelEmitter::lanePointer(const SharedShape &shape, MatrixOrder order,
                                 int64_t flip) {
  Value &pointer = lanePointers[{shape.rowBytes(), int64_t(order), flip}];
  if (pointer)
    return pointer;
  bool rowsFirst = order == MatrixOrder::RowsFirst;
  Value lane = thread().lane;
  pointer = hoisted([&] {
    Value row = laneRow(b, lane, rowsFirst);
    Value chunk = b.add(laneChunk(b, lane, rowsFirst), flip);
    Value byte =
        b.add(b.mul(row, shape.rowBytes()),
              b.mul(swizzle(shape, row, chunk), SharedShape::chunkBytes));
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

SmallVector<Value> KernelEmitter::loadMatrices(const Resident &tile,
                                               MatrixOrder order,
                                               bool transpose, int64_t row,
                                               int64_t chunk, Value firstByte) {
  int64_t panel = chunk / tile.shape.panelChunks();
  int64_t flip = chunk % tile.shape.panelChunks();
  Value pointer = lanePointer(tile.shape, order, flip);
  if (tile.stage)
    pointer = b.advance(pointer, tile.stage);
  if (firstByte)
    pointer = b.advance(pointer, firstByte);
  pointer = b.advance(pointer, tile.offset + row * tile.shape.rowBytes() +
                                   panel * tile.shape.panelBytes());
  return loadMatrix(b, pointer, transpose);
}

Value KernelEmitter::slabOf(int64_t rows, int64_t fragmentWarps, int64_t s) {
  int64_t slabs = llvm::divideCeil(rows, 16);
  Value slab = b.add(thread().warp, s * fragmentWarps);
  if ((s + 1) * fragmentWarps <= slabs)
    return slab;
  // A slab of padding: any rows will do.
  return arith::MinSIOp::create(b, slab, b.i32(slabs - 1));
}

Value KernelEmitter::slabByte(const SharedShape &shape, int64_t fragmentWarps,
                              int64_t s) {
  return b.mul(slabOf(shape.rows, fragmentWarps, s), 16 * shape.rowBytes());
}

SmallVector<Value> KernelEmitter::loadFragment(const Resident &tile,
                                               const Fragment &fragment) {
  SmallVector<Value> values(fragment.registers());
  int64_t perRow = fragment.colCount() / 2;
  for (int64_t s = 0; s < fragment.slabs(); ++s) {
    Value start = slabByte(tile.shape, fragment.warps, s);
    for (int64_t chunk = 0; chunk < perRow; chunk += 2) {
      SmallVector<Value> matrices = loadMatrices(
          tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0, chunk, start);
      for (int64_t i = 0; i < 4; ++i)
        if (chunk + i / 2 < perRow)
          values[(2 * s + i % 2) * perRow + chunk + i / 2] =
              b.bitcast(matrices[i], fragment.registerType());
    }
  }
  return values;
}

/// Operand a that lies transposed: the warp chooses the chunks.
SmallVector<Value> KernelEmitter::loadTransposedA(const Resident &tile,
                                                  int64_t fragmentWarps,
                                                  int64_t s, int64_t k) {
  Value lane = thread().lane;
  Value row = laneRow(b, lane, /*rowsFirst=*/false);
  Value slab = slabOf(tile.shape.cols, fragmentWarps, s);
  Value chunk = b.add(b.mul(slab, 2), laneChunk(b, lane, /*rowsFirst=*/false));
  Value pointer = residentAddress(tile, row, chunk);
  return loadMatrix(b, b.advance(pointer, 16 * k * tile.shape.rowBytes()),
                    /*transpose=*/true);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

SmallVector<Value> KernelEmitter::operandA(DotOp op, int64_t s, int64_t k) {
  int64_t accWarps = Fragment(op.getResult()).warps;
  if (isShared(op.getA().getType())) {
    Resident tile = residents.at(op.getA());
    if (op.getTransposeA())
      return loadTransposedA(tile, accWarps, s, k);
    return loadMatrices(tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0,
                        2 * k, slabByte(tile.shape, accWarps, s));
  }
  Fragment fragment(op.getA());
  SmallVector<Value> values = registersOf(op.getA()), operand;
  int64_t perRow = fragment.colCount() / 2;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t chunk = 2 * k + i / 2;
    if (chunk >= perRow) {
      operand.push_back(b.i32(0));
      continue;
    }
    Value bits =
        b.bitcast(values[(2 * s + i % 2) * perRow + chunk], b.getI32Type());
    if (!fragment.hasCol(2 * chunk)) {
      // Columns behind the last one must not count.
      Value low =
          b.select(hasCol(fragment, 2 * chunk), b.i32(0xffff), b.i32(0));
      Value high = b.select(hasCol(fragment, 2 * chunk + 1),
                            b.i32(int32_t(0xffff0000)), b.i32(0));
      bits = arith::AndIOp::create(b, bits, arith::OrIOp::create(b, low, high));
    }
    operand.push_back(bits);
  }
  return operand;
}

/// One m16n8k16 product; the sums are four f32.
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

void KernelEmitter::emitFragmentDot(DotOp op) {
  Fragment acc(op.getResult());
  TileType aType = op.getA().getType();
  int64_t length = op.getTransposeA() ? aType.getRows() : aType.getCols();
  if (isShared(aType))
    markShared(op.getA(), tile_gpu::SharedAccessKind::Read);
  markShared(op.getB(), tile_gpu::SharedAccessKind::Read);
  Resident rhs = residents.at(op.getB());
  SmallVector<Value> sums = registersOf(op.getAcc());
  for (int64_t k = 0; 16 * k < length; ++k) {
    SmallVector<SmallVector<Value>> lhs;
    for (int64_t s = 0; s < acc.slabs(); ++s)
      lhs.push_back(operandA(op, s, k));
    for (int64_t n = 0; n < acc.colCount() / 2; n += 2) {
      SmallVector<Value> matrices =
          op.getTransposeB()
              ? loadMatrices(rhs, MatrixOrder::ChunksFirst, false, 8 * n, 2 * k)
              : loadMatrices(rhs, MatrixOrder::RowsFirst, true, 16 * k, n);
      for (int64_t j = n; j < std::min(n + 2, acc.colCount() / 2); ++j)
        for (int64_t s = 0; s < acc.slabs(); ++s) {
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
