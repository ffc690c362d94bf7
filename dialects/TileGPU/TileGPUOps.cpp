//===- TileGPUOps.cpp - memory and threads of a block ---------------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace nsa::tile_gpu;

#define GET_OP_CLASSES
#include "dialects/TileGPU/TileGPUOps.cpp.inc"

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

/// The tile that lies in a buffer; in one of 32-bit elements, of no layout.
static nsa::tile::TileType getTileType(MemDescType buffer) {
  Attribute layout;
  if (buffer.getElementType().getIntOrFloatBitWidth() == 16)
    layout = nsa::tile::SharedAttr::get(buffer.getContext());
  return nsa::tile::TileType::get(buffer.getShape(), buffer.getElementType(),
                                  layout);
}

static bool isLine(MemDescType buffer) {
  return buffer.getElementType().getIntOrFloatBitWidth() == 32;
}

LogicalResult AllocOp::verify() {
  if (::isLine(getBuffer().getType()) != isLine())
    return emitOpError(isLine() ? "has no swizzle" : "has a swizzle")
           << ", but holds elements of "
           << getBuffer().getType().getElementType();
  if (isLine())
    return success();
  auto swizzle = int64_t(*getSwizzle());
  // Rows are filled up to whole vectors of two.
  int64_t bytes = llvm::alignTo(getBuffer().getType().getShape()[1], 16) * 2;
  if ((swizzle == 32 || swizzle == 64 || swizzle == 128) &&
      bytes % swizzle == 0)
    return success();
  return emitOpError("has a swizzle of ")
         << swizzle << " bytes, not one of 32, 64 and 128 that divides the "
         << bytes << " of a row";
}

nsa::tile::TileType AsyncCopyOp::getTileType() {
  return ::getTileType(getBuffer().getType());
}

bool AsyncCopyOp::isAsync() {
  return getWidth() > 1 || ::isLine(getBuffer().getType());
}

LogicalResult AsyncCopyOp::verify() {
  int64_t cols = getTileType().getCols();
  auto width = int64_t(getWidth());
  if (width < 1 || width > 8 || !llvm::isPowerOf2_64(getWidth()) ||
      (width > 1 && cols % width != 0))
    return emitOpError("moves ")
           << width << " elements at once, not 1, 2, 4 or 8 that divide the "
           << cols << " columns";
  return nsa::tile::verifyAccess(*this, cast<MemRefType>(getRef().getType()),
                                 getIndices(), getTileType());
}

LogicalResult LocalStoreOp::verify() {
  nsa::tile::TileType buffer = ::getTileType(getBuffer().getType());
  auto tile = cast<nsa::tile::TileType>(getTile().getType());
  if (tile.withLayout(buffer.getLayout()) == buffer)
    return success();
  return emitOpError("stores ")
         << tile << " to a buffer of " << getBuffer().getType();
}

LogicalResult LocalViewOp::verify() {
  if (getTile().getType() == ::getTileType(getBuffer().getType()))
    return success();
  return emitOpError("shows ") << getTile().getType() << ", not "
                               << ::getTileType(getBuffer().getType());
}

LogicalResult LocalLoadOp::verify() {
  auto tile = cast<nsa::tile::TileType>(getTile().getType());
  MemDescType buffer = getBuffer().getType();
  if (::isLine(buffer) && tile.getShape() == buffer.getShape() &&
      tile.getElementType() == buffer.getElementType())
    return success();
  return emitOpError("loads ")
         << tile << " from " << buffer << ", not a line of the same shape";
}

void IterationOp::inferResultRanges(ArrayRef<ConstantIntRanges> ranges,
                                    SetIntRangeFn setResultRange) {
  APInt least = ranges[1].smin(), most = ranges[2].smax() - 1;
  if (most.sge(least))
    setResultRange(getResult(), ConstantIntRanges::fromSigned(least, most));
}

LogicalResult MBarriersOp::verify() {
  if (int64_t(getArrivals()) >= 1)
    return success();
  return emitOpError("is passed after ")
         << getArrivals() << " arrivals, less than 1";
}

LogicalResult WarpSpecializeOp::verify() {
  std::optional<ArrayRef<int64_t>> registers = getRegisters();
  if (registers.has_value() == getLaunchRegisters().has_value() &&
      (!registers || registers->size() == 2))
    return success();
  return emitOpError("hands over registers, but does not say how many a thread "
                     "has at launch, as a producer and as a consumer");
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
