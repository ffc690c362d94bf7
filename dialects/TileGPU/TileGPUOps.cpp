//===- TileGPUOps.cpp - memory and threads of a block ---------------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace nsa::tile_gpu;

#define GET_OP_CLASSES
#include "dialects/TileGPU/TileGPUOps.cpp.inc"

/// A piece of the block's shared memory.
static LogicalResult verifyPiece(Operation *op, int64_t bytes, int64_t offset) {
  if (bytes > 0 && offset >= 0)
    return success();
  return op->emitOpError("is about ")
         << bytes << " bytes at " << offset
         << ", but needs at least one byte, at 0 or behind it";
}

/// The threads that wait at a barrier: all if none are named.
static LogicalResult verifyThreads(Operation *op,
                                   std::optional<int32_t> threads) {
  if (!threads || isBlockSize(*threads))
    return success();
  return op->emitOpError("is for ")
         << *threads << " threads, not a multiple of 32 up to 1024";
}

static LogicalResult verifyPending(Operation *op, int32_t pending) {
  if (pending >= 0)
    return success();
  return op->emitOpError("leaves ")
         << pending << " groups pending, less than 0";
}

static LogicalResult verifySums(Operation *op) {
  if (op->getNumResults() > 0)
    return success();
  return op->emitOpError("has no sums");
}

LogicalResult SharedAccessOp::verify() {
  return verifyPiece(*this, getBytes(), getOffset());
}

LogicalResult BarrierOp::verify() { return verifyThreads(*this, getThreads()); }

LogicalResult AnyThreadOp::verify() {
  return verifyThreads(*this, getThreads());
}

LogicalResult AsyncCommitOp::verify() {
  if (getBytes().has_value() != getOffset().has_value())
    return emitOpError("has only one of bytes and offset");
  return getBytes() ? verifyPiece(*this, *getBytes(), *getOffset()) : success();
}

LogicalResult AsyncWaitOp::verify() {
  return verifyPending(*this, int32_t(getPending()));
}

LogicalResult WgmmaCommitOp::verify() { return verifySums(*this); }

LogicalResult WgmmaWaitOp::verify() {
  if (failed(verifySums(*this)))
    return failure();
  return verifyPending(*this, int32_t(getPending()));
}
