//===- Passes.h - from tile kernels to NVVM ---------------------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_PASSES_H
#define NSA_PASSES_TILEGPU_PASSES_H

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/RT/RTDialect.h"
#include "dialects/Tile/TileDialect.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

/// Minimum accumulator registers per thread for warp specialization.
inline constexpr unsigned kProducerSums = 64;

#define GEN_PASS_DECL
#include "passes/TileGPU/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/TileGPU/Passes.h.inc"

/// Appends what simplifies the tile kernels of a module and gives their tiles
/// layouts. Nothing else in the module changes. `wgmma` takes sm_90a.
void buildTileLayoutPipeline(mlir::OpPassManager &manager, bool wgmma);

/// Appends what turns a module of tile kernels with layouts into a module of
/// the LLVM and NVVM dialects: one CUDA kernel per tile kernel (see
/// `nsa-tile-to-nvvm`), no calls. `sharedLimit` is in bytes per block;
/// `producerSums`: accumulator registers of a thread from which on a producer
/// warpgroup copies.
void buildLayoutToNVVMPipeline(mlir::OpPassManager &manager,
                               uint64_t sharedLimit, bool wgmma,
                               unsigned producerSums = kProducerSums);

/// Appends both.
void buildTileToNVVMPipeline(mlir::OpPassManager &manager,
                             uint64_t sharedLimit = 232448, bool wgmma = false,
                             unsigned producerSums = kProducerSums);

/// Makes the pipeline of both available as `nsa-tile-to-nvvm-llvm`, with the
/// options `shared-limit`, `wgmma` and `producer-sums`, and the upstream passes
/// in it by their names.
void registerTileToNVVMPipeline();

} // namespace nsa

#endif // NSA_PASSES_TILEGPU_PASSES_H
