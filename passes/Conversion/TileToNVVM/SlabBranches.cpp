//===- SlabBranches.cpp - branches that each warp takes alone -------------===//
//
// Rows of a fragment belong to warps, by slabs of 16. Where a branch leaves
// rows alone that did not ask for it, a warp without such rows passes it by:
// nothing inside may be a matter of several warps.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/SlabBranches.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Conversion/TileToNVVM/Fragment.h"
#include "passes/Conversion/TileToNVVM/Spread.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Whether each warp makes its part of the results of `op` alone.
static bool isOfOneWarp(Operation *op) {
  if (isa<RangeOp, SplatOp, scf::YieldOp>(op))
    return true;
  if (llvm::any_of(op->getOperandTypes(), isSpread) ||
      llvm::any_of(op->getResultTypes(), isSpread))
    return false;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return reduce.getAxis() == 1;
  if (auto load = dyn_cast<LoadOp>(op))
    return isOnDemand(load.getType());
  return isa<DotOp, MapOp>(op) ||
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

std::string nsa::cuda::findSlabObstacle(AnyOp any) {
  if (!isFragment(any.getInput().getType()))
    return "its rows are in no fragments";
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

bool nsa::cuda::isSlabBranch(scf::IfOp branch) {
  auto any = branch.getCondition().getDefiningOp<AnyOp>();
  return any && any.getBySlab() && findSlabObstacle(any).empty();
}

bool nsa::cuda::isInSlabBranch(Operation *op) {
  for (auto branch = op->getParentOfType<scf::IfOp>(); branch;
       branch = branch->getParentOfType<scf::IfOp>())
    if (isSlabBranch(branch))
      return true;
  return false;
}

scf::IfOp nsa::cuda::findSlabBranch(scf::ForOp loop) {
  for (auto branch : loop.getBody()->getOps<scf::IfOp>())
    if (isSlabBranch(branch))
      return branch;
  return {};
}
