//===- BuildEntries.cpp - entry points of training ------------------------===//

#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-build-entries"

namespace nsa {
#define GEN_PASS_DEF_BUILDENTRIES
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// Which unused arguments of an entry are erased.
enum class UnusedArguments { EraseAll, KeepParameters };

struct BuildEntriesPass : nsa::impl::BuildEntriesBase<BuildEntriesPass> {
  using BuildEntriesBase::BuildEntriesBase;

  void runOnOperation() override;
  /// The function to split; null if there is none.
  FailureOr<func::FuncOp> findModel();
  /// A copy of the model with some of its results.
  FailureOr<func::FuncOp> buildEntry(func::FuncOp model, StringRef name,
                                     ArrayRef<unsigned> results,
                                     UnusedArguments unused);
};

} // namespace

FailureOr<func::FuncOp> BuildEntriesPass::findModel() {
  func::FuncOp model;
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (!nn::isTrainable(function))
      continue;
    if (model) {
      InFlightDiagnostic diagnostic = function.emitError("function `")
                                      << function.getName()
                                      << "` is the second marked nn.train";
      diagnostic.attachNote(model.getLoc()) << "the first is here";
      return diagnostic;
    }
    model = function;
  }
  if (model && model.isExternal())
    return model.emitError("function `")
           << model.getName() << "` is marked nn.train but has no body";
  return model;
}

/// The objective is chosen here, and so is what it is differentiated by.
static LogicalResult checkNoMarks(func::FuncOp model) {
  for (BlockArgument argument : model.getArguments())
    if (model.getArgAttr(argument.getArgNumber(), nn::kDifferentiateAttr))
      return emitError(argument.getLoc(), "argument ")
             << argument.getArgNumber() << " of function `" << model.getName()
             << "` is marked nn.differentiate, but a function marked nn.train "
                "is differentiated with respect to its parameters";
  for (unsigned i = 0, e = model.getNumResults(); i < e; ++i)
    if (nn::isObjective(model, i))
      return model.emitError("result ")
             << i << " of function `" << model.getName()
             << "` is marked nn.objective, but the objective of a function "
                "marked nn.train is its `loss`";
  return success();
}

/// The loss as one that can be added up over micro-batches, in place of a mean;
/// null if it is no sum of cross entropies of the same targets. `last` is one
/// of them.
static Value buildLossSum(Value loss, nn::CrossEntropyOp &last) {
  DenseSet<Value> needed = {loss};
  SmallVector<Operation *> terms;
  for (Operation &op : llvm::reverse(*loss.getParentBlock())) {
    auto isNeeded = [&](Value value) { return needed.contains(value); };
    if (llvm::none_of(op.getResults(), isNeeded))
      continue;
    auto entropy = dyn_cast<nn::CrossEntropyOp>(op);
    if (isa<nn::AddOp>(op))
      needed.insert_range(op.getOperands());
    else if (!entropy || isNeeded(entropy.getLse()) ||
             isNeeded(entropy.getCount()) ||
             (last && last.getTargets() != entropy.getTargets()))
      return {};
    terms.push_back(&op);
    if (entropy)
      last = entropy;
  }
  if (llvm::any_of(needed, llvm::IsaPred<BlockArgument>))
    return {};
  // Other readers of a mean or a count keep it.
  OpBuilder builder(loss.getContext());
  IRMapping sums;
  for (Operation *term : llvm::reverse(terms)) {
    builder.setInsertionPointAfter(term);
    Operation *sum = builder.clone(*term, sums);
    if (auto entropy = dyn_cast<nn::CrossEntropyOp>(sum)) {
      entropy.setOverAll(true);
      last = entropy;
    }
  }
  return sums.lookup(loss);
}

/// Micro-batches are added up: the loss becomes a sum over targets, and the
/// fraction of them that counts a result.
static LogicalResult sumOverTargets(func::FuncOp entry, unsigned loss) {
  if (nn::findResult(entry, training::targetFractionResult))
    return entry.emitError("result `")
           << training::targetFractionResult
           << "` has the name of one that is made here";
  Operation *ret = entry.front().getTerminator();
  nn::CrossEntropyOp last;
  Value sum = buildLossSum(ret->getOperand(loss), last);
  if (!sum)
    return entry.emitError("the loss is no nn.cross_entropy, nor a sum of "
                           "those of the same targets, so micro-batches cannot "
                           "be averaged over their targets");
  ret->setOperand(loss, sum);
  Signature signature(entry);
  Builder builder(entry.getContext());
  signature.addResult(
      last.getCount(),
      builder.getNamedAttr(nn::kNameAttr, builder.getStringAttr(
                                              training::targetFractionResult)));
  signature.update();
  eraseDeadOps(entry);
  return success();
}

/// Whether a result is the argument's new value.
static bool isUpdated(func::FuncOp function, unsigned index) {
  StringRef name = nn::getArgumentName(function, index);
  return !name.empty() &&
         llvm::any_of(llvm::seq(function.getNumResults()), [&](unsigned i) {
           return nn::getResultAlias(function, i) == name;
         });
}

static void eraseUnusedArguments(func::FuncOp function,
                                 UnusedArguments unused) {
  llvm::BitVector erase(function.getNumArguments());
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    bool keep =
        isUpdated(function, index) ||
        (unused == UnusedArguments::KeepParameters &&
         (nn::isSeed(function, index) ||
          nn::getArgumentRole(function, index) == nn::ArgumentRole::Parameter));
    if (argument.use_empty() && !keep)
      erase.set(index);
  }
  LogicalResult erased = function.eraseArguments(erase);
  assert(succeeded(erased) && "function type without these arguments");
  (void)erased;
}

FailureOr<func::FuncOp> BuildEntriesPass::buildEntry(func::FuncOp model,
                                                     StringRef name,
                                                     ArrayRef<unsigned> results,
                                                     UnusedArguments unused) {
  SymbolTable symbols(getOperation());
  if (Operation *other = symbols.lookup(name); other && other != model) {
    InFlightDiagnostic diagnostic =
        other->emitError("symbol `")
        << name << "` has the name of an entry that is made from `"
        << model.getName() << "`";
    return diagnostic;
  }
  OpBuilder builder(model);
  auto entry = cast<func::FuncOp>(builder.clone(*model));
  entry.setName(name);
  entry.setPublic();
  entry->removeAttr(nn::kTrainAttr);
  keepResults(entry, results);
  unsigned erased = eraseDeadOps(entry);
  numErased += erased;
  eraseUnusedArguments(entry, unused);
  remark::analysis(
      entry.getLoc(),
      remark::RemarkOpts::name("Entry").category(DEBUG_TYPE).function(name))
      << remark::add("{0} arguments, {1} operations erased",
                     entry.getNumArguments(), erased);
  return entry;
}

void BuildEntriesPass::runOnOperation() {
  FailureOr<func::FuncOp> found = findModel();
  if (failed(found))
    return signalPassFailure();
  func::FuncOp model = *found;
  if (!model)
    return;
  FailureOr<unsigned> loss = findLoss(model);
  if (failed(loss) || failed(getReturn(model)) || failed(checkNoMarks(model)))
    return signalPassFailure();
  std::optional<unsigned> logits =
      nn::findResult(model, training::logitsOutput);
  if (!logits) {
    model.emitError("function `")
        << model.getName() << "` has no result named `logits`";
    return signalPassFailure();
  }
  SmallVector<unsigned> evaluated{*loss}, trained{*loss};
  for (unsigned i = 0, e = model.getNumResults(); i < e; ++i) {
    if (i == *loss || i == *logits)
      continue;
    evaluated.push_back(i);
    if (!nn::isStatistic(model, i))
      trained.push_back(i);
  }

  if (forward && failed(buildEntry(model, training::forwardEntry, *logits,
                                   UnusedArguments::EraseAll)))
    return signalPassFailure();
  auto eval = buildEntry(model, training::evalEntry, evaluated,
                         UnusedArguments::EraseAll);
  auto accumulate = buildEntry(model, training::accumulateEntry, trained,
                               UnusedArguments::KeepParameters);
  if (failed(eval) || failed(accumulate) ||
      failed(sumOverTargets(*accumulate, /*loss=*/0)))
    return signalPassFailure();
  nn::setObjective(*accumulate, 0);
  model.erase();
}
