//===- DeriveDecode.cpp - the entries that generate text ------------------===//
//
// Most operations of a model treat every token alone: one token at a time, they
// are the same operations on one row. Others need values of earlier tokens,
// which caches keep.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
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

/// The rows of a value that later tokens need.
struct Cache {
  /// How many, at least.
  int64_t rows = 0;
  /// Whether some attention iterates over a window of them.
  bool isWindow = false;
  /// The argument, and its value after the entry.
  BlockArgument argument;
  Value updated;
};

/// Makes one entry of a copy of the model.
class EntryDeriver {
public:
  /// `isShared` says that the model is trained beside the entry.
  EntryDeriver(func::FuncOp function, int64_t context, bool isShared = false)
      : function(function), context(context), isShared(isShared),
        signature(function), builder(function.front().getTerminator()) {}

  /// One step: one token of each sequence.
  LogicalResult deriveDecode();
  /// Whole sequences, of which the last logits are a result.
  LogicalResult derivePrefill();

private:
  LogicalResult prepare();
  LogicalResult resizeTables();
  LogicalResult planCaches();
  void matchKeysAndValues();
  void need(Value value, int64_t rows, bool isWindow = false);
  LogicalResult needKeys(Operation *op, VisibilityAttrInterface visibility,
                         ValueRange values);
  void addCaches();
  void addResults();

  LogicalResult step(Operation *op);
  void replace(Operation *op, Operation *by);
  Value append(Value value);
  LogicalResult stepRotary(nn::RotaryOp op);
  LogicalResult stepCompress(CompressOp op);
  LogicalResult stepAttention(AttentionOp op);
  LogicalResult stepSelect(SelectOp op);
  LogicalResult stepToken(Operation *op);

  LastBlockOp getLastBlock(CompressedAttr compressed);
  LogicalResult takeLastRow();

  func::FuncOp function;
  int64_t context;
  bool isShared;
  Signature signature;
  OpBuilder builder;
  BlockArgument positions;
  /// Of values whose rows are compressed blocks: how these are made.
  DenseMap<Value, CompressedAttr> blocks;
  /// Numbers of caches by value.
  llvm::MapVector<Value, unsigned> numbers;
  SmallVector<Cache> caches;
  /// Values that have one row.
  DenseSet<Value> rows;
  DenseMap<CompressedAttr, LastBlockOp> lastBlocks;
};
} // namespace

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

/// Tables of angles grow to the context. Nothing else that follows the length
/// of sequences is known for later positions.
LogicalResult EntryDeriver::resizeTables() {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    SmallVector<StringRef> dims = nn::getArgumentDims(function, index);
    auto role = nn::getArgumentRole(function, index);
    if (role == nn::ArgumentRole::Input ||
        !llvm::is_contained(dims, nn::kSequenceDim))
      continue;
    nn::InitAttr init = nn::getArgumentInit(function, index);
    if (!init || init.getKind() != nn::InitKind::Rotary)
      return emitError(argument.getLoc())
             << "'" << nn::getArgumentName(function, index)
             << "' is as long as a sequence and no table of angles: it has no "
                "values for a context of "
             << context << " tokens";
    auto type = cast<RankedTensorType>(argument.getType());
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, size] : llvm::zip_equal(dims, shape))
      if (dim == nn::kSequenceDim)
        size = std::max(size, context);
    // Training has one of its own.
    if (isShared && type.getShape() != ArrayRef(shape))
      signature.getArgument(index).set(
          nn::kNameAttr,
          builder.getStringAttr(nn::getArgumentName(function, index) +
                                Twine(training::contextSuffix)));
    argument.setType(type.clone(shape));
  }
  return success();
}

LogicalResult EntryDeriver::prepare() {
  std::optional<unsigned> tokens =
      nn::findArgument(function, training::tokensInput);
  if (!tokens)
    return function.emitError("function `")
           << function.getName() << "` has no argument named `"
           << training::tokensInput << "`";
  if (failed(resizeTables()) || failed(planCaches()))
    return failure();
  int64_t batch = getDim(function.getArgument(*tokens), 0);
  positions = signature.addArgument(
      RankedTensorType::get({batch}, builder.getI32Type()),
      nameArgument(builder.getContext(), training::positionsInput,
                   nn::ArgumentRole::Input),
      function.getLoc());
  signature.getResult(0).set(nn::kNameAttr,
                             builder.getStringAttr(training::nextLogitsOutput));
  addCaches();
  return success();
}

//===----------------------------------------------------------------------===//
// Caches
//===----------------------------------------------------------------------===//

void EntryDeriver::need(Value value, int64_t least, bool isWindow) {
  auto [found, isNew] = numbers.try_emplace(value, caches.size());
  if (isNew)
    caches.emplace_back();
  Cache &cache = caches[found->second];
  cache.rows = std::max(cache.rows, least);
  cache.isWindow |= isWindow;
}

LogicalResult EntryDeriver::needKeys(Operation *op,
                                     VisibilityAttrInterface visibility,
                                     ValueRange values) {
  int64_t least = visibility.getNumKeys(context);
  if (least == 0)
    return op->emitOpError("has no keys in a context of ")
           << context << " tokens";
  auto window = dyn_cast<WindowAttr>(visibility);
  if (window)
    least = std::min(least, window.getWindow());
  for (Value value : values)
    need(value, least, bool(window));
  return success();
}

/// A row of caches is one sequence.
static LogicalResult refuseStart(Operation *op) {
  if (getSequenceStart(op))
    return op->emitOpError("packs sequences, which have no caches");
  if (getQueryPlace(op))
    return op->emitOpError("has queries inside of longer sequences, which "
                           "have no caches");
  return success();
}

/// Finds the caches that the model needs, before anything changes.
LogicalResult EntryDeriver::planCaches() {
  for (Operation &op : function.front().without_terminator()) {
    if (failed(refuseStart(&op)))
      return failure();
    if (auto compress = dyn_cast<CompressOp>(op)) {
      if (compress.getBlock() > context)
        return compress.emitOpError("has blocks of ")
               << compress.getBlock() << " tokens, more than the context of "
               << context;
      need(compress.getInput(), compress.getBlock());
      blocks[compress.getOutput()] = compress.getCompressed();
      continue;
    }
    for (Value operand : op.getOperands())
      if (CompressedAttr compressed = blocks.lookup(operand))
        if (!isa<AttentionOp, SelectOp>(op))
          blocks[op.getResult(0)] = compressed;
    if (auto attention = dyn_cast<AttentionOp>(op))
      if (failed(needKeys(attention, attention.getVisibility(),
                          {attention.getKey(), attention.getValue()})))
        return failure();
    if (auto select = dyn_cast<SelectOp>(op))
      if (failed(needKeys(select, select.getCompressed(), select.getKey())))
        return failure();
  }
  matchKeysAndValues();
  return success();
}

/// Attention takes keys and values from caches of one length, which other
/// attention to one of both may have made longer.
void EntryDeriver::matchKeysAndValues() {
  bool hasChanged = true;
  while (hasChanged) {
    hasChanged = false;
    for (auto op : function.getOps<AttentionOp>()) {
      Cache &keys = caches[numbers.lookup(op.getKey())];
      Cache &values = caches[numbers.lookup(op.getValue())];
      hasChanged |= keys.rows != values.rows;
      keys.rows = values.rows = std::max(keys.rows, values.rows);
    }
  }
}

void EntryDeriver::addCaches() {
  // Of tiles of keys that attention goes through.
  constexpr int64_t multiple = 64;
  for (auto [value, number] : numbers) {
    Cache &cache = caches[number];
    if (cache.isWindow)
      cache.rows =
          std::min<int64_t>(llvm::alignTo(cache.rows, multiple), context);
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[1] = cache.rows;
    cache.argument = signature.addState(
        training::cachePrefix + Twine(number), nn::ArgumentRole::State,
        /*initial=*/0.0, type.clone(shape), value.getLoc());
  }
}

void EntryDeriver::addResults() {
  for (auto [number, cache] : llvm::enumerate(caches)) {
    NamedAttrList attributes;
    attributes.set(nn::kAliasAttr, builder.getStringAttr(training::cachePrefix +
                                                         Twine(number)));
    signature.addResult(cache.updated, attributes);
  }
  signature.update();
}

LastBlockOp EntryDeriver::getLastBlock(CompressedAttr compressed) {
  LastBlockOp &op = lastBlocks[compressed];
  if (op)
    return op;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.front());
  op = LastBlockOp::create(builder, function.getLoc(), positions, compressed);
  return op;
}

//===----------------------------------------------------------------------===//
// One token
//===----------------------------------------------------------------------===//

/// Forgets erased values: later ones may reuse their addresses.
void EntryDeriver::replace(Operation *op, Operation *by) {
  for (auto [before, after] : llvm::zip(op->getResults(), by->getResults())) {
    rows.insert(after);
    rows.erase(before);
    if (CompressedAttr compressed = blocks.lookup(before))
      blocks[after] = compressed;
    blocks.erase(before);
    if (auto *found = numbers.find(before); found != numbers.end()) {
      unsigned number = found->second;
      numbers.erase(found);
      numbers[after] = number;
    }
    before.replaceAllUsesWith(after);
  }
  op->erase();
}

/// The cache of a value with its new row.
Value EntryDeriver::append(Value value) {
  Cache &cache = caches[numbers.lookup(value)];
  if (cache.updated)
    return cache.updated;
  Value index = positions;
  if (CompressedAttr compressed = blocks.lookup(value))
    index = getLastBlock(compressed).getCompleted();
  cache.updated = CacheAppendOp::create(builder, value.getLoc(), cache.argument,
                                        value, index);
  return cache.updated;
}

LogicalResult EntryDeriver::stepRotary(nn::RotaryOp op) {
  Value index = positions;
  if (CompressedAttr compressed = blocks.lookup(op.getInput()))
    index = getLastBlock(compressed).getCompleted();
  if (op.getInverse())
    return op.emitOpError("rotates back, which no step does");
  replace(op, RotaryAtOp::create(builder, op.getLoc(), op.getInput(),
                                 op.getTable(), index, op.getStride()));
  return success();
}

/// The last tokens make a row, which is a new one where a block is complete.
LogicalResult EntryDeriver::stepCompress(CompressOp op) {
  Value tokens = CacheReadOp::create(
      builder, op.getLoc(), append(op.getInput()), positions, op.getBlock());
  SmallVector<Value> parameters(op.getParameters());
  replace(op, CompressOp::create(builder, op.getLoc(), op.getKind(), tokens,
                                 parameters, /*start=*/Value(),
                                 op.getCompressed()));
  return success();
}

LogicalResult EntryDeriver::stepAttention(AttentionOp op) {
  Value key = append(op.getKey()), value = append(op.getValue());
  replace(op, DecodeAttentionOp::create(builder, op.getLoc(), op.getQuery(),
                                        key, value, positions, op.getIndices(),
                                        op.getVisibility(), op.getScaleAttr(),
                                        op.getSoftcapAttr()));
  return success();
}

LogicalResult EntryDeriver::stepSelect(SelectOp op) {
  int64_t most = llvm::divideCeil(context, op.getSelectBlock());
  auto selected = SelectedAttr::get(op.getContext(), op.getSelectBlock(),
                                    std::min(op.getCount(), most),
                                    op.getInitial(), op.getLocal());
  replace(op, DecodeSelectOp::create(
                  builder, op.getLoc(), op.getQuery(), append(op.getKey()),
                  op.getLse(), positions, op.getCompressed(), selected, context,
                  op.getScaleAttr(), op.getSoftcapAttr()));
  return success();
}

/// Whether each row of the results needs the same row of the operands alone.
static bool treatsTokensAlone(Operation *op) {
  if (auto matmul = dyn_cast<nn::MatmulOp>(op))
    return !matmul.getTransposeLhs() && !matmul.getAccumulator();
  if (auto split = dyn_cast<nn::SplitOp>(op))
    return !split.getRows();
  if (auto concat = dyn_cast<nn::ConcatOp>(op))
    return !concat.getRows();
  return isa<ElementwiseOpInterface, nn::EmbeddingOp, nn::RMSNormOp,
             nn::AddBiasOp, nn::SplitHeadsOp, nn::MergeHeadsOp, nn::GateOp,
             CombineOp>(op);
}

LogicalResult EntryDeriver::stepToken(Operation *op) {
  if (!treatsTokensAlone(op))
    return op->emitOpError("has no form for one token at a time");
  if (failed(inferResultTypes(op)))
    return failure();
  rows.insert(op->result_begin(), op->result_end());
  return success();
}

LogicalResult EntryDeriver::step(Operation *op) {
  if (llvm::none_of(op->getOperands(),
                    [&](Value operand) { return rows.contains(operand); }))
    return success();
  builder.setInsertionPoint(op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](nn::RotaryOp op) { return stepRotary(op); })
      .Case([&](CompressOp op) { return stepCompress(op); })
      .Case([&](AttentionOp op) { return stepAttention(op); })
      .Case([&](SelectOp op) { return stepSelect(op); })
      .Default([&](Operation *op) { return stepToken(op); });
}

LogicalResult EntryDeriver::deriveDecode() {
  if (failed(prepare()))
    return failure();
  BlockArgument tokens =
      function.getArgument(*nn::findArgument(function, training::tokensInput));
  tokens.setType(
      RankedTensorType::get({getDim(tokens, 0), 1}, builder.getI32Type()));
  NamedAttrList &attributes = signature.getArgument(tokens.getArgNumber());
  attributes.set(nn::kNameAttr, builder.getStringAttr(training::tokenInput));
  attributes.erase(nn::kDimsAttr);
  rows.insert(tokens);
  for (Operation &op :
       llvm::make_early_inc_range(function.front().without_terminator()))
    if (failed(step(&op)))
      return failure();
  addResults();
  return success();
}

//===----------------------------------------------------------------------===//
// Whole sequences
//===----------------------------------------------------------------------===//

/// What is between the residual stream and the logits needs the last row only.
LogicalResult EntryDeriver::takeLastRow() {
  Operation *terminator = function.front().getTerminator();
  Value row = terminator->getOperand(0);
  auto isBetween = [](Operation *op) {
    return op &&
           (isa<nn::MatmulOp, nn::RMSNormOp>(op) ||
            (isa<ElementwiseOpInterface>(op) && op->getNumOperands() == 1)) &&
           treatsTokensAlone(op);
  };
  SmallVector<Operation *> between;
  while (isBetween(row.getDefiningOp())) {
    between.push_back(row.getDefiningOp());
    row = between.back()->getOperand(0);
  }
  builder.setInsertionPointAfterValue(row);
  Value taken = TakeRowOp::create(builder, row.getLoc(), row, positions);
  if (between.empty())
    terminator->setOperand(0, taken);
  else
    between.back()->setOperand(0, taken);
  for (Operation *op : llvm::reverse(between))
    if (failed(inferResultTypes(op)))
      return failure();
  return success();
}

LogicalResult EntryDeriver::derivePrefill() {
  if (failed(prepare()) || failed(takeLastRow()))
    return failure();
  for (auto [value, number] : numbers) {
    Cache &cache = caches[number];
    Value last = positions;
    if (CompressedAttr compressed = blocks.lookup(value))
      last = getLastBlock(compressed).getLast();
    builder.setInsertionPoint(function.front().getTerminator());
    cache.updated = CacheFillOp::create(builder, value.getLoc(), cache.argument,
                                        value, last);
  }
  addResults();
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

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
  llvm::BitVector unused(entry.getNumArguments());
  for (BlockArgument argument : entry.getArguments())
    if (argument.use_empty())
      unused.set(argument.getArgNumber());
  if (failed(entry.eraseArguments(unused)))
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
  return EntryDeriver(*decode, context, /*isShared=*/true).deriveDecode();
}

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
  if (failed(EntryDeriver(*prefill, context).derivePrefill()) ||
      failed(EntryDeriver(decode, context).deriveDecode()))
    return signalPassFailure();
  remark::analysis(model.getLoc(),
                   remark::RemarkOpts::name("Decode").category(DEBUG_TYPE))
      << remark::add("a context of {0} tokens", context.getValue());
  model.erase();
}
