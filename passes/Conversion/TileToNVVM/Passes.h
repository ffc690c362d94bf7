//===- Passes.h - from tile kernels to NVVM ---------------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H

#include "dialects/RT/RTDialect.h"
#include "dialects/Tile/TileDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

/// Attribute of a function made from a kernel, an i64: bytes of dynamic shared
/// memory that a launch gives it.
inline constexpr llvm::StringLiteral kSharedBytesAttr = "nsa.shared_bytes";

/// Attribute of a function made from a kernel, an array of #rt.tensor_map: what
/// the parameters behind the pointers describe.
inline constexpr llvm::StringLiteral kTensorMapsAttr = "nsa.tensor_maps";

/// Attribute of an argument of a kernel, an i64: bytes of which its address is
/// a multiple in every launch. Without it, that of a tensor of its own is one
/// of `kTensorAlignment`, that of columns of a matrix one of an element.
inline constexpr llvm::StringLiteral kAlignmentAttr = "nsa.alignment";
inline constexpr int64_t kTensorAlignment = 16;

/// Attribute of a kernel, an i64: blocks that a multiprocessor is to run at
/// once, as far as registers go. Without it, as many as fit.
inline constexpr llvm::StringLiteral kResidentsAttr = "nsa.residents";

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
                             unsigned producerSums = 64);

/// Makes the pipeline available as `nsa-tile-to-nvvm-llvm`, with the options
/// `shared-limit`, `wgmma` and `producer-sums`.
void registerTileToNVVMPipeline();

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_TILETONVVM_PASSES_H
