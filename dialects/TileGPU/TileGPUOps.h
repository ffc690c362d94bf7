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

/// Why a warp cannot take a branch on `rows` for `results` alone, with what is
/// in `regions`; or nothing.
std::string findWarpBranchObstacle(mlir::Value rows, mlir::TypeRange results,
                                   mlir::MutableArrayRef<mlir::Region> regions);

} // namespace nsa::tile_gpu

#endif // NSA_DIALECTS_TILEGPU_TILEGPUOPS_H
