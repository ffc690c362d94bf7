//===- ReplaySelections.cpp - selected blocks as inputs -------------------===//

#include "dialects/NN/NNAttributes.h"
#include "dialects/NSA/NSAOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_REPLAYSELECTIONS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct ReplaySelectionsPass
    : nsa::impl::ReplaySelectionsBase<ReplaySelectionsPass> {
  using ReplaySelectionsBase::ReplaySelectionsBase;

  void runOnOperation() override;
};
} // namespace

void ReplaySelectionsPass::runOnOperation() {
  auto entry =
      getOperation().lookupSymbol<func::FuncOp>(training::accumulateEntry);
  SmallVector<SelectOp> selections;
  if (entry && !entry.isExternal())
    llvm::append_range(selections, entry.front().getOps<SelectOp>());
  if (selections.empty()) {
    getOperation().emitError("option replay-selection has no effect: no layer "
                             "of an entry accumulate selects blocks");
    return signalPassFailure();
  }
  Signature signature(entry);
  for (auto [number, op] : llvm::enumerate(selections)) {
    op.getIndices().replaceAllUsesWith(signature.addArgument(
        op.getIndices().getType(),
        nameArgument(&getContext(), training::selectionPrefix + Twine(number),
                     nn::ArgumentRole::Input),
        op.getLoc()));
    op.erase();
  }
  signature.update();
  eraseDeadOps(entry);
}
