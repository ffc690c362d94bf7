//===- CopyPatterns.cpp - copies to buffers -------------------------------===//

#include "passes/TileGPU/Prefetch.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "passes/TileGPUToNVVM/SharedBuffers.h"
#include "passes/TileGPUToNVVM/TileReader.h"
#include <numeric>

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Bytes from a row of an access to the next one, if all are equal, and known.
static std::optional<int64_t> getRowDistance(tile_gpu::AsyncCopyOp copy,
                                             const ExtentTable &extents) {
  auto type = cast<MemRefType>(copy.getRef().getType());
  SmallVector<Extent> strides = extents.getStrides(type);
  std::optional<int64_t> distance;
  for (auto [index, stride] : llvm::zip_equal(copy.getIndices(), strides)) {
    auto tile = dyn_cast<TileType>(index.getType());
    if (!tile || tile.getRows() == 1)
      continue;
    auto range = index.getDefiningOp<RangeOp>();
    if (!range || distance || !stride.isConstant())
      return std::nullopt;
    distance =
        range.getStep() * int64_t(stride) * elementBytes(type.getElementType());
  }
  // Distances are i32.
  int64_t rows = copy.getTileType().getRows() + 16;
  if (!distance || !llvm::isInt<32>(rows * *distance))
    return std::nullopt;
  return distance;
}

/// The row by which the coordinates of `row` are computed: the last one of the
/// tile for its padding where they are computed from what is read, which must
/// lie inside.
static Value getReadRow(ThreadBuilder &b, tile_gpu::AsyncCopyOp op,
                        int64_t paddedRows, Value row) {
  int64_t rows = op.getTileType().getRows();
  bool isGathered = llvm::any_of(op.getIndices(), [](Value index) {
    return isa<TileType>(index.getType()) && !index.getDefiningOp<RangeOp>();
  });
  return isGathered && rows != paddedRows ? b.clamp(row, rows) : row;
}

/// Where what is copied to a row and a column comes from; padding up to
/// `paddedRows` and `paddedCols` is outside.
static Address sourceOf(TileReader &in, tile_gpu::AsyncCopyOp op, Value row,
                        Value col, int64_t paddedRows, int64_t paddedCols) {
  ThreadBuilder &b = in.b;
  TileType tile = op.getTileType();
  Value inside = getReadRow(b, op, paddedRows, row);
  Memo memo;
  SmallVector<Value> coordinates =
      llvm::map_to_vector(op.getIndices(), [&](Value index) {
        return in.evaluate(index, inside, col, memo);
      });
  Address address = addressOf(in, op.getRef(), op.getIndices(), coordinates);
  if (tile.getRows() != paddedRows)
    address.valid = b.both(address.valid, b.less(row, tile.getRows()));
  if (tile.getCols() != paddedCols)
    address.valid = b.both(address.valid, b.less(col, tile.getCols()));
  return address;
}

/// How many of `bytes` are read, the rest are zeros: none of an element out of
/// bounds. Null is all.
static Value bytesInside(ThreadBuilder &b, const Address &address,
                         int64_t bytes) {
  return address.valid ? b.select(address.valid, b.i32(bytes), b.i32(0))
                       : Value();
}

/// Copies 4, 8 or 16 bytes.
static void copyAsync(ThreadBuilder &b, Value to, Value from, int64_t bytes,
                      Value inside) {
  auto cache = bytes == 16 ? NVVM::LoadCacheModifierKind::CG
                           : NVVM::LoadCacheModifierKind::CA;
  NVVM::CpAsyncOp::create(b, to, from, uint32_t(bytes), cache, inside);
}

/// Each thread copies pieces of 4, 8 or 16 bytes, zeros for those outside.
/// Where rounds are at constant distances, constants are added to the addresses
/// of the first one: they become parts of the instructions.
static void copyVectors(TileReader &in, tile_gpu::AsyncCopyOp op,
                        const SharedBuffer &tile) {
  ThreadBuilder &b = in.b;
  const SharedShape &shape = tile.shape;
  auto width = int64_t(op.getWidth());
  int64_t perRow = shape.paddedCols() / width;
  int64_t pieces = shape.paddedRows() * perRow;
  int64_t perVector = SharedShape::vectorElements / width;
  Type element = op.getBuffer().getType().getElementType();
  int64_t rowsPerRound = countWorkers(b, perRow) % perRow == 0
                             ? countWorkers(b, perRow) / perRow
                             : 0;
  // Rounds until the pattern of vectors repeats.
  int64_t period = 8 / std::gcd<int64_t>(8, rowsPerRound);
  std::optional<int64_t> rowDistance =
      getRowDistance(op, in.bounds.getExtents());
  SmallVector<Value> targets;
  Value source;
  int64_t round = 0;
  auto copy = [&](Value row, Value piece) {
    Address address = sourceOf(in, op, row, b.mul(piece, width),
                               shape.paddedRows(), shape.paddedCols());
    Value inside = bytesInside(b, address, 2 * width), from, to;
    if (rowsPerRound && rowDistance && round > 0)
      // May be out of bounds, where nothing is read.
      from = b.advance(source, b.i32(round * rowsPerRound * *rowDistance));
    else
      from = b.address(in.scalar(op.getRef()), address.offset, element);
    if (rowsPerRound && round >= period) {
      int64_t first = round % period;
      to = b.advance(targets[first],
                     (round - first) * rowsPerRound * shape.rowBytes());
    } else {
      to = bufferAddress(b, tile, row, b.div(piece, perVector));
      if (perVector > 1)
        to = b.advance(to, b.mul(b.rem(piece, perVector), 2 * width));
      targets.push_back(to);
    }
    if (round++ == 0)
      source = from;
    copyAsync(b, to, from, 2 * width, inside);
  };
  forPieces(b, pieces, perRow, copy);
}

static void copyElements(TileReader &in, tile_gpu::AsyncCopyOp op,
                         const SharedBuffer &tile) {
  ThreadBuilder &b = in.b;
  const SharedShape &shape = tile.shape;
  auto copy = [&](Value row, Value col) {
    Address address =
        sourceOf(in, op, row, col, shape.paddedRows(), shape.paddedCols());
    b.store(loadFrom(in, op.getRef(), address),
            bufferElement(b, tile, row, col), b.i32(0));
  };
  forPieces(b, shape.paddedRows() * shape.paddedCols(), shape.paddedCols(),
            copy);
}

//===----------------------------------------------------------------------===//
// Rows and columns
//===----------------------------------------------------------------------===//

/// Runs a body for the pieces of a line, on the threads of the block or on the
/// lanes of a producer's first warp. These stay together for shuffles: beyond
/// the end they repeat the last piece.
static void forLinePieces(ThreadBuilder &b, tile_gpu::AsyncCopyOp op,
                          int64_t pieces,
                          function_ref<void(Value, Value)> body) {
  if (!op.getBarriers())
    return forPieces(b, pieces, pieces, body);
  b.ifThen(b.less(b.warpOfGroup(), 1), [&] {
    for (int64_t done = 0; done < pieces; done += kWarp) {
      Value piece = b.add(b.place().lane, done);
      body({}, done + kWarp > pieces ? b.clamp(piece, pieces) : piece);
    }
  });
}

/// Copies a line by 4 or 16 bytes, zeros for elements outside.
static void copyLine(TileReader &in, tile_gpu::AsyncCopyOp op) {
  ThreadBuilder &b = in.b;
  RegisterLayout layout = getLineLayout(op.getBuffer());
  bool isRow = layout.rows == 1;
  int64_t padded = layout.lineLength();
  auto width = int64_t(op.getWidth());
  auto copy = [&](Value, Value piece) {
    Value place = b.mul(piece, width);
    Address address = isRow ? sourceOf(in, op, b.i32(0), place, 1, padded)
                            : sourceOf(in, op, place, b.i32(0), padded, 1);
    Value inside = bytesInside(b, address, 4 * width);
    Value to =
        lineAddress(in, op.getBuffer(), op.getStage(), b.mul(piece, 4 * width));
    Value from =
        b.address(in.scalar(op.getRef()), address.offset, layout.element);
    copyAsync(b, to, from, 4 * width, inside);
  };
  forLinePieces(b, op, padded / width, copy);
}

/// A line that was copied: a column is read to registers now, a row where it is
/// used.
static Results lowerLocalLoad(tile_gpu::LocalLoadOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  if (isReadWhereUsed(op.getTile()))
    return {getUnused(b, op.getTile())};
  RegisterLayout layout(op.getTile());
  SmallVector<Value> values;
  if (layout.rows == 1) {
    for (int64_t c = 0; c < layout.colCount(); c += 2) {
      Value pair = loadRowPair(in, op.getTile(), c / 2);
      values.append({b.half(pair, 0), b.half(pair, 1)});
    }
    return {std::move(values)};
  }
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    values.push_back(b.load(lineAddress(in, op.getBuffer(), op.getStage(),
                                        b.mul(b.rowOf(layout, r), 4)),
                            b.i32(0), layout.element));
  return {std::move(values)};
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

static Results lowerAsyncCopy(tile_gpu::AsyncCopyOp op, TileReader &in) {
  if (op.isLine()) {
    copyLine(in, op);
  } else {
    SharedBuffer tile = sharedBufferOf(in, op.getBuffer());
    if (!op.isAsync()) {
      copyElements(in, op, tile);
      return {};
    }
    if (op.getStage())
      tile.stage = in.scalar(op.getStage());
    copyVectors(in, op, tile);
  }
  // Of several stages, a group ends with an operation of its own.
  if (!op.getStage())
    tile_gpu::AsyncCommitOp::create(in.b);
  return {};
}

/// Users find the buffer.
static Results lowerLocalView(tile_gpu::LocalViewOp, TileReader &) {
  return {{}};
}

static Results lowerIteration(tile_gpu::IterationOp op, TileReader &in) {
  return {{in.scalar(op.getValue())}};
}

static Results lowerToLanes(tile_gpu::ToLanesOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  auto group = int64_t(op.getGroup());
  int64_t count =
      cast<TileType>(op.getTile().getType()).getNumElements() / group;
  Value place = b.mul(b.clamp(b.place().lane, count), group);
  Memo memo;
  return {{in.evaluate(op.getTile(), place, place, memo)}};
}

/// Users find what lanes have.
static Results lowerFromLanes(tile_gpu::FromLanesOp, TileReader &) {
  return {{}};
}

void nsa::cuda::populateCopyPatterns(TilePatterns &patterns) {
  patterns.add(lowerAsyncCopy, lowerLocalLoad, lowerLocalView, lowerIteration,
               lowerToLanes, lowerFromLanes);
}
