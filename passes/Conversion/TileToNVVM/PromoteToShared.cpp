//===- PromoteToShared.cpp - buffers of tiles in shared memory ------------===//

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

/// Lets the uses of a tile read a buffer that `fill` fills.
static void promote(OpBuilder &b, Value tile,
                    function_ref<void(Value buffer)> fill) {
  auto type = cast<TileType>(tile.getType());
  Location loc = tile.getLoc();
  auto buffer = AllocOp::create(
      b, loc,
      MemDescType::get({type.getRows(), type.getCols()}, type.getElementType()),
      uint64_t(SharedShape(type).rowBytes()));
  fill(buffer);
  tile.replaceAllUsesWith(LocalViewOp::create(b, loc, type, buffer));
}

static void promote(OpBuilder &b, LoadOp load) {
  auto width = uint64_t(std::max<int64_t>(getCopyWidth(load), 1));
  promote(b, load.getResult(), [&](Value buffer) {
    AsyncCopyOp::create(b, load.getLoc(), load.getRef(), load.getIndices(),
                        buffer, width);
  });
}

static void promote(OpBuilder &b, ConvertOp convert) {
  promote(b, convert.getResult(), [&](Value buffer) {
    LocalStoreOp::create(b, convert.getLoc(), convert.getInput(), buffer);
  });
}

namespace {
struct PromoteToShared
    : nsa::impl::TileGPUPromoteToSharedBase<PromoteToShared> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (!isa<LoadOp, ConvertOp>(op) || !isShared(op->getResultTypes()[0]))
        return;
      OpBuilder b(op);
      if (auto load = dyn_cast<LoadOp>(op); load && !op->use_empty())
        promote(b, load);
      else if (!op->use_empty())
        promote(b, cast<ConvertOp>(op));
      op->erase();
    });
  }
};
} // namespace
