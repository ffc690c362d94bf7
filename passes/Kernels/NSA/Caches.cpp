//===- Caches.cpp - rows that decoding keeps ------------------------------===//
//
// Decoding operations that depend on the position: writing and reading rows of
// caches [B, R, H, D], rotation, rows of a batch of whole sequences.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/Caches.h"
#include "passes/Kernels/KernelOperands.h"
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

/// The slot of row `index` in a cache of `rows` rows, -1 of none: nothing is
/// stored there.
static Expr getPlace(Expr index, int64_t rows) {
  return select(index >= 0, index % static_cast<double>(rows), -1);
}

static ArrayRef<int64_t> getMemoryShape(Value memory) {
  return cast<MemRefType>(memory.getType()).getShape();
}

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

int64_t CacheMemory::sequences() const {
  return getMemoryShape(pages ? pages : memory)[0];
}

int64_t CacheMemory::pageRows() const { return getMemoryShape(memory)[1]; }

int64_t CacheMemory::rows() const {
  return pageRows() * (pages ? getMemoryShape(pages)[1] : 1);
}

CacheMemory::Place CacheMemory::at(TileBuilder &b, Expr sequence,
                                   Expr row) const {
  if (!pages)
    return {sequence, row};
  auto size = static_cast<double>(pageRows());
  return {b.loadScalar(pages, {sequence, row / size}) - 1, row % size};
}

CacheMemory::Place CacheMemory::at(TileBuilder &b, Expr sequence,
                                   Value rows) const {
  if (!pages)
    return {sequence, rows};
  auto size = static_cast<double>(pageRows());
  auto places = b.map({rows}, {b.i32(), b.i32()},
                      [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                        return {x[0] / size, x[0] % size};
                      });
  Value page = b.map({b.load(pages, {sequence, places[0]})}, b.i32(),
                     [](ArrayRef<Expr> x) { return x[0] - 1; });
  return {page, places[1]};
}

CacheMemory::Place CacheMemory::from(TileBuilder &b, Expr sequence, Expr first,
                                     int64_t count) const {
  auto [page, row] = at(b, sequence, first);
  return {page, b.range(row, count, 0)};
}

//===----------------------------------------------------------------------===//
// The row of a token
//===----------------------------------------------------------------------===//

LaunchPart nsa::rotateRow(RotaryAtOp op) {
  auto stride = static_cast<double>(op.getStride());
  KernelSpec spec = {"rotary" + std::to_string(op.getStride()),
                     "",
                     {getDim(op.getInput(), 0), 1, 1}};
  return {spec,
          llvm::to_vector(op->getOperands()),
          {op.getOutput().getType()},
          [=](TileBuilder &b, ArrayRef<Value> args) {
            RotaryAtOp::Adaptor in(args.drop_back(), op);
            Expr batch = b.programId(0);
            Value heads = b.range(0, getMemoryShape(in.getInput())[2], 0);
            rotateRows(b, in.getInput(), args.back(), in.getTable(),
                       {batch, 0, heads},
                       b.loadScalar(in.getIndex(), {batch}) * stride,
                       /*inverse=*/false);
          }};
}

namespace {
/// What a kernel reads that writes a row to a cache.
struct AppendOperands {
  SmallVector<Value *> slots() {
    return {&cache, &row, &index, &pages, &table};
  }

  Value cache, row, index, pages, table;
};

/// What a kernel reads that writes a row to a cache and compresses it.
struct CompressedRowOperands {
  SmallVector<Value *> slots() {
    return {&tokens, &token, &index, &compressed, &rowIndex, &pages, &table};
  }

  /// `pages` are those of the tokens.
  Value tokens, token, index, compressed, rowIndex, pages, table;
};
} // namespace

LaunchPart nsa::appendRow(CacheAppendOp op, RotaryAtOp rotary) {
  KernelSpec spec = {"append", "", {getDim(op.getRow(), 0), 1, 1}};
  spec.inPlace = {{0, 0}};
  AppendOperands in = {op.getCache(), op.getRow(), op.getIndex(), op.getPages(),
                       Value()};
  double stride = 1;
  if (rotary) {
    stride = static_cast<double>(rotary.getStride());
    spec.suffix += "_rotary" + std::to_string(rotary.getStride());
    in.row = rotary.getInput();
    in.table = rotary.getTable();
  }
  return makeLaunch(
      spec, in, {op.getUpdated().getType()},
      [=](TileBuilder &b, const AppendOperands &in, ArrayRef<Value> out) {
        ArrayRef<int64_t> shape = getMemoryShape(in.row);
        Expr batch = b.programId(0), index = b.loadScalar(in.index, {batch});
        CacheMemory cache = {out.front(), in.pages};
        auto [sequence, place] =
            cache.at(b, batch, getPlace(index, cache.rows()));
        Value heads = b.range(0, shape[2], 0);
        if (in.table) {
          RowsOfHeads target = {sequence, place, heads};
          return rotateRows(b, in.row, out.front(), in.table, {batch, 0, heads},
                            index * stride, /*inverse=*/false, &target);
        }
        Value cols = b.range(0, shape[3], 1);
        b.store(b.load(in.row, {batch, 0, heads, cols}), out.front(),
                {sequence, place, heads, cols});
      });
}

//===----------------------------------------------------------------------===//
// Compressed rows
//===----------------------------------------------------------------------===//

std::optional<CompressedRow> CompressedRow::match(CacheAppendOp append) {
  CompressedRow row;
  row.append = append;
  Value value = append.getRow();
  row.rotary = getOnly<RotaryAtOp>(value);
  if (row.rotary) {
    if (row.rotary.getIndex() != append.getIndex())
      return std::nullopt;
    value = row.rotary.getInput();
  }
  row.compress = getOnly<CompressOp>(value);
  if (!row.compress || row.compress.getKind() != CompressionKind::Mean ||
      row.compress.getStart())
    return std::nullopt;
  row.read = getOnly<CacheReadOp>(row.compress.getInput());
  if (!row.read ||
      static_cast<int64_t>(row.read.getCount()) != row.compress.getBlock())
    return std::nullopt;
  row.tokens = getOnly<CacheAppendOp>(row.read.getCache());
  // The function returns the cache as well.
  if (!row.tokens)
    if (auto tokens = row.read.getCache().getDefiningOp<CacheAppendOp>();
        tokens && llvm::all_of(tokens->getUsers(), [&](Operation *user) {
          return user == row.read || user->hasTrait<OpTrait::IsTerminator>();
        }))
      row.tokens = tokens;
  if (!row.tokens || row.tokens.getIndex() != row.read.getLast() ||
      row.tokens.getPages() != row.read.getPages() || append.getPages())
    return std::nullopt;
  return row;
}

static void buildCompressedRow(TileBuilder &b, int64_t length, int64_t stride,
                               const CompressedRowOperands &in,
                               Value updatedTokens, Value updated) {
  int64_t width = getMemoryShape(in.token)[3];
  CacheMemory ring = {in.tokens, in.pages};
  Expr head = b.programId(0), batch = b.programId(2);
  Expr position = b.loadScalar(in.index, {batch});
  Expr row = b.loadScalar(in.rowIndex, {batch});
  Type element = cast<MemRefType>(updated.getType()).getElementType();
  // The row that the token replaces is not one of those before it.
  auto mean = [&](Value cols) {
    Value places =
        b.map({b.range(0, length, 0)}, b.i32(), [&](ArrayRef<Expr> x) {
          Expr number = position - static_cast<double>(length - 1) + x[0];
          return select(x[0] < static_cast<double>(length - 1),
                        getPlace(number, ring.rows()), -1);
        });
    auto [sequence, place] = ring.at(b, batch, places);
    Value before =
        b.reduceAdd(b.loadF32(in.tokens, {sequence, place, head, cols}),
                    /*axis=*/0);
    Value own = b.load(in.token, {batch, 0, head, cols});
    return b.convertTo(b.map({before, own}, b.f32(),
                             [&](ArrayRef<Expr> x) {
                               return (x[0] + x[1]) *
                                      (1.0 / static_cast<double>(length));
                             }),
                       element);
  };
  b.ifThen(row >= 0, [&] {
    Expr place = row % static_cast<double>(getMemoryShape(updated)[1]);
    if (!in.table) {
      Value cols = b.range(0, width, 1);
      return b.store(mean(cols), updated, {batch, place, head, cols});
    }
    int64_t pairs = width / 2;
    Value low = b.range(0, pairs, 1), high = b.range(pairs, pairs, 1);
    Expr angle = row * static_cast<double>(stride);
    auto rotated =
        b.map({mean(low), mean(high), b.load(in.table, {angle, low, 0}),
               b.load(in.table, {angle, low, 1})},
              {b.f32(), b.f32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                auto pair = rotatePair(b, x[0], x[1], x[2], x[3],
                                       /*inverse=*/false);
                return {pair[0], pair[1]};
              });
    b.store(rotated[0], updated, {batch, place, head, low});
    b.store(rotated[1], updated, {batch, place, head, high});
  });
  Value cols = b.range(0, width, 1);
  Value own = b.load(in.token, {batch, 0, head, cols});
  auto [sequence, place] = ring.at(b, batch, getPlace(position, ring.rows()));
  b.store(own, updatedTokens, {sequence, place, head, cols});
}

LaunchPart CompressedRow::getPart() const {
  auto length = static_cast<int64_t>(compress.getBlock());
  int64_t stride = 1;
  KernelSpec spec = {
      "compress_l" + std::to_string(length),
      "",
      {getDim(tokens.getRow(), 2), 1, getDim(tokens.getRow(), 0)}};
  spec.inPlace = {{0, 0}, {3, 1}};
  CompressedRowOperands in = {tokens.getCache(),
                              tokens.getRow(),
                              tokens.getIndex(),
                              append.getCache(),
                              append.getIndex(),
                              tokens.getPages(),
                              Value()};
  if (rotary) {
    stride = static_cast<int64_t>(rotary.getStride());
    spec.suffix += "_rotary" + std::to_string(stride);
    in.table = rotary.getTable();
  }
  return makeLaunch(
      spec, in, {tokens.getUpdated().getType(), append.getUpdated().getType()},
      [=](TileBuilder &b, const CompressedRowOperands &in,
          ArrayRef<Value> out) {
        buildCompressedRow(b, length, stride, in, out.front(), out.back());
      });
}

//===----------------------------------------------------------------------===//
// Many rows
//===----------------------------------------------------------------------===//

/// Rows of a program that writes or reads many.
static constexpr int64_t kRowTile = 16;

/// Program: (some rows, head, sequence).
static void buildFill(TileBuilder &b, CacheFillOp::Adaptor in, Value updated) {
  CacheMemory cache = {updated, in.getPages()};
  auto rows = static_cast<double>(cache.rows());
  Expr head = b.programId(1), batch = b.programId(2);
  Expr last = b.loadScalar(in.getLast(), {batch});
  auto begin =
      QueryPlace::load(b, cache.sequences(), cache.rows(), in.getAt(), batch);
  Value row = b.range(b.programId(0) * kRowTile, kRowTile, 0);
  Value cols = b.range(0, getMemoryShape(updated)[3], 1);
  Value places = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr number = begin.of(x[0]);
    Expr isKept = (number <= last) & (number > last - rows);
    return select(isKept, number % rows, -1);
  });
  auto [sequence, place] = cache.at(b, begin.batch, places);
  b.store(b.load(in.getRows(), {batch, row, head, cols}), updated,
          {sequence, place, head, cols});
}

/// Program: (some rows, head, sequence).
static void buildSlice(TileBuilder &b, CacheSliceOp::Adaptor in, int64_t stride,
                       Value rows) {
  CacheMemory cache = {in.getCache(), in.getPages()};
  Expr head = b.programId(1), batch = b.programId(2);
  auto begin =
      QueryPlace::load(b, cache.sequences(), cache.rows(), in.getAt(), batch);
  Value row = b.range(b.programId(0) * kRowTile, kRowTile, 0);
  Value cols = b.range(0, getMemoryShape(rows)[3], 1);
  Value places = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    return *begin.first * static_cast<double>(stride) + x[0];
  });
  auto [sequence, place] = cache.at(b, begin.batch, places);
  b.store(b.load(in.getCache(), {sequence, place, head, cols}), rows,
          {batch, row, head, cols});
}

/// Program: (some rows, head, sequence).
static void buildRead(TileBuilder &b, CacheReadOp::Adaptor in, int64_t count,
                      Value read) {
  CacheMemory cache = {in.getCache(), in.getPages()};
  Expr head = b.programId(1), batch = b.programId(2);
  Expr first =
      b.loadScalar(in.getLast(), {batch}) - static_cast<double>(count - 1);
  Value row = b.range(b.programId(0) * kRowTile, kRowTile, 0);
  Value cols = b.range(0, getMemoryShape(read)[3], 1);
  Value places = b.map({row}, b.i32(), [&](ArrayRef<Expr> x) {
    return getPlace(first + x[0], cache.rows());
  });
  auto [sequence, place] = cache.at(b, batch, places);
  b.store(b.load(in.getCache(), {sequence, place, head, cols}), read,
          {batch, row, head, cols});
}

static LogicalResult convertCacheAppend(CacheAppendOp op, KernelCache &cache,
                                        PatternRewriter &rewriter) {
  LaunchPart part = appendRow(op, /*rotary=*/{});
  part.spec.suffix = "";
  part.spec.shape = getName(op.getCache());
  rewriter.replaceOp(op, launch(cache, rewriter, op, part));
  return success();
}

static LogicalResult convertRotaryAt(RotaryAtOp op, KernelCache &cache,
                                     PatternRewriter &rewriter) {
  LaunchPart part = rotateRow(op);
  part.spec.suffix = "";
  part.spec.shape = getName(op.getInput());
  rewriter.replaceOp(op, launch(cache, rewriter, op, part));
  return success();
}

static LogicalResult convertCacheFill(CacheFillOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t sequence = getDim(op.getRows(), 1);
  KernelSpec spec =
      makeSpec(getName(op.getCache()) + "_s" + std::to_string(sequence),
               {std::max<int64_t>(llvm::divideCeil(sequence, kRowTile), 1),
                getDim(op.getCache(), 2), getDim(op.getRows(), 0)});
  if (op.getAt())
    spec.shape += "_at";
  spec.inPlace = {{0, 0}};
  return replaceByKernel(cache, rewriter, op, spec,
                         [](auto &b, auto in, ArrayRef<Value> out) {
                           buildFill(b, in, out.front());
                         });
}

static LogicalResult convertCacheRead(CacheReadOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t count = op.getCount();
  KernelSpec spec =
      makeSpec(getName(op.getCache()) + "_n" + std::to_string(count),
               {static_cast<int64_t>(llvm::divideCeil(count, kRowTile)),
                getDim(op.getCache(), 2), getDim(op.getLast(), 0)});
  return replaceByKernel(cache, rewriter, op, spec,
                         [=](auto &b, auto in, ArrayRef<Value> out) {
                           buildRead(b, in, count, out.front());
                         });
}

static LogicalResult convertCacheSlice(CacheSliceOp op, KernelCache &cache,
                                       PatternRewriter &rewriter) {
  int64_t count = op.getCount(), stride = op.getStride();
  KernelSpec spec =
      makeSpec(getName(op.getCache()) + "_n" + std::to_string(count),
               {static_cast<int64_t>(llvm::divideCeil(count, kRowTile)),
                getDim(op.getCache(), 2), getDim(op.getAt(), 0)});
  return replaceByKernel(cache, rewriter, op, spec,
                         [=](auto &b, auto in, ArrayRef<Value> out) {
                           buildSlice(b, in, stride, out.front());
                         });
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

static LogicalResult convertFirstBlock(FirstBlockOp op, KernelCache &cache,
                                       PatternRewriter &rewriter) {
  int64_t batch = getDim(op.getAt(), 0);
  int64_t before = int64_t(op.getBlock()) - int64_t(op.getStride());
  auto stride = static_cast<double>(op.getStride());
  auto build = [&](TileBuilder &b, FirstBlockOp::Adaptor in,
                   ArrayRef<Value> out) {
    Value numbers = b.range(0, batch, 0);
    b.store(b.load(in.getAt(), {numbers, 0}), out.front(), {numbers, 0});
    Value first = b.map(
        {b.load(in.getAt(), {numbers, 1})}, b.i32(), [&](ArrayRef<Expr> x) {
          return max(x[0] - static_cast<double>(before), 0) / stride;
        });
    b.store(first, out.front(), {numbers, 1});
  };
  return replaceByKernel(cache, rewriter, op,
                         makeSpec("b" + std::to_string(batch), {1, 1, 1}),
                         build);
}

static LogicalResult convertLastBlock(LastBlockOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  int64_t batch = getDim(op.getPositions(), 0);
  int64_t block = op.getBlock(), stride = op.getStride();
  auto build = [&](TileBuilder &b, LastBlockOp::Adaptor in,
                   ArrayRef<Value> out) {
    Value numbers = b.range(0, batch, 0);
    auto found =
        b.map({b.load(in.getPositions(), {numbers})}, {b.i32(), b.i32()},
              [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                // Of the first token after the first block, 0.
                Expr beyond = x[0] - static_cast<double>(block - 1);
                Expr last = select(beyond >= 0,
                                   beyond / static_cast<double>(stride), -1);
                Expr ends =
                    (beyond >= 0) & (beyond % static_cast<double>(stride) == 0);
                return {last, select(ends, last, -1)};
              });
    for (auto [tile, to] : llvm::zip_equal(found, out))
      b.store(tile, to, {numbers});
  };
  return replaceByKernel(cache, rewriter, op,
                         makeSpec("b" + std::to_string(batch), {1, 1, 1}),
                         build);
}

static LogicalResult convertAdvance(AdvanceOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  ArrayRef<int64_t> shape = getShape(op.getIds());
  int64_t batch = shape[0], kept = shape[1], context = op.getContext();
  auto build = [&](TileBuilder &b, AdvanceOp::Adaptor in, ArrayRef<Value> out) {
    Value numbers = b.range(0, batch, 0);
    Value tokens = b.load(in.getToken(), {numbers, 0});
    Expr end = b.loadScalar(in.getEnd(), {0});
    auto found =
        b.map({b.load(in.getPositions(), {numbers}), tokens},
              {b.i32(), b.i32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                Expr runs = x[0] >= 0, place = x[0] + 1;
                Expr goesOn = runs & (x[1] >= 0) & (x[1] != end) &
                              (place < static_cast<double>(context));
                return {select(goesOn, place, -1),
                        select(runs, getPlace(place, kept), -1)};
              });
    b.store(found[0], out[0], {numbers});
    b.store(tokens, out[1], {numbers, found[1]});
  };
  KernelSpec spec = makeSpec(
      "b" + std::to_string(batch) + "n" + std::to_string(kept), {1, 1, 1});
  spec.inPlace = {{2, 1}};
  return replaceByKernel(cache, rewriter, op, spec, build);
}

/// Program: a sequence.
static LogicalResult convertTakeRow(TakeRowOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  ArrayRef<int64_t> shape = getShape(op.getInput());
  auto build = [&](TileBuilder &b, TakeRowOp::Adaptor in, ArrayRef<Value> out) {
    Expr batch = b.programId(0), index = b.loadScalar(in.getIndex(), {batch});
    if (in.getAt())
      index = index - b.loadScalar(in.getAt(), {batch, 1});
    Value cols = b.range(0, shape[2], 1);
    b.store(b.load(in.getInput(), {batch, index, cols}), out.front(),
            {batch, 0, cols});
  };
  KernelSpec spec =
      makeSpec("b" + std::to_string(shape[0]) + "s" + std::to_string(shape[1]) +
                   "d" + std::to_string(shape[2]) + (op.getAt() ? "_at" : ""),
               {shape[0], 1, 1});
  return replaceByKernel(cache, rewriter, op, spec, build);
}

void nsa::populateCachePatterns(KernelPatterns &patterns) {
  patterns.add(convertAdvance, convertCacheAppend, convertCacheFill,
               convertCacheRead, convertCacheSlice, convertFirstBlock,
               convertLastBlock, convertRotaryAt, convertTakeRow);
}
