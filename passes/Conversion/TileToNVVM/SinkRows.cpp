//===- SinkRows.cpp - rows behind dots ------------------------------------===//

#include "passes/Conversion/TileToNVVM/SinkRows.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// The first operation of its block that uses `op`, or holds a use; null if
/// there is none.
static Operation *findFirstUse(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers()) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    if (!first || inBlock->isBeforeInBlock(first))
      first = inBlock;
  }
  return first;
}

void nsa::cuda::sink(Operation *op, function_ref<bool(Operation *)> counts,
                     bool toMaps) {
  Operation *first = findFirstUse(op);
  if (!first)
    return;
  bool isWorth = toMaps && isa<MapOp>(first);
  for (Operation *passed = op->getNextNode(); passed != first;
       passed = passed->getNextNode()) {
    if (contains(passed, llvm::IsaPred<StoreOp>))
      return;
    isWorth |= counts(passed);
  }
  if (isWorth)
    op->moveBefore(first);
}

void nsa::cuda::sinkRows(scf::ForOp loop,
                         llvm::function_ref<bool(Operation *)> isRow) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(*loop.getBody())))
    if (isRow(&op))
      sink(&op, llvm::IsaPred<DotOp>, /*toMaps=*/true);
}
