//===- MmaVersions.cpp - the instructions of dots -------------------------===//

#include "passes/Conversion/TileToNVVM/MmaVersions.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Conversion/TileToNVVM/LayoutAnalysis.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"
#include "passes/Conversion/TileToNVVM/SharedTiles.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static nsa::tile_gpu::MmaAttr getMma(DotOp dot) {
  return dot->getAttrOfType<nsa::tile_gpu::MmaAttr>(nsa::tile_gpu::kMmaAttr);
}

bool nsa::cuda::isWgmma(DotOp dot) {
  auto mma = getMma(dot);
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
  MmaLayout acc(op.getResult());
  if (op->getParentOfType<nsa::tile_gpu::WarpIfOp>())
    return "the dot is inside a warp-divergent branch";
  // ptxas 13.0 gives the registers of such an operand to that of another
  // dot of the iteration, and the next iteration reads what that left.
  if (keepsRegisters(op))
    return "its operand a stays in registers for all iterations";
  if (acc.warps % warpsOfGroup != 0)
    return llvm::formatv("its {0} warps are no warpgroups", acc.warps);
  if (llvm::divideCeil(acc.rows, 16) % acc.warps != 0)
    return llvm::formatv("its {0} rows do not fill the M-tiles of {1} warps",
                         acc.rows, acc.warps);
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

static LogicalResult verifyProduct(DotOp dot, bool hasWgmma) {
  if (!hasMmaLayout(dot.getType()))
    return success();
  if (!getMma(dot))
    return dot.emitOpError("has no ")
           << nsa::tile_gpu::kMmaAttr
           << ", which tile-gpu-assign-layouts gives it";
  if (!isWgmma(dot))
    return success();
  if (!hasWgmma)
    return dot.emitOpError("has ")
           << getMma(dot) << ", but the target has version 2 only";
  if (std::string obstacle = findWgmmaObstacle(dot); !obstacle.empty())
    return dot.emitOpError("cannot have ") << getMma(dot) << ": " << obstacle;
  return success();
}

LogicalResult nsa::cuda::verifyMma(KernelOp kernel, bool hasWgmma) {
  WalkResult result = kernel.walk(
      [&](DotOp dot) -> WalkResult { return verifyProduct(dot, hasWgmma); });
  return failure(result.wasInterrupted());
}
