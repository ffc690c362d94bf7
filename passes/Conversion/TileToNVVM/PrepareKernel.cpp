//===- PrepareKernel.cpp - save registers before emission -----------------===//

#include "passes/Conversion/TileToNVVM/PrepareKernel.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Conversion/TileToNVVM/Fragment.h"
#include "passes/Conversion/TileToNVVM/ProducerPlan.h"
#include "passes/Conversion/TileToNVVM/SinkRows.h"
#include "passes/Conversion/TileToNVVM/SlabBranches.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Lets operands a of products stay in shared memory where sums leave no
/// registers for them: reading them again costs a few of many ldmatrix. And
/// those of warpgroups, which take no time to read.
static void keepInSharedMemory(LoadOp load, bool wgmma) {
  constexpr int64_t manyRegisters = 64;
  if (!Fragment(load.getResult()).isPacked() || !getCopyWidth(load) ||
      cast<TileType>(load.getType()).getShape().size() != 2)
    return;
  for (Value index : load.getIndices())
    if (isa<TileType>(index.getType()) && !isOnDemand(index.getType()))
      return;
  for (OpOperand &use : load->getUses()) {
    auto dot = dyn_cast<DotOp>(use.getOwner());
    if (!dot || use.getOperandNumber() != 0)
      return;
    bool isOfWarpgroups =
        wgmma && Fragment(dot.getResult()).warps % warpsOfGroup == 0;
    if (!isOfWarpgroups &&
        countSums(dot->getParentOfType<scf::ForOp>()) < manyRegisters)
      return;
  }
  auto type = cast<TileType>(load.getType());
  load.getResult().setType(type.withLayout(SharedAttr::get(load.getContext())));
}

/// Whether all that an operation makes are fragments of one row, of integers
/// that are computed elsewhere, too.
static bool makesIntegerRows(Operation *op) {
  return isa<LoadOp, MapOp>(op) &&
         llvm::all_of(op->getResultTypes(), [](Type type) {
           auto tile = dyn_cast<TileType>(type);
           return isFragment(type) && tile.getRows() == 1 &&
                  tile.getElementType().isInteger();
         });
}

void nsa::cuda::prepareKernel(KernelOp kernel, bool wgmma) {
  SmallVector<LoadOp> loads;
  kernel.walk([&](LoadOp load) {
    if (isFragment(load.getType()))
      loads.push_back(load);
  });
  // Warps that pass blocks by need the memory of two for their ring.
  auto isOfSlabs = [](LoadOp load) {
    return llvm::any_of(load->getUsers(), isInSlabBranch);
  };
  bool staysOut = llvm::count_if(loads, isOfSlabs) > 1;
  for (LoadOp load : loads)
    if (!staysOut || !isOfSlabs(load))
      keepInSharedMemory(load, wgmma);
  kernel.walk([](scf::ForOp loop) { sinkRows(loop, makesIntegerRows); });
}
