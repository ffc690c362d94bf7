//===- Pipeline.cpp - tile kernels to the LLVM and NVVM dialects ----------===//

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Conversion/TileToCPU/Passes.h"
#include "passes/Conversion/TileToNVVM/Passes.h"

using namespace mlir;

void nsa::buildTileToNVVMPipeline(OpPassManager &manager, uint64_t sharedLimit,
                                  bool wgmma, unsigned producerSums) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createLoopInvariantCodeMotionPass());
  NSAAssignLayoutsOptions layouts;
  layouts.wgmma = wgmma;
  manager.addPass(createNSAAssignLayouts(layouts));
  NSATileToNVVMOptions options;
  options.sharedLimit = sharedLimit;
  options.wgmma = wgmma;
  options.producerSums = producerSums;
  manager.addPass(createNSATileToNVVM(options));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createNSAExpandMath());
  manager.addPass(arith::createArithExpandOpsPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertNVVMToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

namespace {
struct TileToNVVMOptions : PassPipelineOptions<TileToNVVMOptions> {
  Option<uint64_t> sharedLimit{
      *this, "shared-limit",
      llvm::cl::desc("bytes of shared memory that a block may have"),
      llvm::cl::init(232448)};
  Option<bool> wgmma{*this, "wgmma",
                     llvm::cl::desc("warpgroups multiply where they can"),
                     llvm::cl::init(false)};
  Option<unsigned> producerSums{
      *this, "producer-sums",
      llvm::cl::desc("sums of a thread from which on a warpgroup copies for "
                     "those that multiply"),
      llvm::cl::init(nsa::kProducerSums)};
};
} // namespace

void nsa::registerTileToNVVMPipeline() {
  PassPipelineRegistration<TileToNVVMOptions>(
      "nsa-tile-to-nvvm-llvm",
      "Lower tile kernels to the LLVM and NVVM dialects",
      [](OpPassManager &manager, const TileToNVVMOptions &options) {
        buildTileToNVVMPipeline(manager, options.sharedLimit, options.wgmma,
                                options.producerSums);
      });
}
