//===- TileUtils.h - what passes ask of tiles and kernels -------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_TILEUTILS_H
#define NSA_PASSES_TILEGPU_TILEUTILS_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace nsa::cuda {

/// Neighbouring warps that can multiply together, the first of them a multiple.
inline constexpr int64_t warpsOfGroup = 4;
/// Registers are handed over by whole warpgroups, so a producer is one, though
/// one thread does its work.
inline constexpr int64_t kProducerThreads = 32 * warpsOfGroup;

inline bool isTile(mlir::Value value) {
  return llvm::isa<tile::TileType>(value.getType());
}
inline bool hasMmaLayout(mlir::Type type) {
  return tile_gpu::hasLayout<tile::MmaLayoutAttr>(type);
}
inline bool isShared(mlir::Type type) {
  return tile_gpu::hasLayout<tile::SharedAttr>(type);
}
/// Whether elements of the tile are computed where they are used: its layout
/// says so, or what makes it costs nothing.
inline bool isRematerialized(mlir::Type type) {
  return tile_gpu::hasLayout<tile::RematerializedAttr>(type);
}
bool isVirtual(mlir::Value tile);

/// Whether `is` holds of something in `op`.
bool contains(mlir::Operation *op,
              llvm::function_ref<bool(mlir::Operation *)> is);
/// Whether an operation takes or makes tiles.
bool hasTiles(mlir::Operation *op);
/// Whether some tile of a kernel is for tensor cores.
bool hasMmaTiles(tile::KernelOp kernel);
/// How many threads of a block compute.
int64_t getThreads(tile::KernelOp kernel);

/// Whether warpgroups multiply: `tile_gpu.mma` of the dot has version 3; and
/// whether they do so somewhere in a kernel.
bool isWgmma(tile::DotOp dot);
bool usesWgmma(tile::KernelOp kernel);
/// Why a dot on MMA tiles stays with single warps, or nothing.
std::string findWgmmaObstacle(tile::DotOp dot);

/// Moves an operation to its first use, if it passes no store, but something
/// that `counts`. With `toMaps` also if the use is a map.
void sink(mlir::Operation *op,
          llvm::function_ref<bool(mlir::Operation *)> counts, bool toMaps);
/// Moves the operations of a loop's body of which `isRow` holds to their first
/// uses, past dots: a row takes registers of all threads.
void sinkRows(mlir::scf::ForOp loop,
              llvm::function_ref<bool(mlir::Operation *)> isRow);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_TILEUTILS_H
