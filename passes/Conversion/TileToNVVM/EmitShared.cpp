//===- EmitShared.cpp - tiles that stay in shared memory ------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include <numeric>

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The buffer of a tile, or a buffer.
KernelEmitter::SharedBuffer KernelEmitter::sharedBufferOf(Value tile) {
  Value buffer = getBuffer(tile), stage;
  if (auto view = tile.getDefiningOp<tile_gpu::LocalViewOp>();
      view && view.getStage())
    stage = scalar(view.getStage());
  return {SharedShape(buffer), getOffset(buffer), stage};
}

/// Where vector `vector` of a swizzle atom column lies within row `row` of it.
Value KernelEmitter::swizzle(const SharedShape &shape, Value row,
                             Value vector) {
  Value flip = row;
  if (int64_t shift = shape.swizzleShift())
    flip = b.createOrFold<arith::ShRUIOp>(flip, b.i32(shift));
  flip = b.createOrFold<arith::AndIOp>(flip, b.i32(shape.atomVectors() - 1));
  return b.createOrFold<arith::XOrIOp>(vector, flip);
}

Value KernelEmitter::bufferAddress(const SharedBuffer &tile, Value row,
                                   Value vector) {
  const SharedShape &shape = tile.shape;
  int64_t atom = 0;
  Value atomByte;
  if (std::optional<int64_t> known = getConstantIntValue(vector)) {
    atom = *known / shape.atomVectors();
    vector = b.i32(*known % shape.atomVectors());
  } else if (shape.vectors() > shape.atomVectors()) {
    atomByte = b.mul(b.div(vector, shape.atomVectors()), shape.atomBytes());
    vector = b.rem(vector, shape.atomVectors());
  }
  Value byte =
      b.add(b.mul(row, shape.rowBytes()),
            b.mul(swizzle(shape, row, vector), SharedShape::vectorBytes));
  if (atomByte)
    byte = b.add(byte, atomByte);
  Value start = tile.stage ? b.advance(sharedBase, tile.stage) : sharedBase;
  return b.advance(b.advance(start, byte),
                   tile.offset + atom * shape.atomBytes());
}

Value KernelEmitter::bufferElement(const SharedBuffer &tile, Value row,
                                   Value col) {
  Value vector = b.div(col, SharedShape::vectorElements);
  Value within = b.mul(b.rem(col, SharedShape::vectorElements), 2);
  return b.advance(bufferAddress(tile, row, vector), within);
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

void KernelEmitter::emitAsyncCopy(tile_gpu::AsyncCopyOp op) {
  if (op.getStage())
    return op.getBuffer().getDefiningOp<tile_gpu::AllocOp>().isLine()
               ? copyLine(op)
               : copyVectors(op, {SharedShape(op.getBuffer()),
                                  getOffset(op.getBuffer()),
                                  scalar(op.getStage())});
  SharedBuffer tile = sharedBufferOf(op.getBuffer());
  if (!op.isAsync())
    return copyElements(op, tile);
  copyVectors(op, tile);
  tile_gpu::AsyncCommitOp::create(b);
}

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
                        const SharedShape &shape, Value row) {
  bool isGathered = llvm::any_of(op.getIndices(), [](Value index) {
    return isa<TileType>(index.getType()) && !index.getDefiningOp<RangeOp>();
  });
  if (!isGathered || shape.rows == shape.paddedRows())
    return row;
  return arith::MinSIOp::create(b, row, b.i32(shape.rows - 1));
}

/// Each thread copies pieces of 4, 8 or 16 bytes, zeros for those outside.
/// Where rounds are at constant distances, constants are added to the addresses
/// of the first one: they become parts of the instructions.
void KernelEmitter::copyVectors(tile_gpu::AsyncCopyOp op,
                                const SharedBuffer &tile) {
  const SharedShape &shape = tile.shape;
  auto width = int64_t(op.getWidth());
  int64_t perRow = shape.paddedCols() / width;
  int64_t pieces = shape.paddedRows() * perRow;
  int64_t perVector = SharedShape::vectorElements / width;
  Type element = op.getBuffer().getType().getElementType();
  auto cache = perVector == 1 ? NVVM::LoadCacheModifierKind::CG
                              : NVVM::LoadCacheModifierKind::CA;
  int64_t rowsPerRound =
      countWorkers(perRow) % perRow == 0 ? countWorkers(perRow) / perRow : 0;
  // Rounds until the pattern of vectors repeats.
  int64_t period = 8 / std::gcd<int64_t>(8, rowsPerRound);
  std::optional<int64_t> rowDistance = getRowDistance(op, bounds.getExtents());
  SmallVector<Value> targets;
  Value source;
  int64_t round = 0;
  auto copy = [&](Value row, Value piece) {
    Memo memo;
    Value col = b.mul(piece, width);
    SmallVector<Value> coordinates;
    Value inside = getReadRow(b, op, shape, row);
    for (Value index : op.getIndices())
      coordinates.push_back(evaluate(index, inside, col, memo));
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    if (shape.rows != shape.paddedRows())
      address.valid = b.both(address.valid, b.less(row, shape.rows));
    if (shape.cols != shape.paddedCols())
      address.valid = b.both(address.valid, b.less(col, shape.cols));
    // Of an element outside nothing is read.
    Value size;
    if (address.valid)
      size = b.select(address.valid, b.i32(2 * width), b.i32(0));
    Value from, to;
    if (rowsPerRound && rowDistance && round > 0)
      // Perhaps outside, where nothing is read.
      from = b.advance(source, b.i32(round * rowsPerRound * *rowDistance));
    else
      from = b.address(scalar(op.getRef()), address.offset, element);
    if (rowsPerRound && round >= period) {
      int64_t first = round % period;
      to = b.advance(targets[first],
                     (round - first) * rowsPerRound * shape.rowBytes());
    } else {
      to = bufferAddress(tile, row, b.div(piece, perVector));
      if (perVector > 1)
        to = b.advance(to, b.mul(b.rem(piece, perVector), 2 * width));
      targets.push_back(to);
    }
    if (round++ == 0)
      source = from;
    NVVM::CpAsyncOp::create(b, to, from, uint32_t(2 * width), cache, size);
  };
  forPieces(pieces, perRow, copy);
}

/// How many threads take part in work on rows of `perRow` pieces. Those that
/// take whole groups of 8 rows keep their place in the pattern of vectors. Of
/// long rows all take whole ones: a thread whose pieces are of other columns
/// each round has as many addresses, in registers that the products need.
int64_t KernelEmitter::countWorkers(int64_t perRow) const {
  constexpr int64_t longRow = 16;
  if (threads % perRow != 0 && perRow > longRow && perRow <= threads)
    return threads / perRow * perRow;
  if (threads % perRow != 0 || threads / perRow <= 8)
    return threads;
  return threads / perRow / 8 * 8 * perRow;
}

/// Calls `body` with the row and the piece in it of each of `pieces` that this
/// thread has to do, `perRow` a row; in rounds, the first of which all of the
/// threads that take part have to do if there is another.
void KernelEmitter::forPieces(int64_t pieces, int64_t perRow,
                              function_ref<void(Value, Value)> body) {
  int64_t workers = countWorkers(perRow);
  auto round = [&](int64_t done) {
    Value number = b.add(tid, done);
    Value exists = done + workers > pieces ? b.less(number, pieces) : Value();
    b.ifThen(exists, [&] {
      if (workers % perRow == 0)
        body(b.add(b.div(tid, perRow), done / perRow), b.rem(tid, perRow));
      else
        body(b.div(number, perRow), b.rem(number, perRow));
    });
  };
  b.ifThen(workers < threads ? b.less(tid, workers) : Value(), [&] {
    for (int64_t done = 0; done < pieces; done += workers)
      round(done);
  });
}

void KernelEmitter::copyElements(tile_gpu::AsyncCopyOp op,
                                 const SharedBuffer &tile) {
  const SharedShape &shape = tile.shape;
  auto copy = [&](Value row, Value col) {
    Memo memo;
    SmallVector<Value> coordinates;
    Value inside = getReadRow(b, op, shape, row);
    for (Value index : op.getIndices())
      coordinates.push_back(evaluate(index, inside, col, memo));
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    if (shape.rows != shape.paddedRows())
      address.valid = b.both(address.valid, b.less(row, shape.rows));
    if (shape.cols != shape.paddedCols())
      address.valid = b.both(address.valid, b.less(col, shape.cols));
    b.store(loadElement(op.getRef(), address), bufferElement(tile, row, col),
            b.i32(0));
  };
  forPieces(shape.paddedRows() * shape.paddedCols(), shape.paddedCols(), copy);
}
