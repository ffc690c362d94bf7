//===- PromoteToShared.cpp - buffers and copies of loads ------------------===//

#include "dialects/Tile/TileOps.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/Builders.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "passes/Conversion/TileToNVVM/Prefetch.h"
#include "passes/Conversion/TileToNVVM/SharedTiles.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUPROMOTETOSHARED
#include "passes/Conversion/TileToNVVM/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

static void promote(LoadOp load) {
  auto tile = cast<TileType>(load.getType());
  OpBuilder b(load);
  if (!load->use_empty()) {
    auto buffer =
        AllocOp::create(b, load.getLoc(),
                        MemDescType::get({tile.getRows(), tile.getCols()},
                                         tile.getElementType()),
                        uint64_t(SharedShape(tile).rowBytes()));
    AsyncCopyOp::create(b, load.getLoc(), load.getRef(), load.getIndices(),
                        buffer,
                        uint64_t(std::max<int64_t>(getCopyWidth(load), 1)));
    load.getResult().replaceAllUsesWith(
        LocalViewOp::create(b, load.getLoc(), tile, buffer));
  }
  load.erase();
}

namespace {
struct PromoteToShared
    : nsa::impl::TileGPUPromoteToSharedBase<PromoteToShared> {
  void runOnOperation() override {
    getOperation().walk([](LoadOp load) {
      if (isShared(load.getType()))
        promote(load);
    });
  }
};
} // namespace
