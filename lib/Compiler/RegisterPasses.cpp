//===- RegisterPasses.cpp - the passes of the compiler tools --------------===//

#include "lib/Compiler/GPUPhases.h"
#include "lib/Compiler/Registration.h"
#include "lib/Target/Passes.h"
#include "passes/Graph/Passes.h"
#include "passes/Host/Passes.h"
#include "passes/Kernels/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileToCPU/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

/// The phase that needs more than passes may depend on.
static void registerBinaryPhase() {
  mlir::PassPipelineRegistration<>(
      "nsa-phase-binary", "Phase 9: compile the kernels to machine code",
      [](mlir::OpPassManager &manager) {
        manager.addPass(
            nsa::createRequirePhase({nsa::Phase::Binary, nsa::Phase::Plan}));
        manager.addPass(nsa::createBinary());
        manager.addPass(nsa::createVerifyPhase({nsa::Phase::Binary}));
      });
}

void nsa::registerPasses() {
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  mlir::registerInliner();
  mlir::registerLoopInvariantCodeMotion();
  mlir::registerPrintOpStats();
  mlir::registerStripDebugInfo();
  mlir::registerSymbolDCE();
  mlir::registerViewOpGraph();
  registerNSAGraphPasses();
  registerNSAKernelsPasses();
  registerNSAHostPasses();
  registerPhasePipelines();
  registerNSATileToCPUPasses();
  registerTileToLLVMPipeline();
  registerNSATileToNVVMPasses();
  registerTileToNVVMPipeline();
  registerNSATargetPasses();
  registerBinaryPhase();
  registerGPUPhasePipelines();
}
