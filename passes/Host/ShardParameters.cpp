//===- ShardParameters.cpp - keep a part of the parameters ----------------===//

#include "nsa/Artifact/TrainingContract.h"
#include "passes/Host/Passes.h"
#include "passes/Host/ShardBuckets.h"
#include "passes/Host/SumKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/FormatVariadic.h"

#define DEBUG_TYPE "nsa-shard-parameters"

namespace nsa {
#define GEN_PASS_DEF_SHARDPARAMETERS
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
/// What is gathered: a bucket in an element type.
using Key = std::pair<unsigned, Type>;

/// An operand that shows something of a gathered bucket: from element `offset`
/// on, what it shows of `root`.
struct Use {
  OpOperand *operand;
  Value root;
  int64_t offset;
};

/// Uses of a bucket that are near enough to share a gather.
struct Group {
  Key key;
  SmallVector<Use> uses;

  Operation *getFirst() const { return uses.front().operand->getOwner(); }
};

struct ShardParametersPass
    : nsa::impl::ShardParametersBase<ShardParametersPass> {
  using ShardParametersBase::ShardParametersBase;
  void runOnOperation() override;

private:
  Value getPart(OpBuilder &builder, const ShardBucket &bucket);
  Block *addEntry(StringRef name);
  void buildScatter();
  void cloneEntries();
  LogicalResult buildGather();
  LogicalResult updateParts(rt::EntryOp entry);
  bool isConversion(rt::LaunchOp launch);
  LogicalResult dissolve(rt::LaunchOp launch);
  void addUse(Key key, Use use);
  LogicalResult noteUse(OpOperand &operand);
  LogicalResult collect(rt::EntryOp entry);
  FailureOr<Value> getWhole(OpBuilder &builder, Location loc, Key key);
  LogicalResult startGather(OpBuilder &builder, Key key, Value whole);
  LogicalResult gather(const Group &group, Operation *before);

  std::optional<ShardBuckets> buckets;
  std::optional<SumKernels> kernels;
  rt::TensorOp part;
  /// What is gathered once a step, in the order of the first uses.
  llvm::MapVector<Key, rt::TensorOp> kept;
  // Of the entry at hand.
  /// Memory that shows something of a bucket or of a cast of it: of which one,
  /// from which element on.
  DenseMap<Value, std::pair<unsigned, int64_t>> shown;
  /// In the order of their first uses.
  SmallVector<Group> groups;
  /// The number of the last group of a key, and all uses in order.
  DenseMap<Key, unsigned> lastGroup;
  SmallVector<Key> sequence;
};
} // namespace

/// Other buckets that may be used between two uses of a group: the matrices of
/// a layer.
static constexpr size_t kNear = 4;
/// Gathers that may run ahead of the one that is waited for.
static constexpr size_t kAhead = 2;

/// This rank's part of a bucket.
Value ShardParametersPass::getPart(OpBuilder &builder,
                                   const ShardBucket &bucket) {
  Value whole = rt::GetOp::create(builder, part.getLoc(), part.getMemoryType(),
                                  part.getSymName());
  auto type = MemRefType::get({bucket.elements / ranks}, builder.getF32Type());
  return rt::ViewOp::create(builder, part.getLoc(), type, whole,
                            builder.getI64IntegerAttr(bucket.partOffset));
}

/// The body of a new entry.
Block *ShardParametersPass::addEntry(StringRef name) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  auto entry = rt::EntryOp::create(
      builder, part.getLoc(), name, builder.getArrayAttr({}),
      builder.getArrayAttr({}), /*arena_peak=*/IntegerAttr());
  return builder.createBlock(&entry.getBody());
}

/// The entry that takes the parts of what lies on the host.
void ShardParametersPass::buildScatter() {
  OpBuilder builder = OpBuilder::atBlockEnd(addEntry(training::scatterEntry));
  Location loc = part.getLoc();
  for (const ShardBucket &bucket : buckets->get()) {
    SmallVector<Attribute> names(bucket.names.begin(), bucket.names.end());
    Value whole = rt::FlatViewOp::create(
        builder, loc, MemRefType::get({bucket.elements}, builder.getF32Type()),
        builder.getArrayAttr(names));
    rt::SliceShardOp::create(builder, loc, whole, getPart(builder, bucket),
                             bucket.shard);
    for (FlatSymbolRefAttr name : bucket.names)
      buckets->getSymbols().lookup<rt::TensorOp>(name.getAttr()).setHost(true);
  }
}

/// Adds the passes of a step that gather what later ones read.
void ShardParametersPass::cloneEntries() {
  for (const char *name : {training::accumulateEntry, training::stepEntry})
    if (auto entry = buckets->getSymbols().lookup<rt::EntryOp>(name)) {
      rt::EntryOp clone = entry.clone();
      clone.setSymName((StringRef(training::gatherPrefix) + name).str());
      buckets->getSymbols().insert(clone);
    }
}

/// The entry that gathers everything, for evaluations and samples.
LogicalResult ShardParametersPass::buildGather() {
  OpBuilder builder = OpBuilder::atBlockEnd(addEntry(training::gatherEntry));
  SmallVector<Value> wholes;
  for (Key key : llvm::make_first_range(kept)) {
    FailureOr<Value> whole = getWhole(builder, part.getLoc(), key);
    if (failed(whole) || failed(startGather(builder, key, *whole)))
      return failure();
    wholes.push_back(*whole);
  }
  for (Value whole : wholes)
    rt::CollectiveDoneOp::create(builder, part.getLoc(), whole);
  return success();
}

/// Lets an update work on the part where it lies.
LogicalResult ShardParametersPass::updateParts(rt::EntryOp entry) {
  OpBuilder front = OpBuilder::atBlockBegin(&entry.getBody().front());
  for (Operation &op : llvm::make_early_inc_range(entry.getBody().front())) {
    if (auto take = dyn_cast<rt::SliceShardOp>(op);
        take && buckets->contains(take.getMemory())) {
      Value buffer = rt::getMemoryRoot(take.getPart());
      buffer.replaceAllUsesWith(rt::GetOp::create(
          front, part.getLoc(), part.getMemoryType(), part.getSymName()));
    } else if (auto put = dyn_cast<rt::WriteShardOp>(op);
               put && buckets->contains(put.getMemory())) {
      if (rt::getTensorNames(put.getPart()).empty())
        return put.emitOpError("has weights that were not updated in place");
    } else if (!isa<rt::CollectiveStartOp, rt::CollectiveDoneOp>(op) ||
               !buckets->contains(op.getOperand(0))) {
      continue;
    }
    op.erase();
  }
  return success();
}

/// Whether a launch does nothing but convert each input to the type of the
/// output of the same number.
bool ShardParametersPass::isConversion(rt::LaunchOp launch) {
  auto kernel = buckets->getSymbols().lookup<tile::KernelOp>(
      launch.getKernelAttr().getAttr());
  if (!kernel || launch.getInputs().size() != launch.getOutputs().size())
    return false;
  for (auto [input, output] :
       llvm::zip_equal(launch.getInputs(), launch.getOutputs())) {
    auto from = cast<MemRefType>(input.getType());
    auto to = cast<MemRefType>(output.getType());
    if (from.getNumElements() != to.getNumElements() ||
        from.getElementType() == to.getElementType())
      return false;
  }
  auto isPart = [](Operation *op) {
    bool computes =
        llvm::any_of(op->getResultTypes(), llvm::IsaPred<FloatType>);
    return computes
               ? isa<arith::TruncFOp>(op)
               : isa<arith::ArithDialect, scf::SCFDialect>(op->getDialect()) ||
                     isa<tile::KernelOp, tile::ProgramIdOp, tile::RangeOp,
                         tile::ViewOp, tile::LoadOp, tile::MapOp, tile::YieldOp,
                         tile::StoreOp, tile::ReturnOp>(op);
  };
  return !kernel
              ->walk([&](Operation *op) {
                return isPart(op) ? WalkResult::advance()
                                  : WalkResult::interrupt();
              })
              .wasInterrupted();
}

/// Replaces a launch that converts weights: those of buckets are gathered in
/// the other type, the rest is converted one by one.
LogicalResult ShardParametersPass::dissolve(rt::LaunchOp launch) {
  OpBuilder builder(launch);
  Location loc = launch.getLoc();
  SmallVector<rt::CopyOp> copies;
  for (auto [input, output] :
       llvm::zip_equal(launch.getInputs(), launch.getOutputs())) {
    if (buckets->contains(input)) {
      FailureOr<unsigned> bucket = buckets->find(launch, input);
      if (failed(bucket))
        return failure();
      Value narrow = output;
      if (!output.getDefiningOp<rt::BufferOp>()) {
        // What lasts longer than the entry gets a copy.
        narrow = rt::BufferOp::create(builder, loc, output.getType());
        copies.push_back(rt::CopyOp::create(builder, loc, narrow, output));
      }
      shown[narrow] = {*bucket, buckets->getOffset(input)};
      continue;
    }
    auto flatten = [&](Value memory) -> Value {
      auto type = cast<MemRefType>(memory.getType());
      return rt::ViewOp::create(
          builder, loc,
          MemRefType::get({type.getNumElements()}, type.getElementType()),
          memory);
    };
    Value from = flatten(input), to = flatten(output);
    if (failed(kernels->launch(builder, loc, from, to)))
      return failure();
  }
  launch.erase();
  for (rt::CopyOp copy : copies)
    if (failed(noteUse(copy->getOpOperand(0))))
      return failure();
  return success();
}

/// Adds a use to the last group of its bucket if that is near, as all are where
/// buckets are kept, else to a new one.
void ShardParametersPass::addUse(Key key, Use use) {
  llvm::SmallSet<unsigned, 8> others;
  for (const Key &used : llvm::reverse(sequence)) {
    if (keep || used == key || others.size() > kNear)
      break;
    others.insert(used.first);
  }
  sequence.push_back(key);
  auto last = lastGroup.find(key);
  if (last == lastGroup.end() || others.size() > kNear) {
    lastGroup[key] = groups.size();
    groups.push_back({key, {use}});
    return;
  }
  groups[last->second].uses.push_back(use);
}

/// Notes an operand that shows something of a bucket, or of a cast of it.
LogicalResult ShardParametersPass::noteUse(OpOperand &operand) {
  Value root = rt::getMemoryRoot(operand.get());
  auto place = shown.find(root);
  if (place == shown.end() && !buckets->contains(root))
    return success();
  auto command = cast<rt::CommandOpInterface>(operand.getOwner());
  SmallVector<Value> written;
  command.getWrites(written);
  if (llvm::is_contained(written, operand.get()))
    return command->emitOpError("writes weights of which ranks keep parts");
  if (place == shown.end()) {
    FailureOr<unsigned> bucket = buckets->find(command, root);
    if (failed(bucket))
      return failure();
    place = shown.insert({root, {*bucket, buckets->getOffset(root)}}).first;
  }
  auto [bucket, offset] = place->second;
  Type element = cast<MemRefType>(root.getType()).getElementType();
  int64_t bytes = offset * element.getIntOrFloatBitWidth() / 8;
  if (bytes % rt::kFlatViewAlignment != 0)
    return command->emitOpError("reads weights from byte ")
           << bytes << " of a bucket on, which is no multiple of "
           << rt::kFlatViewAlignment;
  addUse({bucket, element}, {&operand, root, offset});
  return success();
}

LogicalResult ShardParametersPass::collect(rt::EntryOp entry) {
  shown.clear();
  groups.clear();
  lastGroup.clear();
  sequence.clear();
  for (rt::CommandOpInterface command : rt::getCommands(entry)) {
    if (isa<rt::InitializeOp>(command.getOperation()))
      continue;
    auto launch = dyn_cast<rt::LaunchOp>(command.getOperation());
    if (launch &&
        llvm::any_of(launch.getInputs(),
                     [&](Value input) { return buckets->contains(input); }) &&
        isConversion(launch)) {
      if (failed(dissolve(launch)))
        return failure();
      continue;
    }
    for (OpOperand &operand : command->getOpOperands())
      if (failed(noteUse(operand)))
        return failure();
  }
  return success();
}

/// What `value` shows of `root`, of the same elements of other memory.
static Value rebase(OpBuilder &builder, Value value, const Use &use,
                    Value memory) {
  if (value == use.root)
    return rt::ViewOp::create(builder, value.getLoc(), value.getType(), memory,
                              builder.getI64IntegerAttr(use.offset));
  auto view = value.getDefiningOp<rt::ViewOp>();
  Value source = rebase(builder, view.getSource(), use, memory);
  return rt::ViewOp::create(builder, view.getLoc(), view.getType(), source,
                            view.getOffsetAttr());
}

/// Memory for the whole of a bucket: a tensor where it is kept for a step.
FailureOr<Value> ShardParametersPass::getWhole(OpBuilder &builder, Location loc,
                                               Key key) {
  auto [number, element] = key;
  int64_t elements = (*buckets)[number].elements;
  if (!keep)
    return rt::BufferOp::create(builder, loc,
                                MemRefType::get({elements}, element))
        .getResult();
  rt::TensorOp &tensor = kept[key];
  if (!tensor) {
    FailureOr<rt::TensorOp> made = buckets->createTensor(
        llvm::formatv("{0}{1}.{2}", training::gatheredPrefix, number, element)
            .str(),
        rt::TensorRole::State, elements, element);
    if (failed(made))
      return failure();
    tensor = *made;
  }
  return rt::GetOp::create(builder, loc, tensor.getMemoryType(),
                           tensor.getSymName())
      .getResult();
}

/// Begins to gather a bucket, as a type.
LogicalResult ShardParametersPass::startGather(OpBuilder &builder, Key key,
                                               Value whole) {
  auto [number, element] = key;
  const ShardBucket &bucket = (*buckets)[number];
  Location loc = whole.getLoc();
  Value own = getPart(builder, bucket);
  if (!element.isF32()) {
    Value narrow = rt::BufferOp::create(
        builder, loc, MemRefType::get({bucket.elements / ranks}, element));
    if (failed(kernels->launch(builder, loc, own, narrow)))
      return failure();
    own = narrow;
  }
  rt::WriteShardOp::create(builder, loc, own, whole, bucket.shard);
  rt::CollectiveStartOp::create(builder, loc, rt::Collective::AllGather, whole,
                                builder.getI64IntegerAttr(ranks));
  ++numGathers;
  return success();
}

/// Lets a group read its bucket. Gathers it from `before` on, which is not
/// after the first use; not where an entry before this one has.
LogicalResult ShardParametersPass::gather(const Group &group,
                                          Operation *before) {
  Operation *first = group.getFirst();
  OpBuilder builder(before ? before : first);
  FailureOr<Value> whole = getWhole(builder, first->getLoc(), group.key);
  if (failed(whole))
    return failure();
  if (before) {
    if (failed(startGather(builder, group.key, *whole)))
      return failure();
    builder.setInsertionPoint(first);
    rt::CollectiveDoneOp::create(builder, first->getLoc(), *whole);
  }
  for (const Use &use : group.uses) {
    builder.setInsertionPoint(use.operand->getOwner());
    use.operand->set(rebase(builder, use.operand->get(), use, *whole));
  }
  return success();
}

void ShardParametersPass::runOnOperation() {
  buckets.emplace(getOperation(), rt::TensorRole::Parameter);
  kernels.emplace(getOperation());
  if (failed(buckets->collect(/*lastShard=*/0)))
    return signalPassFailure();
  if (buckets->get().empty())
    return;
  FailureOr<rt::TensorOp> made = buckets->createTensor(
      (training::weightState + Twine(".") + training::sharedDecayed).str(),
      rt::TensorRole::State, buckets->getParts().at(0),
      Float32Type::get(&getContext()));
  if (failed(made))
    return signalPassFailure();
  part = *made;
  part.setState(StringRef(training::weightState));
  kept.clear();
  if (keep)
    cloneEntries();
  for (auto entry : llvm::to_vector(getOperation().getOps<rt::EntryOp>())) {
    if (failed(updateParts(entry)) || failed(collect(entry)))
      return signalPassFailure();
    bool gathers =
        !keep || entry.getSymName().starts_with(training::gatherPrefix);
    for (size_t i = 0; i < groups.size(); ++i)
      if (failed(gather(groups[i],
                        gathers ? groups[i - std::min(i, kAhead)].getFirst()
                                : nullptr)))
        return signalPassFailure();
    eraseUnusedNames(entry);
  }
  buildScatter();
  if (keep && failed(buildGather()))
    return signalPassFailure();
}
