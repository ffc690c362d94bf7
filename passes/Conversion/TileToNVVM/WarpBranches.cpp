//===- WarpBranches.cpp - branches that each warp takes alone -------------===//
//
// Rows of a tile in the MMA layout belong to warps, by M-tiles of 16. Where a
// branch leaves rows alone that did not ask for it, a warp without such rows
// skips it: nothing inside may be a matter of several warps.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/WarpBranches.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Whether each warp makes its part of the results of `op` alone.
static bool isOfOneWarp(Operation *op) {
  if (isa<RangeOp, SplatOp, scf::YieldOp>(op))
    return true;
  if (llvm::any_of(op->getOperandTypes(), hasBlockedLayout) ||
      llvm::any_of(op->getResultTypes(), hasBlockedLayout))
    return false;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getAxis() == 1;
  if (auto load = dyn_cast<LoadOp>(op))
    return isRematerialized(load.getType());
  return isa<DotOp, MapOp>(op) ||
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

std::string nsa::cuda::findWarpBranchObstacle(AnyOp any) {
  if (!hasMmaLayout(any.getInput().getType()))
    return "its rows are in no mmaTiles";
  for (Operation *user : any->getUsers()) {
    auto branch = dyn_cast<scf::IfOp>(user);
    if (!branch)
      return "it is not only the condition of branches";
    for (Region &region : branch->getRegions())
      for (Operation &op : region.getOps())
        if (!isOfOneWarp(&op))
          return "warps do '" + op.getName().getStringRef().str() +
                 "' in its branch together";
  }
  return "";
}

bool nsa::cuda::isWarpBranch(scf::IfOp branch) {
  auto any = branch.getCondition().getDefiningOp<AnyOp>();
  return any && any.getWarpUniform() && findWarpBranchObstacle(any).empty();
}

bool nsa::cuda::isInWarpBranch(Operation *op) {
  for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
       branch = branch->getParentOfType<scf::IfOp>())
    if (isWarpBranch(branch))
      return true;
  return false;
}

scf::IfOp nsa::cuda::findWarpBranch(scf::ForOp loop) {
  for (auto branch : loop.getBody()->getOps<scf::IfOp>())
    if (isWarpBranch(branch))
      return branch;
  return {};
}
