//===- EntryDeriver.cpp - an entry that generates, of a model -------------===//

#include "passes/Graph/EntryDeriver.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "nsa/Artifact/TrainingContract.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;

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
    if (plan.isShared && type.getShape() != ArrayRef(shape))
      signature.getArgument(index).set(
          nn::kNameAttr,
          builder.getStringAttr(nn::getArgumentName(function, index) +
                                Twine(training::contextSuffix)));
    argument.setType(type.clone(shape));
  }
  return success();
}

BlockArgument EntryDeriver::addInput(StringRef name, ArrayRef<int64_t> shape) {
  return signature.addArgument(
      RankedTensorType::get(shape, builder.getI32Type()),
      nameArgument(builder.getContext(), name, nn::ArgumentRole::Input),
      function.getLoc());
}

/// Gives the argument of tokens another name and shape.
void EntryDeriver::renameTokens(StringRef name, ArrayRef<int64_t> shape) {
  BlockArgument tokens =
      function.getArgument(*nn::findArgument(function, training::tokensInput));
  tokens.setType(RankedTensorType::get(shape, builder.getI32Type()));
  NamedAttrList &attributes = signature.getArgument(tokens.getArgNumber());
  attributes.set(nn::kNameAttr, builder.getStringAttr(name));
  attributes.erase(nn::kDimsAttr);
  rows.insert(tokens);
}

/// `lastName` is the argument that has positions of last tokens.
LogicalResult EntryDeriver::prepare(StringRef lastName, bool isPart) {
  std::optional<unsigned> tokens =
      nn::findArgument(function, training::tokensInput);
  if (!tokens)
    return function.emitError("function `")
           << function.getName() << "` has no argument named `"
           << training::tokensInput << "`";
  if (failed(resizeTables()) || failed(planCaches()))
    return failure();
  int64_t sequences = getDim(function.getArgument(*tokens), 0);
  int64_t batch = isPart ? 1 : sequences;
  positions = addInput(lastName, {batch});
  if (isPart)
    at = queriesAt = addInput(training::partAtInput, {batch, 2});
  if (plan.pages) {
    auto most = int64_t(llvm::divideCeil(context, getPageRows()));
    pages = addInput(training::pagesInput, {sequences, most});
    if (isPart)
      queriesAt = addInput(training::partPositionInput, {batch, 2});
  }
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
    if (plan.part)
      // Queries of a part see keys at their positions.
      cache.rows = blocks.count(value) ? cache.rows : context;
    else if (cache.isWindow)
      cache.rows =
          std::min<int64_t>(llvm::alignTo(cache.rows, multiple), context);
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[1] = cache.rows;
    StringRef prefix = training::cachePrefix;
    if (pagesOf(value)) {
      prefix = training::pageCachePrefix;
      shape[0] = plan.pages;
      shape[1] = getPageRows();
    }
    cache.argument =
        signature.addState(prefix + Twine(number), nn::ArgumentRole::State,
                           /*initial=*/0.0, type.clone(shape), value.getLoc());
  }
}

/// The pages of a value's cache: rows of blocks are few.
Value EntryDeriver::pagesOf(Value value) const {
  return blocks.contains(value) ? Value() : Value(pages);
}

/// Rows of a page: those of the largest block that is selected.
int64_t EntryDeriver::getPageRows() {
  constexpr int64_t usual = 64;
  int64_t most = 0;
  for (auto op : function.front().getOps<SelectOp>())
    most = std::max(most, int64_t(op.getSelectBlock()));
  return most != 0 ? most : usual;
}

void EntryDeriver::addResults() {
  for (const Cache &cache : caches) {
    NamedAttrList attributes;
    attributes.set(nn::kAliasAttr,
                   signature.getArgument(cache.argument.getArgNumber())
                       .get(nn::kNameAttr));
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
  if (CompressedAttr compressed = blocks.lookup(value)) {
    LastBlockOp block = getLastBlock(compressed);
    index = at ? block.getLast() : block.getCompleted();
  }
  if (at)
    cache.updated =
        CacheFillOp::create(builder, value.getLoc(), cache.argument, value,
                            index, placeOf(value), pagesOf(value));
  else
    cache.updated = CacheAppendOp::create(
        builder, value.getLoc(), cache.argument, value, index, pagesOf(value));
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
  Value tokens =
      CacheReadOp::create(builder, op.getLoc(), append(op.getInput()),
                          positions, pages, op.getBlock());
  SmallVector<Value> parameters(op.getParameters());
  replace(op, CompressOp::create(builder, op.getLoc(), op.getKind(), tokens,
                                 parameters, /*start=*/Value(),
                                 op.getCompressed()));
  return success();
}

LogicalResult EntryDeriver::stepAttention(AttentionOp op) {
  Value key = append(op.getKey()), value = append(op.getValue());
  replace(op, DecodeAttentionOp::create(
                  builder, op.getLoc(), op.getQuery(), key, value, positions,
                  op.getIndices(), pagesOf(op.getKey()), op.getVisibility(),
                  op.getScaleAttr(), op.getSoftcapAttr()));
  return success();
}

/// No more blocks than the context has.
SelectedAttr EntryDeriver::limitSelected(SelectOp op) const {
  int64_t most = llvm::divideCeil(context, op.getSelectBlock());
  return SelectedAttr::get(op.getContext(), op.getSelectBlock(),
                           std::min(op.getCount(), most), op.getInitial(),
                           op.getLocal());
}

LogicalResult EntryDeriver::stepSelect(SelectOp op) {
  replace(op, DecodeSelectOp::create(
                  builder, op.getLoc(), op.getQuery(), append(op.getKey()),
                  op.getLse(), positions, op.getCompressed(), limitSelected(op),
                  context, op.getScaleAttr(), op.getSoftcapAttr()));
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
  if (failed(prepare(training::positionsInput)))
    return failure();
  renameTokens(training::tokenInput, {getDim(positions, 0), 1});
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
  Value taken = TakeRowOp::create(builder, row.getLoc(), row, positions, at);
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
  if (failed(prepare(training::positionsInput)) || failed(takeLastRow()))
    return failure();
  for (auto [value, number] : numbers) {
    Cache &cache = caches[number];
    Value last = positions;
    if (CompressedAttr compressed = blocks.lookup(value))
      last = getLastBlock(compressed).getLast();
    builder.setInsertionPoint(function.front().getTerminator());
    cache.updated = CacheFillOp::create(builder, value.getLoc(), cache.argument,
                                        value, last, /*at=*/Value(),
                                        /*pages=*/Value());
  }
  addResults();
  return success();
}

//===----------------------------------------------------------------------===//
// Parts of sequences
//===----------------------------------------------------------------------===//

/// Where the rows of a value begin.
Value EntryDeriver::placeOf(Value value) {
  CompressedAttr compressed = blocks.lookup(value);
  if (!compressed)
    return at;
  Value &first = firstBlocks[compressed];
  if (!first) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&function.front());
    first = FirstBlockOp::create(builder, function.getLoc(), at, compressed);
  }
  return first;
}

/// What queries of a part see: the cache, or of caches with pages the rows of
/// the one sequence. Then all that is attended to is such a sequence, so that
/// queries of all branches stand at the same place.
Value EntryDeriver::appendToPart(Value value) {
  Value updated = append(value);
  if (!pages)
    return updated;
  Cache &cache = caches[numbers.lookup(value)];
  if (!cache.whole)
    cache.whole = CacheSliceOp::create(builder, value.getLoc(), updated, at,
                                       pagesOf(value), cache.rows,
                                       /*stride=*/0);
  return cache.whole;
}

/// Operations that read other tokens read caches, to which the rows of the part
/// have been written. A part compresses what it may complete, again where that
/// began before it.
LogicalResult EntryDeriver::stepPart(Operation *op) {
  if (llvm::none_of(op->getOperands(),
                    [&](Value operand) { return rows.contains(operand); }))
    return success();
  builder.setInsertionPoint(op);
  bool isKnown =
      llvm::TypeSwitch<Operation *, bool>(op)
          .Case([&](nn::RotaryOp op) {
            op.getAtMutable().assign(placeOf(op.getInput()));
            return !op.getInverse();
          })
          .Case([&](CompressOp op) {
            int64_t block = op.getBlock(), stride = op.getStride();
            int64_t before = std::max<int64_t>(block - stride, 0);
            op.getInputMutable().assign(CacheSliceOp::create(
                builder, op.getLoc(), append(op.getInput()),
                placeOf(op.getOutput()), pages,
                plan.part + llvm::alignTo(before, stride), stride));
            return true;
          })
          .Case([&](AttentionOp op) {
            op.getKeyMutable().assign(appendToPart(op.getKey()));
            op.getValueMutable().assign(appendToPart(op.getValue()));
            op.getAtMutable().assign(queriesAt);
            return true;
          })
          .Case([&](SelectOp op) {
            op.getKeyMutable().assign(appendToPart(op.getKey()));
            op.getAtMutable().assign(queriesAt);
            op.setSelectedAttr(limitSelected(op));
            return true;
          })
          .Default([](Operation *op) { return treatsTokensAlone(op); });
  if (!isKnown)
    return op->emitOpError("has no form for a part of a sequence");
  rows.insert(op->result_begin(), op->result_end());
  return inferResultTypes(op);
}

LogicalResult EntryDeriver::derivePart() {
  if (plan.part > context)
    return function.emitError("a part of ")
           << plan.part << " tokens is more than the context of " << context;
  for (auto op : function.getOps<CompressOp>())
    if (plan.part % op.getStride() != 0)
      return op.emitOpError("has the stride ")
             << op.getStride() << ", of which a part of " << plan.part
             << " tokens is no multiple";
  if (failed(prepare(training::partLastInput, /*isPart=*/true)))
    return failure();
  renameTokens(training::partTokensInput, {1, plan.part});
  signature.getResult(0).set(nn::kNameAttr,
                             builder.getStringAttr(training::partLogitsOutput));
  for (Operation &op :
       llvm::make_early_inc_range(function.front().without_terminator()))
    if (failed(stepPart(&op)))
      return failure();
  if (failed(takeLastRow()))
    return failure();
  addResults();
  return success();
}
