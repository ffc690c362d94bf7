//===- TileGPUDialect.h - what the GPU target decides -----------*- C++ -*-===//

#ifndef NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_H
#define NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"

#include "dialects/TileGPU/TileGPUDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/TileGPU/TileGPUTypes.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/TileGPU/TileGPUAttrs.h.inc"

namespace nsa::tile_gpu {

/// Names of attributes of operations; the dialect's description says what they
/// are.
inline constexpr llvm::StringLiteral kThreadsAttr = "tile_gpu.threads";
inline constexpr llvm::StringLiteral kMmaAttr = "tile_gpu.mma";
inline constexpr llvm::StringLiteral kPipelineAttr = "tile_gpu.pipeline";
inline constexpr llvm::StringLiteral kProducerAttr = "tile_gpu.producer";
inline constexpr llvm::StringLiteral kScratchAttr = "tile_gpu.scratch";
inline constexpr llvm::StringLiteral kConsumersAttr = "tile_gpu.consumers";

/// Bytes of an mbarrier.
inline constexpr int64_t kMBarrierBytes = 8;

/// Whether a block can have so many threads: a multiple of 32 up to 1024.
constexpr bool isBlockSize(int64_t threads) {
  return threads > 0 && threads <= 1024 && threads % 32 == 0;
}

} // namespace nsa::tile_gpu

#endif // NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_H
