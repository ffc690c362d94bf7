//===- WarpBranches.h - branches that each warp takes alone -----*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_WARPBRANCHES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_WARPBRANCHES_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace nsa::cuda {

/// Why warps cannot take branches on `any` alone, each for the rows that it
/// holds, or nothing: all must be in MMA tiles, and none may wait for others.
std::string findWarpBranchObstacle(tile::AnyOp any);

/// Whether warps take a branch alone.
bool isWarpBranch(mlir::scf::IfOp branch);

/// Whether `op` is inside of such a branch.
bool isInWarpBranch(mlir::Operation *op);

/// The first branch of this kind in the body of a loop; null if there is none.
mlir::scf::IfOp findWarpBranch(mlir::scf::ForOp loop);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_WARPBRANCHES_H
