//===- GlobalAccesses.cpp - what operations do to arguments ---------------===//

#include "passes/Conversion/TileToNVVM/GlobalAccesses.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/RT/RTOps.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/RegisterLayout.h"
#include "passes/Conversion/TileToNVVM/Scratch.h"
#include "passes/Conversion/TileToNVVM/TileUtils.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// Whether several threads may access an element. All read a scalar; several
/// may read an element of a vector.
static bool isRepeated(Type type) {
  auto tile = dyn_cast<TileType>(type);
  if (!tile)
    return true;
  return isa_and_nonnull<BlockedAttr>(tile.getLayout())
             ? RegisterLayout(tile).isRepeated()
             : tile.getRows() == 1 || tile.getCols() == 1;
}

static GlobalAccess getRead(const ReadAccess &read) {
  return {getArgument(read.ref), /*isWrite=*/false,
          isRepeated(read.type) ? nullptr : read.op};
}

/// The loads of what is computed where it is used.
static void addEvaluated(Value value, SmallVectorImpl<GlobalAccess> &accesses) {
  Operation *def = value.getDefiningOp();
  if (!def || !isa<TileType>(value.getType()) || !isVirtual(value))
    return;
  if (auto load = dyn_cast<LoadOp>(def))
    accesses.push_back(getRead(load));
  for (Value operand : def->getOperands())
    addEvaluated(operand, accesses);
}

/// Arguments that loads by TMA read whose bytes arrive at these barriers.
static void addTmaLoads(Value barriers,
                        SmallVectorImpl<GlobalAccess> &accesses) {
  for (Operation *user : barriers.getUsers()) {
    auto load = dyn_cast<TmaLoadOp>(user);
    if (!load)
      continue;
    auto kernel = load->getParentOfType<KernelOp>();
    auto maps = kernel->getAttrOfType<ArrayAttr>(nsa::kTensorMapsAttr);
    if (!maps || load.getMap() >= maps.size())
      continue;
    auto map = cast<nsa::rt::TensorMapAttr>(maps[load.getMap()]);
    accesses.push_back({kernel.getArgument(map.getArgument()),
                        /*isWrite=*/false, nullptr});
  }
}

SmallVector<GlobalAccess> nsa::cuda::getGlobalAccesses(Operation *op) {
  SmallVector<GlobalAccess> accesses;
  if (op->getNumResults() > 0 && isa<TileType>(op->getResult(0).getType()) &&
      isVirtual(op->getResult(0)))
    return accesses;
  if (std::optional<ReadAccess> read = getReadAccess(op))
    accesses.push_back(getRead(*read));
  if (auto wait = dyn_cast<MBarrierWaitOp>(op))
    addTmaLoads(wait.getBarriers(), accesses);
  for (Value operand : op->getOperands())
    addEvaluated(operand, accesses);
  auto store = dyn_cast<StoreOp>(op);
  if (store && cast<MemRefType>(store.getRef().getType()).getNumElements() > 0)
    accesses.push_back({getArgument(store.getRef()), /*isWrite=*/true, store});
  return accesses;
}

//===----------------------------------------------------------------------===//
// Owners
//===----------------------------------------------------------------------===//

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

static Distribution getDistribution(Operation *op) {
  if (std::optional<ReadAccess> read = getReadAccess(op))
    return Distribution(*read);
  return Distribution(cast<StoreOp>(op));
}

bool nsa::cuda::haveSameOwners(const GlobalAccess &x, const GlobalAccess &y) {
  return x.owned && y.owned &&
         getDistribution(x.owned) == getDistribution(y.owned);
}
