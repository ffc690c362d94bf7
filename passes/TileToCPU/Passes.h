//===- Passes.h - from tile kernels to LLVM ---------------------*- C++ -*-===//

#ifndef NSA_PASSES_TILETOCPU_PASSES_H
#define NSA_PASSES_TILETOCPU_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

#define GEN_PASS_DECL
#include "passes/TileToCPU/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/TileToCPU/Passes.h.inc"

/// Appends what turns a module of tile kernels into a module of the LLVM
/// dialect: one exported function per kernel (see `nsa-tile-to-cpu`), no calls
/// except memcpy and memset. `vectorWidth` is in f32 elements.
void buildTileToLLVMPipeline(mlir::OpPassManager &manager,
                             unsigned vectorWidth = 8);

/// Makes the pipeline available as `nsa-tile-to-llvm{vector-width=8}`.
void registerTileToLLVMPipeline();
} // namespace nsa

#endif // NSA_PASSES_TILETOCPU_PASSES_H
