//===- ConvertToTile.cpp - graph operations to kernels and launches -------===//

#include "dialects/Interfaces/Extents.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NN/NNOptimizers.h"
#include "dialects/NSA/NSAOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Kernels/KernelCache.h"
#include "passes/Kernels/LibraryMatmuls.h"
#include "passes/Kernels/NSA/NSAToTile.h"
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
  using ConvertToTileBase::ConvertToTileBase;
  void runOnOperation() override;
};
} // namespace

/// Library calls, views and fills are no kernels.
static bool staysInTheGraph(Operation *op) {
  return op->hasTrait<ViewOfOperand>() ||
         isa<nn::MatmulOp, nn::BatchMatmulOp, nn::FillOp, nn::ConcatOp,
             nn::FlattenOp, nn::UnflattenOp, nn::AllReduceOp, nn::SliceShardOp,
             nn::AllGatherOp>(op);
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

/// Says what the numbers of compressed blocks stand for, where the length of
/// sequences is no constant.
static LogicalResult addCompressedExtents(ModuleOp module) {
  ExtentTable table = ExtentTable::of(module);
  AffineExpr length = getAffineSymbolExpr(kSequenceExtent, module.getContext());
  for (const Extent &sequence : llvm::to_vector(table.getEntries())) {
    if (sequence.getMap().getResult(0) != length)
      continue;
    WalkResult result = module.walk([&](Operation *op) {
      for (StringRef name : {"visibility", "compressed"}) {
        auto compressed = dyn_cast_or_null<CompressedAttr>(
            op->getInherentAttr(name).value_or(Attribute()));
        if (!compressed)
          continue;
        Extent blocks = atLeast(
            floorDiv(sequence - compressed.getBlock(), compressed.getStride()) +
                1,
            0);
        if (!table.add(blocks)) {
          op->emitOpError("has ")
              << int64_t(blocks) << " blocks, which stands for something else";
          return WalkResult::interrupt();
        }
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return failure();
  }
  table.writeTo(module);
  return success();
}

void ConvertToTile::runOnOperation() {
  ModuleOp module = getOperation();
  if (failed(addCompressedExtents(module)))
    return signalPassFailure();
  KernelSchedule kernels = KernelSchedule::get(schedule);
  kernels.selectedForm = selectedForm;
  if (selectedForm > SelectedForm::Lists && !kernels.isGPU) {
    module.emitError(selectedForm == SelectedForm::Masks
                         ? "there are no masks of selected blocks on a CPU"
                         : "queries are not gathered on a CPU");
    return signalPassFailure();
  }
  std::string problem = kernels.fixed.parse(*tileSizes);
  if (problem.empty())
    problem = kernels.fixed.check(kernels.tileMultiple);
  if (!problem.empty()) {
    module.emitError(problem);
    return signalPassFailure();
  }
  KernelCache cache(module, kernels);
  if (cache.getSchedule().isGPU) {
    separateGathered(module, cache);
    launchDecodeSteps(module, cache);
    if (module.lookupSymbol(training::decodeEntry))
      launchVectorMatmuls(module, cache);
    useTypesOfLibrary(module);
    rotateWithCompression(module, cache);
  }
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
