//===- DotPatterns.cpp - dots ---------------------------------------------===//
//
// mma.sync.m16n8k16: each warp multiplies its M-tiles of 16 rows of a by all of
// b. The two registers of b that a dot needs are neighbours of one
// ldmatrix.x4.
//
// wgmma.mma_async.m64nNk16: four warps together multiply 64 rows of a, from
// their registers or from shared memory, by all of b in shared memory. The
// M-tiles of four neighbouring warps are those rows, and their MMA tiles lie in
// registers as the instruction has it. A dot is asynchronous:
// tile-gpu-insert-barriers waits before the first operation that uses its
// registers, and before a barrier after which its operands in shared memory
// may be overwritten.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "passes/TileGPUToNVVM/SharedBuffers.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

/// Operand A for M-tile `s` and columns `16 * k` and on.
static SmallVector<Value> operandA(TileReader &in, DotOp op, int64_t s,
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
      // Columns past the last one must not count.
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
static void multiplyOfWarp(ThreadBuilder &b, Type element, ArrayRef<Value> lhs,
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

/// Which of a thread's elements sum `i` of M-tile `s` is: four for each 8
/// columns.
static int64_t sumNumber(const RegisterLayout &acc, int64_t s, int64_t i) {
  return (2 * s + i % 4 / 2) * acc.colCount() + i / 4 * 2 + i % 2;
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
            four.push_back(&sums[sumNumber(acc, s, 4 * j + i)]);
          multiplyOfWarp(b, aType.getElementType(), lhs[s],
                         ArrayRef(matrices).slice(2 * (j - n), 2), four);
        }
    }
  }
  return {std::move(sums)};
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

static std::string listOf(size_t first, size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i)
    text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

/// sums = a * b, or sums + a * b, of 64 rows and 16 elements of each sum: `lhs`
/// are four registers, or a descriptor as `rhs` is.
static void multiplyOfWarpgroup(ThreadBuilder &b, DotOp op, ArrayRef<Value> lhs,
                                Value rhs, bool adds,
                                MutableArrayRef<Value> sums) {
  size_t count = sums.size();
  Assembly assembly;
  assembly.results.assign(count, b.getF32Type());
  assembly.inputs.assign(lhs.begin(), lhs.end());
  assembly.inputs.push_back(rhs);
  if (adds)
    assembly.tied.assign(sums.begin(), sums.end());
  StringRef type =
      op.getA().getType().getElementType().isBF16() ? "bf16" : "f16";
  bool inRegisters = lhs.size() > 1;
  std::string a =
      inRegisters ? listOf(count, lhs.size()) : "$" + std::to_string(count);
  // The last numbers: whether a (where it is in memory) and b lie with their
  // columns in sequence.
  assembly.text = llvm::formatv(
      "{{ .reg .pred p; setp.ne.b32 p, {0}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {3}, {4}, ${5}, p, "
      "1, 1{6}, {7}; }",
      int(adds), count * 2, type, listOf(0, count), a, count + lhs.size(),
      inRegisters          ? ""
      : op.getTransposeA() ? ", 1"
                           : ", 0",
      int(!op.getTransposeB()));
  llvm::copy(assembly.create(b), sums.begin());
}

/// The warpgroup of this thread; null if there is one only.
static Value warpgroup(ThreadBuilder &b) {
  if (b.getThreads() == 32 * warpsOfGroup)
    return {};
  Value warp = b.place().warp;
  return b.once("warpgroup",
                [&] { return b.div(b.broadcast(warp), warpsOfGroup); });
}

/// Describes a matrix of 16-bit elements that starts `byte` bytes, and `unit`
/// times 16, past the start of a shared tile. `across`: 16 rows, which are
/// the elements of sums, and swizzle atom columns of columns. Else columns are
/// the elements of sums: 16 of one swizzle atom column, of as many rows as the
/// dot has.
static Value matrixDescriptor(ThreadBuilder &b, const SharedBuffer &tile,
                              bool across, int64_t byte, Value unit) {
  Value base = b.sharedBase();
  Value start = b.once("shared start", [&] {
    Value address = LLVM::PtrToIntOp::create(b, b.getI32Type(), base);
    return b.div(address, 16);
  });
  const SharedShape &shape = tile.shape;
  // PTX ISA, "Matrix-descriptor format", in units of 16 bytes: from swizzle
  // atom column to swizzle atom column, which is ignored for one, and from 8
  // rows to the next.
  int64_t leading = across ? shape.atomBytes() / 16 : 1;
  int64_t stride = 8 * shape.rowBytes() / 16;
  // 128, 64 and 32 bytes are 1, 2 and 3.
  int64_t swizzle = 4 - llvm::Log2_64(shape.atomVectors());
  Value low = start;
  if (tile.stage)
    low = b.add(low, b.div(tile.stage, 16));
  if (unit)
    low = b.add(low, unit);
  low = b.add(low, (tile.offset + byte) / 16 + (leading << 16));
  Value wide = arith::ExtUIOp::create(b, b.getI64Type(), low);
  return arith::OrIOp::create(b, wide, b.i64((stride | swizzle << 30) << 32));
}

/// The byte where columns `16 * k` and on of a shared tile start.
static int64_t columnByte(const SharedShape &shape, int64_t k) {
  int64_t vector = 2 * k;
  return vector / shape.atomVectors() * shape.atomBytes() +
         vector % shape.atomVectors() * SharedShape::vectorBytes;
}

/// Operand a in shared memory: the rows of M-tile `s` of each warpgroup,
/// elements `16 * k` and on of sums.
static Value describeA(TileReader &in, DotOp op, int64_t s, int64_t k) {
  ThreadBuilder &b = in.b;
  SharedBuffer tile = sharedBufferOf(in, op.getA());
  const SharedShape &shape = tile.shape;
  bool across = op.getTransposeA();
  constexpr int64_t groupRows = 16 * warpsOfGroup;
  int64_t mTileRows = 16 * RegisterLayout(op.getResult()).warps();
  // Swizzle atom columns divide 64 columns.
  int64_t perAtom = shape.atomVectors() * SharedShape::vectorElements;
  int64_t groupBytes = across ? groupRows / perAtom * shape.atomBytes()
                              : groupRows * shape.rowBytes();
  int64_t byte = mTileRows / groupRows * s * groupBytes +
                 (across ? 16 * k * shape.rowBytes() : columnByte(shape, k));
  Value group = warpgroup(b);
  return matrixDescriptor(b, tile, across, byte,
                          group ? b.mul(group, groupBytes / 16) : group);
}

static Value describeB(TileReader &in, DotOp op, int64_t k) {
  SharedBuffer tile = sharedBufferOf(in, op.getB());
  bool across = !op.getTransposeB();
  return matrixDescriptor(
      in.b, tile, across,
      across ? 16 * k * tile.shape.rowBytes() : columnByte(tile.shape, k), {});
}

static bool isZero(Value tile) {
  auto splat = tile.getDefiningOp<SplatOp>();
  return splat && matchPattern(splat.getValue(), m_AnyZeroFloat());
}

/// Orders everything in registers before the first dot.
static void orderRegisters(ThreadBuilder &b,
                           MutableArrayRef<SmallVector<Value>> sums,
                           MutableArrayRef<SmallVector<Value>> lhs) {
  SmallVector<Value> values;
  for (SmallVector<Value> &list : llvm::concat<SmallVector<Value>>(sums, lhs))
    llvm::append_range(values, list);
  if (values.empty()) {
    NVVM::WgmmaFenceAlignedOp::create(b);
    return;
  }
  values = passThrough(b, "wgmma.fence.sync.aligned;", values);
  auto *next = values.begin();
  for (SmallVector<Value> &list : llvm::concat<SmallVector<Value>>(sums, lhs))
    for (Value &value : list)
      value = *next++;
}

static Results lowerWarpgroupDot(DotOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout acc(op.getResult());
  TileType aType = op.getA().getType();
  bool inRegisters = hasMmaLayout(aType), startsAtZero = isZero(op.getAcc());
  int64_t steps = (op.getTransposeA() ? aType.getRows() : aType.getCols()) / 16;

  SmallVector<SmallVector<Value>> sums(acc.mTiles()), lhs;
  if (!startsAtZero) {
    SmallVector<Value> values = in.registersOf(op.getAcc());
    for (int64_t s = 0; s < acc.mTiles(); ++s)
      for (int64_t i = 0; i < 2 * acc.colCount(); ++i)
        sums[s].push_back(values[sumNumber(acc, s, i)]);
  }
  if (inRegisters)
    for (int64_t s = 0; s < acc.mTiles(); ++s)
      for (int64_t k = 0; k < steps; ++k)
        lhs.push_back(operandA(in, op, s, k));
  orderRegisters(b, sums, lhs);

  for (int64_t s = 0; s < acc.mTiles(); ++s) {
    sums[s].resize(2 * acc.colCount());
    for (int64_t k = 0; k < steps; ++k) {
      Value rhs = describeB(in, op, k);
      multiplyOfWarpgroup(b, op,
                          inRegisters
                              ? lhs[s * steps + k]
                              : SmallVector<Value>{describeA(in, op, s, k)},
                          rhs, k > 0 || !startsAtZero, sums[s]);
    }
  }
  SmallVector<Value> results(acc.elements());
  for (int64_t s = 0; s < acc.mTiles(); ++s)
    for (auto [i, value] : llvm::enumerate(sums[s]))
      results[sumNumber(acc, s, int64_t(i))] = value;
  auto commit = tile_gpu::WgmmaCommitOp::create(
      b, TypeRange(ValueRange(results)), results);
  return {llvm::to_vector_of<Value>(commit->getResults())};
}

//===----------------------------------------------------------------------===//
// Blocked layouts
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

static Results lowerDot(DotOp op, TileReader &in) {
  if (isWgmma(op))
    return lowerWarpgroupDot(op, in);
  return hasMmaLayout(op.getType()) ? lowerMmaDot(op, in)
                                    : lowerBlockedDot(op, in);
}

static Results lowerWgmmaWait(tile_gpu::WgmmaWaitOp op, TileReader &in) {
  SmallVector<Value> sums;
  for (Value value : op.getValues())
    llvm::append_range(sums, in.registersOf(value));
  ValueRange waited =
      tile_gpu::WgmmaWaitOp::create(in.b, TypeRange(ValueRange(sums)),
                                    op.getPending(), sums)
          .getResults();
  return splitRegisters(op.getResults(), waited);
}

void nsa::cuda::populateDotPatterns(TilePatterns &patterns) {
  patterns.add(lowerDot, lowerWgmmaWait);
}
