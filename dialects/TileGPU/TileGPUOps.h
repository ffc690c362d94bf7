//===- TileGPUOps.h - memory and threads of a block -------------*- C++ -*-===//

#ifndef NSA_DIALECTS_TILEGPU_TILEGPUOPS_H
#define NSA_DIALECTS_TILEGPU_TILEGPUOPS_H

#include "dialects/Tile/TileOps.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define GET_OP_CLASSES
#include "dialects/TileGPU/TileGPUOps.h.inc"

namespace nsa::tile_gpu {

/// Whether `type` is a tile with one of these layouts.
template <typename... LayoutTs>
bool hasLayout(mlir::Type type) {
  auto tile = llvm::dyn_cast<tile::TileType>(type);
  return tile && llvm::isa_and_nonnull<LayoutTs...>(tile.getLayout());
}

/// Whether `type` is a tile that lies in registers, but in no MMA tile: one of
/// a blocked layout, or of none as long as these are not assigned.
bool hasBlockedLayout(mlir::Type type);

/// Why a warp cannot take a branch on `rows` for `results` alone, with what is
/// in `regions`; or nothing.
std::string findWarpBranchObstacle(mlir::Value rows, mlir::TypeRange results,
                                   mlir::MutableArrayRef<mlir::Region> regions);

} // namespace nsa::tile_gpu

#endif // NSA_DIALECTS_TILEGPU_TILEGPUOPS_H
