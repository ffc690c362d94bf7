//===- Caches.cpp - rows that decoding keeps ------------------------------===//
//
// Decoding operations that depend on the position: writing and reading rows of
// caches [B, R, H, D], rotation, rows of a batch of whole sequences.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/AttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// "b2s64h2d16": the sizes of [B, rows, H, D] in the name of a kernel.
static std::string getName(Value value) {
  std::string name;
  for (auto [letter, size] : llvm::zip("bshd", getShape(value)))
    name += letter + std::to_string(size);
  return name;
}

static KernelSpec makeSpec(std::string name, std::array<Extent, 3> grid) {
  KernelSpec spec;
  spec.shape = std::move(name);
  spec.grid = grid;
  return spec;
}

//===----------------------------------------------------------------------===//
// Writing and reading
//===----------------------------------------------------------------------===//

/// Program: a sequence. `args` are the cache, the row, its number and the
/// cache.
static void buildAppend(TileBuilder &b, Value row, ArrayRef<Value> args) {
  ArrayRef<int64_t> shape = getShape(row);
  int64_t rows = cast<MemRefType>(args[3].getType()).getShape()[1];
  Expr batch = b.programId(0);
  Expr index = b.loadScalar(args[2], {batch});
  Value heads = b.range(0, shape[2], 0), cols = b.range(0, shape[3], 1);
  Value value = b.load(args[1], {batch, 0, heads, cols});
  // Nothing is stored outside.
  Expr place = select(index >= 0, index % static_cast<double>(rows), -1);
  b.store(value, args[3], {batch, place, heads, cols});
}

/// Rows of a program that writes or reads many.
static constexpr int64_t kRowTile = 16;

/// Program: (some rows, head, sequence). `args` are the cache, the rows, the
/// last number and the cache.
static void buildFill(TileBuilder &b, Value cache, ArrayRef<Value> args) {
  int64_t rows = getDim(cache, 1), width = getDim(cache, 3);
  Expr head = b.programId(1), batch = b.programId(2);
  Expr last = b.loadScalar(args[2], {batch});
  Value row = b.range(b.programId(0) * kRowTile, kRowTile, 0);
  Value cols = b.range(0, width, 1);
  Value place = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr isKept = (x[0] <= last) & (x[0] > last - static_cast<double>(rows));
    return select(isKept, x[0] % static_cast<double>(rows), -1);
  });
  b.store(b.load(args[1], {batch, row, head, cols}), args[3],
          {batch, place, head, cols});
}

/// Program: (some rows, head, sequence). `args` are the cache, the last number
/// and the rows.
static void buildRead(TileBuilder &b, Value cache, int64_t count,
                      ArrayRef<Value> args) {
  int64_t rows = getDim(cache, 1), width = getDim(cache, 3);
  Expr head = b.programId(1), batch = b.programId(2);
  Expr first = b.loadScalar(args[1], {batch}) - static_cast<double>(count - 1);
  Value row = b.range(b.programId(0) * kRowTile, kRowTile, 0);
  Value cols = b.range(0, width, 1);
  Value place = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr number = first + x[0];
    return select(number >= 0, number % static_cast<double>(rows), -1);
  });
  b.store(b.load(args[0], {batch, place, head, cols}), args[2],
          {batch, row, head, cols});
}

static LogicalResult convertCacheAppend(CacheAppendOp op, KernelCache &cache,
                                        PatternRewriter &rewriter) {
  KernelSpec spec =
      makeSpec(getName(op.getCache()), {getDim(op.getCache(), 0), 1, 1});
  spec.inPlace = {{0, 0}};
  return cache.replace(rewriter, op, spec, [&](auto &b, ArrayRef<Value> args) {
    buildAppend(b, op.getRow(), args);
  });
}

static LogicalResult convertCacheFill(CacheFillOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t sequence = getDim(op.getRows(), 1);
  KernelSpec spec =
      makeSpec(getName(op.getCache()) + "_s" + std::to_string(sequence),
               {std::max<int64_t>(llvm::divideCeil(sequence, kRowTile), 1),
                getDim(op.getCache(), 2), getDim(op.getCache(), 0)});
  spec.inPlace = {{0, 0}};
  return cache.replace(rewriter, op, spec, [&](auto &b, ArrayRef<Value> args) {
    buildFill(b, op.getCache(), args);
  });
}

static LogicalResult convertCacheRead(CacheReadOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t count = op.getCount();
  KernelSpec spec =
      makeSpec(getName(op.getCache()) + "_n" + std::to_string(count),
               {static_cast<int64_t>(llvm::divideCeil(count, kRowTile)),
                getDim(op.getCache(), 2), getDim(op.getCache(), 0)});
  return cache.replace(rewriter, op, spec, [&](auto &b, ArrayRef<Value> args) {
    buildRead(b, op.getCache(), count, args);
  });
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

static LogicalResult convertLastBlock(LastBlockOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t batch = getDim(op.getPositions(), 0);
  int64_t block = op.getBlock(), stride = op.getStride();
  auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
    Value numbers = b.range(0, batch, 0);
    auto found =
        b.map({b.load(args[0], {numbers})}, {b.i32(), b.i32()},
              [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                // Of the first token after the first block, 0.
                Expr beyond = x[0] - static_cast<double>(block - 1);
                Expr last = select(beyond >= 0,
                                   beyond / static_cast<double>(stride), -1);
                Expr ends =
                    (beyond >= 0) & (beyond % static_cast<double>(stride) == 0);
                return {last, select(ends, last, -1)};
              });
    for (auto [tile, to] : llvm::zip(found, args.drop_front()))
      b.store(tile, to, {numbers});
  };
  return cache.replace(rewriter, op,
                       makeSpec("b" + std::to_string(batch), {1, 1, 1}), build);
}

/// Program: a sequence.
static LogicalResult convertRotaryAt(RotaryAtOp op, KernelCache &cache,
                                     PatternRewriter &rewriter) {
  ArrayRef<int64_t> shape = getShape(op.getInput());
  auto stride = static_cast<double>(op.getStride());
  auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
    Expr batch = b.programId(0);
    Expr position = b.loadScalar(args[2], {batch}) * stride;
    rotateRows(b, args[0], args[3], args[1],
               {batch, 0, b.range(0, shape[2], 0)}, position,
               /*inverse=*/false);
  };
  KernelSpec spec = makeSpec(getName(op.getInput()), {shape[0], 1, 1});
  return cache.replace(rewriter, op, spec, build);
}

/// Program: a sequence.
static LogicalResult convertTakeRow(TakeRowOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  ArrayRef<int64_t> shape = getShape(op.getInput());
  auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
    Expr batch = b.programId(0);
    Value cols = b.range(0, shape[2], 1);
    Value row = b.load(args[0], {batch, b.loadScalar(args[1], {batch}), cols});
    b.store(row, args[2], {batch, 0, cols});
  };
  KernelSpec spec =
      makeSpec("b" + std::to_string(shape[0]) + "s" + std::to_string(shape[1]) +
                   "d" + std::to_string(shape[2]),
               {shape[0], 1, 1});
  return cache.replace(rewriter, op, spec, build);
}

void nsa::populateCachePatterns(KernelPatterns &patterns) {
  patterns.add(convertCacheAppend, convertCacheFill, convertCacheRead,
               convertLastBlock, convertRotaryAt, convertTakeRow);
}
