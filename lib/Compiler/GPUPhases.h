//===- GPUPhases.h - from planned kernels to code for a GPU -----*- C++ -*-===//

#ifndef NSA_COMPILER_GPUPHASES_H
#define NSA_COMPILER_GPUPHASES_H

#include "lib/Target/CUDA/CUDAChip.h"
#include "passes/Graph/Passes.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

/// Appends the passes of `Phase::Layout` or `Phase::NVVM` and their verifier to
/// a manager of modules.
void buildGPUPhasePipeline(mlir::OpPassManager &manager, Phase phase,
                           const CUDAChip &chip);

/// Registers `nsa-phase-layout` and `nsa-phase-nvvm`, which have the option
/// `chip`, and `nsa-phase-ptx`.
void registerGPUPhasePipelines();

} // namespace nsa

#endif // NSA_COMPILER_GPUPHASES_H
