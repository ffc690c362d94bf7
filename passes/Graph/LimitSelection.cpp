//===- LimitSelection.cpp - as many blocks as there are -------------------===//

#include "dialects/Interfaces/Extents.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-limit-selection"

namespace nsa {
#define GEN_PASS_DEF_LIMITSELECTION
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct LimitSelectionPass : nsa::impl::LimitSelectionBase<LimitSelectionPass> {
  using LimitSelectionBase::LimitSelectionBase;

  void runOnOperation() override;
  void limit(SelectOp op, int64_t blocks);
};
} // namespace

void LimitSelectionPass::limit(SelectOp op, int64_t blocks) {
  auto isOfDialect = [&](Operation *user) {
    return user->getDialect() == op->getDialect();
  };
  if (llvm::none_of(op->getUsers(), isOfDialect))
    return;
  OpBuilder builder(op);
  auto limited = SelectOp::create(
      builder, op.getLoc(), op.getQuery(), op.getKey(), op.getLse(),
      op.getStart(), /*at=*/Value(), op.getCompressed(),
      SelectedAttr::get(op.getContext(), op.getSelectBlock(), blocks,
                        op.getInitial(), op.getLocal()),
      op.getScaleAttr(), op.getSoftcapAttr());
  op.getIndices().replaceUsesWithIf(limited.getIndices(), [&](OpOperand &use) {
    return isOfDialect(use.getOwner());
  });
  remark::passed(op.getLoc(), remark::RemarkOpts::name("LimitSelection")
                                  .category(DEBUG_TYPE)
                                  .function(getOperation().getName()))
      << remark::add(
             "the sequence has {0} blocks of {1} tokens: {2} of the {3} "
             "to select are left out",
             blocks, op.getSelectBlock(), op.getCount() - blocks,
             op.getCount());
  if (op->use_empty())
    op->erase();
  ++numLimited;
}

void LimitSelectionPass::runOnOperation() {
  SmallVector<SelectOp> selections;
  getOperation().walk([&](SelectOp op) { selections.push_back(op); });
  for (SelectOp op : selections) {
    // Other calls, or the sequences of which these are queries, have more.
    if (!getExtent(op.getQuery(), 1).isConstant() || op.getAt())
      continue;
    int64_t blocks =
        llvm::divideCeil(getDim(op.getQuery(), 1), op.getSelectBlock());
    if (op.getCount() > blocks)
      limit(op, blocks);
  }
}
