//===- DotPatterns.cpp - dots ---------------------------------------------===//
//
// mma.sync.m16n8k16: each warp multiplies its M-tiles of 16 rows of a by all of
// b. The two registers of b that a dot needs are neighbours of one
// ldmatrix.x4.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"
#include "passes/Conversion/TileToNVVM/SharedBuffers.h"
#include "passes/Conversion/TileToNVVM/TileUtils.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

SmallVector<Value> nsa::cuda::operandA(TileReader &in, DotOp op, int64_t s,
                                       int64_t k) {
  ThreadBuilder &b = in.b;
  int64_t accWarps = RegisterLayout(op.getResult()).warps();
  if (isShared(op.getA().getType())) {
    SharedBuffer tile = sharedBufferOf(in, op.getA());
    if (op.getTransposeA())
      return loadTransposedA(b, tile, accWarps, s, k);
    return loadMatrices(b, tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0,
                        2 * k, mTileByte(b, tile.shape, accWarps, s));
  }
  RegisterLayout layout(op.getA());
  SmallVector<Value> values = in.registersOf(op.getA()), operand;
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
      Value low =
          b.select(b.hasCol(layout, 2 * vector), b.i32(0xffff), b.i32(0));
      Value high = b.select(b.hasCol(layout, 2 * vector + 1),
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

static Results lowerMmaDot(DotOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout acc(op.getResult());
  TileType aType = op.getA().getType();
  int64_t length = op.getTransposeA() ? aType.getRows() : aType.getCols();
  SharedBuffer rhs = sharedBufferOf(in, op.getB());
  SmallVector<Value> sums = in.registersOf(op.getAcc());
  for (int64_t k = 0; 16 * k < length; ++k) {
    SmallVector<SmallVector<Value>> lhs;
    for (int64_t s = 0; s < acc.mTiles(); ++s)
      lhs.push_back(operandA(in, op, s, k));
    for (int64_t n = 0; n < acc.colCount() / 2; n += 2) {
      SmallVector<Value> matrices =
          op.getTransposeB()
              ? loadMatrices(b, rhs, MatrixOrder::ChunksFirst, false, 8 * n,
                             2 * k)
              : loadMatrices(b, rhs, MatrixOrder::RowsFirst, true, 16 * k, n);
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
  return {std::move(sums)};
}

/// Each thread sums the dots of its own elements, in order.
static Results lowerBlockedDot(DotOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout blocked(op.getResult());
  auto aType = cast<TileType>(op.getA().getType());
  int64_t length = op.getTransposeA() ? aType.getRows() : aType.getCols();
  Scratch scratch(in);
  ScratchTile lhs = scratch.store(op.getA()), rhs = scratch.store(op.getB());
  scratch.endStores();

  SmallVector<std::pair<Value, Value>> places;
  makeElements(b, blocked, [&](Value row, Value col) {
    return places.emplace_back(row, col), Value();
  });
  auto read = [&](const ScratchTile &tile, bool transposed, Value row,
                  Value col) {
    Value value = transposed ? tile.read(b, col, row) : tile.read(b, row, col);
    if (value.getType().isF32())
      return value;
    return Value(arith::ExtFOp::create(b, b.getF32Type(), value));
  };
  int64_t unroll = length % 4 == 0 ? 4 : 1;
  auto multiply = [&](Value i0, ValueRange carried) {
    SmallVector<Value> sums(carried);
    for (int64_t u = 0; u < unroll; ++u) {
      Value i = b.add(i0, u);
      // Registers of one thread often share their row or column.
      llvm::DenseMap<Value, Value> rows, cols;
      for (auto [sum, at] : llvm::zip_equal(sums, places)) {
        auto [row, col] = at;
        Value &x = rows[row], &y = cols[col];
        if (!x)
          x = read(lhs, op.getTransposeA(), row, i);
        if (!y)
          y = read(rhs, op.getTransposeB(), i, col);
        sum = math::FmaOp::create(b, x, y, sum);
      }
    }
    return sums;
  };
  return {b.loop(b.i32(0), b.i32(length), b.i32(unroll),
                 in.registersOf(op.getAcc()), multiply)};
}

static Results lowerDot(DotOp op, TileReader &in) {
  if (isWgmma(op))
    return lowerWarpgroupDot(op, in);
  return hasMmaLayout(op.getType()) ? lowerMmaDot(op, in)
                                    : lowerBlockedDot(op, in);
}

static Results lowerWgmmaWait(nsa::tile_gpu::WgmmaWaitOp op, TileReader &in) {
  SmallVector<Value> sums;
  for (Value value : op.getValues())
    llvm::append_range(sums, in.registersOf(value));
  ValueRange waited =
      nsa::tile_gpu::WgmmaWaitOp::create(in.b, TypeRange(ValueRange(sums)),
                                         op.getPending(), sums)
          .getResults();
  return splitRegisters(op.getResults(), waited);
}

void nsa::cuda::populateDotPatterns(TilePatterns &patterns) {
  patterns.add(lowerDot, lowerWgmmaWait);
}
