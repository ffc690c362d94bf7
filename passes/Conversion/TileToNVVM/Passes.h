//===- Passes.h - from tile kernels to NVVM ---------------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/RT/RTDialect.h"
#include "dialects/Tile/TileDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

/// Sums of a thread from which on one more warpgroup copies for those that
/// multiply.
inline constexpr unsigned kProducerSums = 64;

#define GEN_PASS_DECL
#include "passes/Conversion/TileToNVVM/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Conversion/TileToNVVM/Passes.h.inc"

/// Appends what turns a module of tile kernels into a module of the LLVM and
/// NVVM dialects: one CUDA kernel per tile kernel (see `nsa-tile-to-nvvm`), no
/// calls. `sharedLimit` is in bytes per block; `wgmma`: whether warpgroups can
/// multiply, which takes sm_90a; `producerSums`: sums of a thread from which on
/// one more warpgroup copies for them.
void buildTileToNVVMPipeline(mlir::OpPassManager &manager,
                             uint64_t sharedLimit = 232448, bool wgmma = false,
                             unsigned producerSums = kProducerSums);

/// Makes the pipeline available as `nsa-tile-to-nvvm-llvm`, with the options
/// `shared-limit`, `wgmma` and `producer-sums`.
void registerTileToNVVMPipeline();

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H
