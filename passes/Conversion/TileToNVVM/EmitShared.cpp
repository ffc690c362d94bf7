//===- EmitShared.cpp - tiles that stay in shared memory ------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "passes/Conversion/TileToNVVM/Prefetch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The memory is free again after the last use of the tile, which is in the
/// block where it is made or inside of an operation there.
const KernelEmitter::Resident &KernelEmitter::makeResident(Value tile) {
  SharedShape shape(cast<TileType>(tile.getType()));
  Operation *last = tile.getDefiningOp();
  for (Operation *user : tile.getUsers()) {
    Operation *inBlock = tile.getParentBlock()->findAncestorOpInBlock(*user);
    if (last->isBeforeInBlock(inBlock))
      last = inBlock;
  }
  int64_t offset = pool.allocate(shape.bytes());
  lastUses[last].push_back(offset);
  return residents.try_emplace(tile, Resident{shape, offset, {}}).first->second;
}

void KernelEmitter::releaseAfter(Operation *op) {
  for (int64_t offset : lastUses.lookup(op))
    pool.release(offset);
  lastUses.erase(op);
}

/// Where chunk `chunk` of row `row` lies within its row.
Value KernelEmitter::swizzle(const SharedShape &shape, Value row, Value chunk) {
  Value flip = row;
  if (int64_t shift = shape.swizzleShift())
    flip = b.createOrFold<arith::ShRUIOp>(flip, b.i32(shift));
  flip = b.createOrFold<arith::AndIOp>(flip, b.i32(shape.swizzled() - 1));
  return b.createOrFold<arith::XOrIOp>(chunk, flip);
}

Value KernelEmitter::residentAddress(const Resident &tile, Value row,
                                     Value chunk) {
  Value byte =
      b.add(b.mul(row, tile.shape.rowBytes()),
            b.mul(swizzle(tile.shape, row, chunk), SharedShape::chunkBytes));
  Value start = tile.stage ? b.advance(sharedBase, tile.stage) : sharedBase;
  return b.advance(b.advance(start, byte), tile.offset);
}

Value KernelEmitter::residentElement(const Resident &tile, Value row,
                                     Value col) {
  Value chunk = b.div(col, SharedShape::chunkElements);
  Value within = b.mul(b.rem(col, SharedShape::chunkElements), 2);
  return b.advance(residentAddress(tile, row, chunk), within);
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

static void waitForCopies(ThreadBuilder &b, size_t others) {
  NVVM::CpAsyncWaitGroupOp::create(b, uint32_t(others));
}

void KernelEmitter::require(Value tile) {
  if (auto *known = llvm::find(inFlight, tile); known != inFlight.end()) {
    ++known;
    waitForCopies(b, inFlight.end() - known);
    unseen.insert(inFlight.begin(), known);
    inFlight.erase(inFlight.begin(), known);
  }
  if (unseen.contains(tile))
    barrier();
  residentsRead = true;
}

void KernelEmitter::beginWriting() {
  if (residentsRead)
    barrier();
}

void KernelEmitter::settle() {
  if (!inFlight.empty())
    require(inFlight.back());
  else if (!unseen.empty())
    barrier();
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

void KernelEmitter::emitSharedLoad(LoadOp op) {
  // What a loop copies ahead is there.
  if (op->use_empty() || residents.contains(op.getResult()))
    return;
  guardLoad(op);
  const Resident &tile = makeResident(op.getResult());
  beginWriting();
  int64_t width = getCopyWidth(op);
  if (!width) {
    copyElements(op, tile);
    unseen.insert(op.getResult());
    return;
  }
  copyChunks(op, tile, width);
  NVVM::CpAsyncCommitGroupOp::create(b);
  inFlight.push_back(op.getResult());
}

/// Each thread copies pieces of 4, 8 or 16 bytes, zeros for those outside.
void KernelEmitter::copyChunks(LoadOp op, const Resident &tile, int64_t width) {
  const SharedShape &shape = tile.shape;
  int64_t perRow = shape.paddedCols() / width;
  int64_t pieces = shape.paddedRows() * perRow;
  int64_t perChunk = SharedShape::chunkElements / width;
  auto copy = [&](Value row, Value piece) {
    Memo memo;
    Value col = b.mul(piece, width);
    SmallVector<Value> coordinates;
    for (Value index : op.getIndices())
      coordinates.push_back(evaluate(index, row, col, memo));
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    if (shape.rows != shape.paddedRows())
      address.valid = b.both(address.valid, b.less(row, shape.rows));
    if (shape.cols != shape.paddedCols())
      address.valid = b.both(address.valid, b.less(col, shape.cols));
    // Of an element outside nothing is read.
    Value size;
    if (address.valid)
      size = b.select(address.valid, b.i32(2 * width), b.i32(0));
    Value target = residentAddress(tile, row, b.div(piece, perChunk));
    if (perChunk > 1)
      target = b.advance(target, b.mul(b.rem(piece, perChunk), 2 * width));
    auto cache = width == SharedShape::chunkElements
                     ? NVVM::LoadCacheModifierKind::CG
                     : NVVM::LoadCacheModifierKind::CA;
    Type element = cast<TileType>(op.getType()).getElementType();
    NVVM::CpAsyncOp::create(
        b, target, b.address(scalar(op.getRef()), address.offset, element),
        uint32_t(2 * width), cache, size);
  };
  forPieces(pieces, perRow, copy);
}

/// Calls `body` with the row and the piece in it of each of `pieces` that this
/// thread has to do, `perRow` a row.
void KernelEmitter::forPieces(int64_t pieces, int64_t perRow,
                              function_ref<void(Value, Value)> body) {
  // Threads that take whole groups of 8 rows keep their place in the pattern of
  // chunks: then all but the first addresses are at constant distances.
  int64_t workers = threads;
  if (threads % perRow == 0 && threads / perRow > 8)
    workers = threads / perRow / 8 * 8 * perRow;
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

void KernelEmitter::copyElements(LoadOp op, const Resident &tile) {
  const SharedShape &shape = tile.shape;
  auto copy = [&](Value row, Value col) {
    Memo memo;
    SmallVector<Value> coordinates;
    for (Value index : op.getIndices())
      coordinates.push_back(evaluate(index, row, col, memo));
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    if (shape.rows != shape.paddedRows())
      address.valid = b.both(address.valid, b.less(row, shape.rows));
    if (shape.cols != shape.paddedCols())
      address.valid = b.both(address.valid, b.less(col, shape.cols));
    b.store(loadElement(op.getRef(), address), residentElement(tile, row, col),
            b.i32(0));
  };
  forPieces(shape.paddedRows() * shape.paddedCols(), shape.paddedCols(), copy);
}
