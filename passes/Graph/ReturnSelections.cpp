//===- ReturnSelections.cpp - selected blocks as results ------------------===//

#include "dialects/NN/NNAttributes.h"
#include "dialects/NSA/NSAOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_RETURNSELECTIONS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct ReturnSelectionsPass
    : nsa::impl::ReturnSelectionsBase<ReturnSelectionsPass> {
  using ReturnSelectionsBase::ReturnSelectionsBase;

  void runOnOperation() override;
};
} // namespace

void ReturnSelectionsPass::runOnOperation() {
  bool isFound = false;
  Builder builder(&getContext());
  for (StringRef name : {training::forwardEntry, training::prefillEntry,
                         training::prefillPartEntry, training::decodeEntry}) {
    auto entry = getOperation().lookupSymbol<func::FuncOp>(name);
    if (!entry || entry.isExternal())
      continue;
    Signature signature(entry);
    unsigned number = 0;
    // Other shapes have other names.
    StringRef prefix = name == training::decodeEntry
                           ? training::nextSelectionPrefix
                           : training::selectionPrefix;
    for (Operation &op : entry.front()) {
      if (!isa<SelectOp, DecodeSelectOp>(op))
        continue;
      auto result = builder.getStringAttr(prefix + Twine(number++));
      signature.addResult(op.getResult(0),
                          builder.getNamedAttr(nn::kNameAttr, result));
    }
    signature.update();
    isFound |= number != 0;
  }
  if (isFound)
    return;
  getOperation().emitError("option selection has no effect: no layer of an "
                           "entry forward, prefill or decode selects blocks");
  signalPassFailure();
}
