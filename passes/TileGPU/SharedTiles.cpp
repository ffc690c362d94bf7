//===- SharedTiles.cpp - tiles in shared memory ---------------------------===//

#include "passes/TileGPU/SharedTiles.h"
#include "dialects/Interfaces/AttributeNames.h"

using namespace nsa::cuda;

SharedShape::SharedShape(tile::TileType type)
    : rows(type.getRows()), cols(type.getCols()),
      swizzle(std::min<int64_t>(vectors() & -vectors(), 8) * vectorBytes) {}

SharedShape::SharedShape(mlir::Value buffer) {
  auto alloc = buffer.getDefiningOp<tile_gpu::AllocOp>();
  rows = alloc.getBuffer().getType().getShape()[0];
  cols = alloc.getBuffer().getType().getShape()[1];
  swizzle = int64_t(*alloc.getSwizzle());
}

mlir::Value nsa::cuda::getBuffer(mlir::Value tile) {
  auto view = tile.getDefiningOp<tile_gpu::LocalViewOp>();
  return view ? mlir::Value(view.getBuffer()) : tile;
}

int64_t nsa::cuda::getOffset(mlir::Value buffer) {
  return int64_t(*buffer.getDefiningOp<tile_gpu::AllocOp>().getOffset());
}

mlir::LogicalResult nsa::cuda::verifyHasThreads(tile::KernelOp kernel) {
  if (kernel->hasAttr(tile_gpu::kThreadsAttr))
    return mlir::success();
  return kernel.emitError("kernel @")
         << kernel.getSymName() << " has no " << tile_gpu::kThreadsAttr
         << ", which tile-gpu-assign-layouts gives it";
}

mlir::LogicalResult nsa::cuda::verifyBufferOperands(mlir::Operation *op) {
  for (mlir::Value operand : op->getOperands())
    if ((llvm::isa<tile_gpu::MemDescType>(operand.getType()) &&
         !operand.getDefiningOp<tile_gpu::AllocOp>()) ||
        (llvm::isa<tile_gpu::MBarriersType>(operand.getType()) &&
         !operand.getDefiningOp<tile_gpu::MBarriersOp>()))
      return op->emitOpError("takes a ")
             << operand.getType() << " that no operation of its kernel makes";
  return mlir::success();
}

mlir::LogicalResult nsa::cuda::verifyAllocated(tile::KernelOp kernel) {
  auto refuse = [](mlir::Operation *op, llvm::StringRef what) {
    return op->emitError("has no ")
           << what << ", which tile-gpu-allocate-shared-memory gives it";
  };
  for (llvm::StringRef name : {llvm::StringRef(tile_gpu::kScratchAttr),
                               llvm::StringRef(kSharedBytesAttr)})
    if (!kernel->hasAttr(name))
      return refuse(kernel, name);
  mlir::WalkResult result =
      kernel.walk([&](mlir::Operation *op) -> mlir::WalkResult {
        auto alloc = llvm::dyn_cast<tile_gpu::AllocOp>(op);
        return alloc && !alloc->use_empty() && !alloc.getOffset()
                   ? refuse(alloc, "offset")
                   : verifyBufferOperands(op);
      });
  return mlir::failure(result.wasInterrupted());
}

int64_t SharedPool::allocate(int64_t bytes) {
  bytes = llvm::alignTo(bytes, alignment);
  int64_t offset = 0;
  auto *next = used.begin();
  while (next != used.end() && next->offset - offset < bytes) {
    offset = next->offset + next->bytes;
    ++next;
  }
  used.insert(next, Piece{offset, bytes});
  highest = std::max(highest, offset + bytes);
  return offset;
}

void SharedPool::release(int64_t offset) {
  llvm::erase_if(used,
                 [&](const Piece &piece) { return piece.offset == offset; });
}
