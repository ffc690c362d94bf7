//===- MarkAccesses.cpp - where threads access memory ---------------------===//
//
// What tile-gpu-insert-barriers needs to know of loads, stores and tiles in
// shared memory.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using nsa::tile_gpu::AccessKind;

namespace {
/// Which thread accesses which element: equal if these are.
struct Distribution {
  explicit Distribution(const ReadAccess &access)
      : indices(access.indices), tile(dyn_cast<TileType>(access.type)) {}
  explicit Distribution(StoreOp op)
      : indices(op.getIndices()),
        tile(dyn_cast<TileType>(op.getValue().getType())) {}

  /// One thread stores a scalar, always the same one.
  bool operator==(const Distribution &other) const {
    if (!tile || !other.tile)
      return !tile && !other.tile;
    return tile.getLayout() == other.tile.getLayout() &&
           llvm::equal(indices, other.indices);
  }

  OperandRange indices;
  TileType tile;
};
} // namespace

static std::optional<Distribution> getDistribution(Operation *op) {
  if (std::optional<ReadAccess> read = getReadAccess(op))
    return Distribution(*read);
  if (auto store = dyn_cast<StoreOp>(op))
    return Distribution(store);
  return std::nullopt;
}

/// Whether several threads may access an element. All read a scalar; several
/// may read an element of a vector.
static bool isRepeated(TileType tile) {
  if (!tile)
    return true;
  return hasBlockedLayout(tile) ? blockedLayoutOf(tile).isRepeated()
                                : tile.getRows() == 1 || tile.getCols() == 1;
}

/// The number of the first access of the kernel with the same distribution.
static int64_t findOwners(Operation *access) {
  Distribution own = *getDistribution(access);
  int64_t number = 0;
  access->getParentOfType<KernelOp>().walk([&](Operation *op) {
    std::optional<Distribution> other = getDistribution(op);
    if (other && *other == own)
      return WalkResult::interrupt();
    number += other ? 1 : 0;
    return WalkResult::advance();
  });
  return number;
}

void KernelEmitter::markGlobal(Operation *op) {
  std::optional<ReadAccess> read = getReadAccess(op);
  Value ref = read ? read->ref : cast<StoreOp>(op).getRef();
  IntegerAttr owners;
  if (!read || !isRepeated(dyn_cast<TileType>(read->type)))
    owners = b.getI64IntegerAttr(findOwners(op));
  tile_gpu::GlobalAccessOp::create(
      b, read ? AccessKind::Read : AccessKind::Write, scalar(ref), owners);
}

void KernelEmitter::markShared(Value tile, tile_gpu::SharedAccessKind kind) {
  SharedBuffer buffer = sharedBufferOf(tile);
  tile_gpu::SharedAccessOp::create(b, kind, buffer.shape.bytes(),
                                   buffer.offset);
}
