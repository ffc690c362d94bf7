//===- TileUtils.cpp - what passes ask of tiles and kernels ---------------===//

#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPU/LayoutAnalysis.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/SharedTiles.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

bool nsa::cuda::isVirtual(Value tile) {
  return isRematerialized(tile.getType()) ||
         isa_and_nonnull<RangeOp, SplatOp>(tile.getDefiningOp());
}

bool nsa::cuda::contains(Operation *op, function_ref<bool(Operation *)> is) {
  return op
      ->walk([&](Operation *inner) {
        return is(inner) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

bool nsa::cuda::hasTiles(Operation *op) {
  return llvm::any_of(op->getOperands(), isTile) ||
         llvm::any_of(op->getResults(), isTile);
}

bool nsa::cuda::hasMmaTiles(KernelOp kernel) {
  return contains(kernel, [](Operation *op) {
    return llvm::any_of(op->getResultTypes(), hasMmaLayout);
  });
}

int64_t nsa::cuda::getThreads(KernelOp kernel) {
  return kernel->getAttrOfType<IntegerAttr>(kThreadsAttr).getInt();
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

bool nsa::cuda::isWgmma(DotOp dot) {
  auto mma = dot->getAttrOfType<MmaAttr>(kMmaAttr);
  return mma && mma.getVersion() == 3;
}

bool nsa::cuda::usesWgmma(KernelOp kernel) {
  return contains(kernel, [](Operation *op) {
    auto dot = dyn_cast<DotOp>(op);
    return dot && isWgmma(dot);
  });
}

/// Whether operand a is in registers and the same in all iterations of a loop.
static bool keepsRegisters(DotOp op) {
  return hasMmaLayout(op.getA().getType()) &&
         op->getParentOfType<scf::ForOp>() &&
         LayoutAnalysis::isInvariant(op.getA(), op);
}

std::string nsa::cuda::findWgmmaObstacle(DotOp op) {
  constexpr int64_t maxColumns = 256;
  RegisterLayout acc(op.getResult());
  if (op->getParentOfType<WarpIfOp>())
    return "the dot is inside a warp-divergent branch";
  // ptxas 13.0 reuses the registers of such an operand for another dot of the
  // iteration, so the next iteration would read the wrong values.
  if (keepsRegisters(op))
    return "its operand a stays in registers for all iterations";
  if (acc.warps() % warpsOfGroup != 0)
    return llvm::formatv("its {0} warps are no warpgroups", acc.warps());
  if (llvm::divideCeil(acc.rows, 16) % acc.warps() != 0)
    return llvm::formatv("its {0} rows do not fill the M-tiles of {1} warps",
                         acc.rows, acc.warps());
  if (acc.cols > maxColumns)
    return llvm::formatv("its {0} columns are more than {1}", acc.cols,
                         maxColumns);
  SharedShape b(op.getB().getType());
  int64_t atom = b.atomVectors() * SharedShape::vectorElements;
  if (!op.getTransposeB() && acc.cols % atom != 0)
    return llvm::formatv("its {0} columns end inside a swizzle atom of {1}",
                         acc.cols, atom);
  return "";
}

//===----------------------------------------------------------------------===//
// Sinking
//===----------------------------------------------------------------------===//

/// The first operation of its block that uses `op`, or holds a use; null if
/// there is none.
static Operation *findFirstUse(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    if (!first || inBlock->isBeforeInBlock(first))
      first = inBlock;
  }
  return first;
}

void nsa::cuda::sink(Operation *op, function_ref<bool(Operation *)> counts,
                     bool toMaps) {
  Operation *first = findFirstUse(op);
  if (!first)
    return;
  bool isWorth = toMaps && isa<MapOp>(first);
  for (Operation *passed = op->getNextNode(); passed != first;
       passed = passed->getNextNode()) {
    if (contains(passed, llvm::IsaPred<StoreOp>))
      return;
    isWorth |= counts(passed);
  }
  if (isWorth)
    op->moveBefore(first);
}

void nsa::cuda::sinkRows(scf::ForOp loop,
                         llvm::function_ref<bool(Operation *)> isRow) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*loop.getBody())))
    if (isRow(&op))
      sink(&op, llvm::IsaPred<DotOp>, /*toMaps=*/true);
}
