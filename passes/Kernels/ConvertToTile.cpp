//===- ConvertToTile.cpp - graph operations to kernels and launches -------===//

#include "dialects/NN/NNDialect.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NN/NNOptimizers.h"
#include "dialects/NSA/NSAOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "passes/Kernels/KernelCache.h"
#include "passes/Kernels/Passes.h"

#define DEBUG_TYPE "nsa-convert-to-tile"

namespace nsa {
#define GEN_PASS_DEF_CONVERTTOTILE
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct ConvertToTile : nsa::impl::ConvertToTileBase<ConvertToTile> {
  void runOnOperation() override;
};
} // namespace

/// Library calls, views and fills are no kernels.
static bool staysInTheGraph(Operation *op) {
  return op->hasTrait<ViewOfOperand>() ||
         isa<nn::MatmulOp, nn::BatchMatmulOp, nn::FillOp, nn::ConcatOp,
             nn::FlattenOp, nn::UnflattenOp, nn::AllReduceOp, nn::SliceShardOp,
             nn::AllGatherOp, nn::GatherSequenceOp, nn::ReduceScatterSequenceOp,
             nn::GatherHaloOp, nn::ReduceScatterHaloOp>(op);
}

/// The elements of the largest tensor that the operation touches.
static int64_t countMostElements(Operation *op) {
  int64_t most = 0;
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      most = std::max(most, cast<ShapedType>(type).getNumElements());
  return most;
}

static void reportNoKernel(Operation *op) {
  InFlightDiagnostic diagnostic = op->emitOpError("has no kernel");
  int64_t elements = countMostElements(op);
  if (elements > INT32_MAX)
    diagnostic << " for " << elements << " elements: they are more than "
               << INT32_MAX << " and no rows of equal length below that";
}

void ConvertToTile::runOnOperation() {
  ModuleOp module = getOperation();
  KernelCache cache(module);
  RewritePatternSet patterns(&getContext());
  KernelPatterns kernelPatterns{patterns, cache};
  populateNSAToTilePatterns(kernelPatterns);
  populateNNToTilePatterns(kernelPatterns);
  walkAndApplyPatterns(module, std::move(patterns));
  numKernels += cache.getNumKernels();
  numLaunches += cache.getNumLaunches();
  remark::analysis(module.getLoc(),
                   remark::RemarkOpts::name("Kernels").category(DEBUG_TYPE))
      << remark::metric("Kernels", cache.getNumKernels())
      << remark::metric("Launches", cache.getNumLaunches());

  WalkResult result = module.walk([](Operation *op) {
    if (isa_and_present<NSADialect, nn::NNDialect>(op->getDialect()) &&
        !staysInTheGraph(op)) {
      reportNoKernel(op);
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (result.wasInterrupted() || cache.hasFailed())
    signalPassFailure();
}
