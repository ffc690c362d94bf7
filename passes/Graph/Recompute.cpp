//===- Recompute.cpp - compute forward values again -----------------------===//

#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Layers.h"
#include "passes/Graph/Passes.h"
#include "passes/Graph/RecomputePlan.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-recompute"

namespace nsa {
#define GEN_PASS_DEF_RECOMPUTE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// Clones what a plan selects before its backward users.
class Cloner {
public:
  Cloner(func::FuncOp function, const RecomputePlan &plan)
      : plan(plan), builder(function.getContext()) {}

  void run();

  unsigned numClones = 0, numBarriers = 0;

private:
  bool isRecomputed(Value value) const {
    Operation *op = getViewRoot(value).getDefiningOp();
    return op && plan.isSelected(op);
  }
  /// The value computed again, at the builder's position or before.
  Value getClone(Value value);
  Value getBarrier(Value value);

  const RecomputePlan &plan;
  OpBuilder builder;
  DenseMap<Value, Value> clones, barriers;
};

struct RecomputePass : nsa::impl::RecomputeBase<RecomputePass> {
  using RecomputeBase::RecomputeBase;

  LogicalResult initialize(MLIRContext *context) override;
  void runOnOperation() override;

private:
  /// What is computed again; `none` is the plan without anything.
  RecomputePlan select(const RecomputePlan &none) const;
};

} // namespace

Value Cloner::getBarrier(Value value) {
  Value &barrier = barriers[value];
  if (!barrier) {
    barrier = nn::RecomputeBarrierOp::create(
        builder, tagLocation(value.getLoc(), kRecomputeTag), value);
    ++numBarriers;
  }
  return barrier;
}

Value Cloner::getClone(Value value) {
  if (Value clone = clones.lookup(value))
    return clone;
  Operation *op = value.getDefiningOp();
  SmallVector<Value> operands =
      llvm::map_to_vector(op->getOperands(), [&](Value operand) {
        return isRecomputed(operand) ? getClone(operand) : getBarrier(operand);
      });
  Operation *clone = builder.clone(*op);
  clone->setOperands(operands);
  clone->setLoc(tagLocation(op->getLoc(), kRecomputeTag));
  if (!op->hasTrait<ViewOfOperand>())
    ++numClones;
  for (auto [result, again] : llvm::zip(op->getResults(), clone->getResults()))
    clones[result] = again;
  return clones.lookup(value);
}

void Cloner::run() {
  for (Operation *op : plan.getBackward()) {
    builder.setInsertionPoint(op);
    for (OpOperand &operand : op->getOpOperands())
      if (isRecomputed(operand.get()))
        operand.set(getClone(operand.get()));
  }
}

LogicalResult RecomputePass::initialize(MLIRContext *context) {
  if (budgetMiB < 0 || budgetMiB > kMaxRecomputeBudget)
    return emitError(UnknownLoc::get(context), "recompute budget of ")
           << budgetMiB.getValue() << " MiB, expected 0 to "
           << kMaxRecomputeBudget;
  if (budgetMiB > 0 && policy == RecomputePolicy::None)
    return emitError(UnknownLoc::get(context), "a recompute budget of ")
           << budgetMiB.getValue() << " MiB needs the policy cheap or block";
  return success();
}

/// Locations mark the backward graph. A function that lost them must not be
/// taken for one without gradients.
static LogicalResult checkNoGradients(func::FuncOp function) {
  Operation *ret = function.front().getTerminator();
  for (OpOperand &operand : ret->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    StringRef name = nn::getResultName(function, index);
    Operation *producer = operand.get().getDefiningOp();
    if (name.starts_with(training::gradientPrefix) && producer &&
        producer->getNumOperands() > 0)
      return function.emitError("function `")
             << function.getName() << "` has the gradient `" << name
             << "`, but no location in it says what is backward; print it with "
                "--mlir-print-debuginfo";
  }
  return success();
}

/// Blocks cost more time for each byte than cheap operations: with a budget,
/// only as many layers as it takes.
RecomputePlan RecomputePass::select(const RecomputePlan &none) const {
  bool isBlock = policy == RecomputePolicy::Block;
  for (size_t layers = isBlock && budgetMiB == 0 ? SIZE_MAX : 0;; ++layers) {
    RecomputePlan plan = none;
    bool areThere = plan.selectBlocks(layers);
    plan.selectCheap();
    if (!isBlock || !areThere || plan.fitsBudget())
      return plan;
  }
}

void RecomputePass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (policy == RecomputePolicy::None || function.isExternal())
    return;
  if (failed(getReturn(function)))
    return signalPassFailure();
  RecomputePlan none(function, static_cast<uint64_t>(budgetMiB) << 20);
  if (none.getBackward().empty()) {
    if (failed(checkNoGradients(function)))
      signalPassFailure();
    return;
  }
  uint64_t before = none.getKeptBytes();
  RecomputePlan plan = select(none);
  Cloner cloner(function, plan);
  cloner.run();
  numClones += cloner.numClones;
  numBarriers += cloner.numBarriers;
  auto options = remark::RemarkOpts::name("Kept")
                     .category(DEBUG_TYPE)
                     .function(function.getName());
  remark::passed(function.getLoc(), options)
      << remark::metric("Operations", cloner.numClones)
      << remark::metric("BytesBefore", before)
      << remark::metric("Bytes", plan.getKeptBytes());
  if (budgetMiB == 0 || plan.fitsBudget())
    return;
  emitWarning(function.getLoc(), "values that backward needs of function `")
      << function.getName() << "` take " << plan.getKeptBytes()
      << " bytes, above the budget of " << budgetMiB.getValue() << " MiB";
  remark::missed(function.getLoc(), remark::RemarkOpts::name("Budget")
                                        .category(DEBUG_TYPE)
                                        .function(function.getName()))
      << remark::add("{0} bytes are kept, above the budget of {1} MiB",
                     plan.getKeptBytes(), budgetMiB.getValue());
}
