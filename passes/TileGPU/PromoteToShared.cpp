//===- PromoteToShared.cpp - buffers of tiles in shared memory ------------===//

#include "dialects/Tile/TileOps.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/Builders.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/Prefetch.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUPROMOTETOSHARED
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// Makes a buffer of what a load or a convert makes, and fills it.
static void promote(Operation *op) {
  OpBuilder b(op);
  auto tile = cast<TileType>(op->getResultTypes()[0]);
  auto buffer = AllocOp::create(
      b, op->getLoc(),
      MemDescType::get({tile.getRows(), tile.getCols()}, tile.getElementType()),
      b.getI64IntegerAttr(SharedShape(tile).rowBytes()),
      /*offset=*/IntegerAttr());
  if (auto load = dyn_cast<LoadOp>(op))
    AsyncCopyOp::create(b, op->getLoc(), load.getRef(), load.getIndices(),
                        buffer, /*stage=*/Value(),
                        uint64_t(std::max<int64_t>(getCopyWidth(load), 1)));
  else
    LocalStoreOp::create(b, op->getLoc(), op->getOperand(0), buffer);
  op->replaceAllUsesWith(LocalViewOp::create(b, op->getLoc(), tile, buffer,
                                             /*stage=*/Value()));
}

namespace {
struct PromoteToShared
    : nsa::impl::TileGPUPromoteToSharedBase<PromoteToShared> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (!isa<LoadOp, ConvertOp>(op) || !isShared(op->getResultTypes()[0]))
        return;
      if (!op->use_empty())
        promote(op);
      op->erase();
    });
  }
};
} // namespace
