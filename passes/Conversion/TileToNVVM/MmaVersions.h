//===- MmaVersions.h - the instructions of dots -----------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_MMAVERSIONS_H
#define NSA_PASSES_CONVERSION_TILETONVVM_MMAVERSIONS_H

#include "dialects/Tile/TileOps.h"
#include <string>

namespace nsa::cuda {

/// Whether warpgroups multiply: `tile_gpu.mma` of the dot has version 3.
bool isWgmma(tile::DotOp dot);

/// Whether they do so somewhere in a kernel.
bool usesWgmma(tile::KernelOp kernel);

/// Why a dot on MMA tiles stays with single warps, or nothing.
std::string findWgmmaObstacle(tile::DotOp dot);

/// Fails with an error at a dot on MMA tiles that has no `tile_gpu.mma`, or
/// one of version 3 that wgmma cannot do or that the target does not have.
mlir::LogicalResult verifyMma(tile::KernelOp kernel, bool hasWgmma);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_MMAVERSIONS_H
