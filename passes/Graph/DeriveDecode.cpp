//===- DeriveDecode.cpp - the entries that generate text ------------------===//
//
// Each is derived from a copy of the model by EntryDeriver.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/EntryDeriver.h"
#include "passes/Graph/Passes.h"
#include "passes/Graph/PrepareWeights.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/TypeSwitch.h"

#define DEBUG_TYPE "nsa-derive-decode"

namespace nsa {
#define GEN_PASS_DEF_DERIVEDECODE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct DeriveDecodePass : nsa::impl::DeriveDecodeBase<DeriveDecodePass> {
  using DeriveDecodeBase::DeriveDecodeBase;
  void runOnOperation() override;
};
} // namespace

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static LogicalResult eraseUnusedArguments(func::FuncOp entry) {
  llvm::BitVector unused(entry.getNumArguments());
  for (BlockArgument argument : entry.getArguments())
    if (argument.use_empty())
      unused.set(argument.getArgNumber());
  return entry.eraseArguments(unused);
}

/// The entry that copies the caches of the beginning of one sequence to
/// another, made of the one that takes in a part.
static LogicalResult deriveCopy(func::FuncOp part) {
  OpBuilder builder(part);
  builder.setInsertionPointAfter(part);
  auto copy = cast<func::FuncOp>(builder.clone(*part));
  copy.setName(training::copyPrefixEntry);
  Signature signature(copy);
  Value from = signature.addArgument(
      RankedTensorType::get({1, 2}, builder.getI32Type()),
      nameArgument(builder.getContext(), training::partFromInput,
                   nn::ArgumentRole::Input),
      copy.getLoc());
  signature.update();
  // The first result is the logits. Pages are shared instead.
  SmallVector<unsigned> caches;
  for (unsigned i = 1; i < copy.getNumResults(); ++i) {
    Value updated = copy.front().getTerminator()->getOperand(i);
    auto fill = updated.getDefiningOp<CacheFillOp>();
    if (fill.getPages())
      continue;
    caches.push_back(i);
    builder.setInsertionPoint(fill);
    fill.getRowsMutable().assign(CacheSliceOp::create(
        builder, fill.getLoc(), fill.getCache(), from, /*pages=*/Value(),
        getDim(fill.getCache(), 1), /*stride=*/1));
  }
  if (caches.empty()) {
    copy.erase();
    return success();
  }
  keepResults(copy, caches);
  eraseDeadOps(copy);
  return eraseUnusedArguments(copy);
}

/// A sequence that is generated is one document, which begins with token 0:
/// what isolates documents does nothing, and each compressed block begins as
/// blocks of a sequence alone do.
static LogicalResult dropStart(func::FuncOp entry) {
  std::optional<unsigned> index = nn::findArgument(entry, training::startInput);
  if (!index)
    return success();
  BlockArgument start = entry.getArgument(*index);
  DenseSet<Value> changed;
  for (Operation &op : entry.front().without_terminator()) {
    bool isStarted = getSequenceStart(&op) == start;
    if (!isStarted && llvm::none_of(op.getOperands(), [&](Value operand) {
          return changed.contains(operand);
        }))
      continue;
    llvm::TypeSwitch<Operation *>(isStarted ? &op : nullptr)
        .Case<AttentionOp, CompressOp, SelectOp, nn::RotaryOp>(
            [](auto own) { own.getStartMutable().clear(); });
    SmallVector<Type> before(op.getResultTypes());
    if (failed(inferResultTypes(&op)))
      return failure();
    for (auto [result, type] : llvm::zip_equal(op.getResults(), before))
      if (result.getType() != type)
        changed.insert(result);
  }
  return success();
}

/// A copy of the model with no other result than its logits.
static FailureOr<func::FuncOp> copyModel(func::FuncOp model, StringRef name) {
  if (failed(getReturn(model)))
    return failure();
  std::optional<unsigned> logits =
      nn::findResult(model, training::logitsOutput);
  if (!logits)
    return model.emitError("function `")
           << model.getName() << "` has no result named `logits`";
  OpBuilder builder(model);
  auto entry = cast<func::FuncOp>(builder.clone(*model));
  entry.setName(name);
  entry.setPublic();
  entry->removeAttr(nn::kTrainAttr);
  keepResults(entry, *logits);
  eraseDeadOps(entry);
  if (failed(dropStart(entry)))
    return failure();
  if (failed(eraseUnusedArguments(entry)))
    return failure();
  return entry;
}

/// Makes a model of several sequences one of a single one.
static LogicalResult takeOneSequence(func::FuncOp function) {
  DenseSet<Value> changed;
  for (BlockArgument argument : function.getArguments()) {
    SmallVector<StringRef> dims =
        nn::getArgumentDims(function, argument.getArgNumber());
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type || !llvm::is_contained(dims, nn::kBatchDim))
      continue;
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, size] : llvm::zip_equal(dims, shape))
      if (dim == nn::kBatchDim)
        size = 1;
    argument.setType(type.clone(shape));
    changed.insert(argument);
  }
  return inferResultTypes(function, std::move(changed));
}

/// The entry that generates samples of a model which is trained.
static LogicalResult deriveSamples(func::FuncOp model, int64_t context) {
  FailureOr<func::FuncOp> decode = copyModel(model, training::decodeEntry);
  if (failed(decode) || failed(takeOneSequence(*decode)))
    return failure();
  prepareWeights(*decode);
  return EntryDeriver(*decode, {context, /*part=*/0, /*isShared=*/true})
      .deriveDecode();
}

/// Makes a copy of the model the entry that takes in prompts: whole ones, or
/// parts of one of its sequences.
static LogicalResult deriveBeginning(func::FuncOp entry, EntryPlan plan) {
  if (!plan.part)
    return EntryDeriver(entry, plan).derivePrefill();
  entry.setName(training::prefillPartEntry);
  if (failed(EntryDeriver(entry, plan).derivePart()))
    return failure();
  return deriveCopy(entry);
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

void DeriveDecodePass::runOnOperation() {
  func::FuncOp model;
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (nn::isTrainable(function) && !function.isExternal())
      model = function;
  if (!model) {
    getOperation().emitError("option ")
        << (samples ? "sample-context" : "context") << " ("
        << context.getValue()
        << ") has no effect: no function is marked nn.train";
    return signalPassFailure();
  }
  if (samples) {
    if (failed(deriveSamples(model, context)))
      signalPassFailure();
    return;
  }
  FailureOr<func::FuncOp> prefill = copyModel(model, training::prefillEntry);
  if (failed(prefill))
    return signalPassFailure();
  prepareWeights(*prefill);
  OpBuilder builder(model);
  auto decode = cast<func::FuncOp>(builder.clone(**prefill));
  decode.setName(training::decodeEntry);
  EntryPlan plan = {context, prefillChunk, /*isShared=*/false, pages};
  if (failed(EntryDeriver(decode, plan).deriveDecode()) ||
      failed(deriveBeginning(*prefill, plan)))
    return signalPassFailure();
  remark::analysis(model.getLoc(),
                   remark::RemarkOpts::name("Decode").category(DEBUG_TYPE))
      << remark::add("a context of {0} tokens", context.getValue());
  model.erase();
}
