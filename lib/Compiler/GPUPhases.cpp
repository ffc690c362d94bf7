//===- GPUPhases.cpp - from planned kernels to code for a GPU -------------===//

#include "lib/Compiler/GPUPhases.h"
#include "lib/Target/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/TileGPU/Passes.h"

using namespace mlir;
using namespace nsa;

void nsa::buildGPUPhasePipeline(OpPassManager &manager, Phase phase,
                                const CUDAChip &chip) {
  if (phase == Phase::Layout) {
    manager.addPass(createNoteArgumentAlignment());
    manager.addPass(createNoteLaunchOverlap());
    buildTileLayoutPipeline(manager, chip.wgmma);
  } else {
    assert(phase == Phase::NVVM && "no phase of GPUs");
    manager.addPass(createOutlineKernels({chip.name.str()}));
    buildLayoutToNVVMPipeline(manager.nest<gpu::GPUModuleOp>(),
                              chip.sharedLimit, chip.wgmma);
  }
  manager.addPass(createVerifyPhase({phase}));
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
struct ChipOptions : PassPipelineOptions<ChipOptions> {
  Option<std::string> chip{*this, "chip", llvm::cl::desc("such as sm_86"),
                           llvm::cl::init("sm_90a")};
};

using BuildFunction = void (*)(OpPassManager &, const CUDAChip &);
} // namespace

/// Refuses chips that do not exist.
static void registerForChip(StringRef name, StringRef description,
                            BuildFunction build) {
  registerPipeline<ChipOptions>(
      name, description,
      [build](OpPassManager &manager,
              const ChipOptions &options) -> std::string {
        const CUDAChip *chip = findCUDAChip(options.chip);
        if (!chip)
          return "unknown chip '" + options.chip + "'";
        build(manager, *chip);
        return "";
      });
}

static void addLayout(OpPassManager &manager, const CUDAChip &chip) {
  manager.addPass(createRequirePhase({Phase::Layout, Phase::Plan}));
  buildGPUPhasePipeline(manager, Phase::Layout, chip);
}

static void addNVVM(OpPassManager &manager, const CUDAChip &chip) {
  manager.addPass(createRequirePhase({Phase::NVVM, Phase::Layout}));
  buildGPUPhasePipeline(manager, Phase::NVVM, chip);
}

static void addPTX(OpPassManager &manager) {
  manager.addPass(createRequirePhase({Phase::Binary, Phase::NVVM}));
  manager.addPass(createSerializeKernels());
  manager.addPass(createVerifyPhase({Phase::Binary}));
}

void nsa::registerGPUPhasePipelines() {
  registerForChip("nsa-phase-layout",
                  "GPU phase 9: give the tiles of kernels layouts", addLayout);
  registerForChip("nsa-phase-nvvm",
                  "GPU phase 10: lower the kernels to the NVVM dialect",
                  addNVVM);
  PassPipelineRegistration<>(
      "nsa-phase-ptx", "GPU phase 11: compile the kernels to PTX", addPTX);
}
