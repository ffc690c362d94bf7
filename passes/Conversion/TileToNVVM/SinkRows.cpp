//===- SinkRows.cpp - rows behind dots ------------------------------------===//

#include "passes/Conversion/TileToNVVM/SinkRows.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

Operation *nsa::cuda::findFirstUse(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    if (!first || inBlock->isBeforeInBlock(first))
      first = inBlock;
  }
  return first;
}

/// Moves an operation behind dots of its block, to its first use.
static void sinkRow(Operation *row) {
  Operation *first = findFirstUse(row);
  bool passesProduct = false;
  for (Operation *op = row->getNextNode(); first && op != first;
       op = op->getNextNode()) {
    if (contains(op, llvm::IsaPred<StoreOp>))
      return;
    passesProduct |= isa<DotOp>(op);
  }
  if (first && (passesProduct || isa<MapOp>(first)))
    row->moveBefore(first);
}

void nsa::cuda::sinkRows(scf::ForOp loop,
                         llvm::function_ref<bool(Operation *)> isRow) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*loop.getBody())))
    if (isRow(&op))
      sinkRow(&op);
}
