//===- SharedBuffers.cpp - addresses in buffers ---------------------------===//

#include "passes/TileGPUToNVVM/SharedBuffers.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace nsa::cuda;

SharedBuffer nsa::cuda::sharedBufferOf(TileReader &in, Value tile) {
  Value buffer = getBuffer(tile), stage;
  if (auto view = tile.getDefiningOp<nsa::tile_gpu::LocalViewOp>();
      view && view.getStage())
    stage = in.scalar(view.getStage());
  return {SharedShape(buffer), getOffset(buffer), stage};
}

/// The byte of a swizzle atom column where vector `vector` of row `row` lies.
static Value byteOf(ThreadBuilder &b, const SharedShape &shape, Value row,
                    Value vector) {
  Value rowByte = b.mul(row, shape.rowBytes()), flip = row;
  if (int64_t shift = shape.swizzleShift())
    flip = b.createOrFold<arith::ShRUIOp>(flip, b.i32(shift));
  flip = b.createOrFold<arith::AndIOp>(flip, b.i32(shape.atomVectors() - 1));
  Value place = b.createOrFold<arith::XOrIOp>(vector, flip);
  return b.add(rowByte, b.mul(place, SharedShape::vectorBytes));
}

Value nsa::cuda::bufferAddress(ThreadBuilder &b, const SharedBuffer &tile,
                               Value row, Value vector) {
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
  Value byte = byteOf(b, shape, row, vector);
  if (atomByte)
    byte = b.add(byte, atomByte);
  Value start =
      tile.stage ? b.advance(b.sharedBase(), tile.stage) : b.sharedBase();
  return b.advance(b.advance(start, byte),
                   tile.offset + atom * shape.atomBytes());
}

Value nsa::cuda::bufferElement(ThreadBuilder &b, const SharedBuffer &tile,
                               Value row, Value col) {
  Value vector = b.div(col, SharedShape::vectorElements);
  Value within = b.mul(b.rem(col, SharedShape::vectorElements), 2);
  return b.advance(bufferAddress(b, tile, row, vector), within);
}

Value nsa::cuda::lineAddress(TileReader &in, Value buffer, Value stage,
                             Value bytes) {
  Value start = in.b.sharedBase();
  if (stage)
    start = in.b.advance(start, in.scalar(stage));
  return in.b.advance(in.b.advance(start, bytes), getOffset(buffer));
}

/// Threads that take whole groups of 8 rows keep their offset in the pattern of
/// vectors. Of long rows all take whole ones: a thread whose pieces are of
/// other columns each round has as many addresses, in registers that the
/// dots need.
int64_t nsa::cuda::countWorkers(ThreadBuilder &b, int64_t perRow) {
  int64_t threads = b.getThreads();
  constexpr int64_t longRow = 16;
  if (threads % perRow != 0 && perRow > longRow && perRow <= threads)
    return threads / perRow * perRow;
  if (threads % perRow != 0 || threads / perRow <= 8)
    return threads;
  return threads / perRow / 8 * 8 * perRow;
}

void nsa::cuda::forPieces(ThreadBuilder &b, int64_t pieces, int64_t perRow,
                          function_ref<void(Value, Value)> body) {
  int64_t workers = countWorkers(b, perRow);
  auto round = [&](int64_t done) {
    Value number = b.add(b.threadId(), done);
    Value exists = done + workers > pieces ? b.less(number, pieces) : Value();
    b.ifThen(exists, [&] {
      if (workers % perRow == 0)
        body(b.add(b.div(b.threadId(), perRow), done / perRow),
             b.rem(b.threadId(), perRow));
      else
        body(b.div(number, perRow), b.rem(number, perRow));
    });
  };
  b.ifThen(workers < b.getThreads() ? b.less(b.threadId(), workers) : Value(),
           [&] {
             for (int64_t done = 0; done < pieces; done += workers)
               round(done);
           });
}

//===----------------------------------------------------------------------===//
// Matrices
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
static Value lanePointer(ThreadBuilder &b, const SharedShape &shape,
                         MatrixOrder order, int64_t flip) {
  bool rowsFirst = order == MatrixOrder::RowsFirst;
  Value lane = b.place().lane, start = b.sharedBase();
  auto make = [&] {
    Value row = laneRow(b, lane, rowsFirst);
    Value vector = b.add(laneVector(b, lane, rowsFirst), flip);
    return b.advance(start, byteOf(b, shape, row, vector));
  };
  return b.once("matrix pointer", make, shape.rowBytes(), int64_t(order), flip);
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

SmallVector<Value> nsa::cuda::loadMatrices(ThreadBuilder &b,
                                           const SharedBuffer &tile,
                                           MatrixOrder order, bool transpose,
                                           int64_t row, int64_t vector,
                                           Value firstByte) {
  int64_t atom = vector / tile.shape.atomVectors();
  int64_t flip = vector % tile.shape.atomVectors();
  Value pointer = lanePointer(b, tile.shape, order, flip);
  if (tile.stage)
    pointer = b.advance(pointer, tile.stage);
  if (firstByte)
    pointer = b.advance(pointer, firstByte);
  pointer = b.advance(pointer, tile.offset + row * tile.shape.rowBytes() +
                                   atom * tile.shape.atomBytes());
  return loadMatrix(b, pointer, transpose);
}

static Value mTileOf(ThreadBuilder &b, int64_t rows, int64_t warps, int64_t s) {
  int64_t mTiles = llvm::divideCeil(rows, 16);
  Value mTile = b.add(b.place().warp, s * warps);
  if ((s + 1) * warps <= mTiles)
    return mTile;
  // An M-tile of padding: any rows will do.
  return b.clamp(mTile, mTiles);
}

Value nsa::cuda::mTileByte(ThreadBuilder &b, const SharedShape &shape,
                           int64_t warps, int64_t s) {
  return b.mul(mTileOf(b, shape.rows, warps, s), 16 * shape.rowBytes());
}

SmallVector<Value> nsa::cuda::loadTransposedA(ThreadBuilder &b,
                                              const SharedBuffer &tile,
                                              int64_t warps, int64_t s,
                                              int64_t k) {
  Value lane = b.place().lane;
  Value row = laneRow(b, lane, /*rowsFirst=*/false);
  Value mTile = mTileOf(b, tile.shape.cols, warps, s);
  Value vector =
      b.add(b.mul(mTile, 2), laneVector(b, lane, /*rowsFirst=*/false));
  Value pointer = bufferAddress(b, tile, row, vector);
  return loadMatrix(b, b.advance(pointer, 16 * k * tile.shape.rowBytes()),
                    /*transpose=*/true);
}
