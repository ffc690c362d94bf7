//===- ShardParameters.cpp - keep a part of the parameters ----------------===//

#include "nsa/Artifact/TrainingContract.h"
#include "passes/Host/Passes.h"
#include "passes/Host/ShardBuckets.h"
#include "passes/Host/SumKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SmallSet.h"

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
  void buildScatter();
  LogicalResult updateParts(rt::EntryOp entry);
  bool isConversion(rt::LaunchOp launch);
  LogicalResult dissolve(rt::LaunchOp launch);
  void addUse(Key key, Use use);
  LogicalResult noteUse(OpOperand &operand);
  LogicalResult collect(rt::EntryOp entry);
  LogicalResult gather(const Group &group, Operation *before);

  std::optional<ShardBuckets> buckets;
  std::optional<SumKernels> kernels;
  rt::TensorOp part;
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

/// The entry that takes the parts of what lies on the host.
void ShardParametersPass::buildScatter() {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  Location loc = part.getLoc();
  auto entry =
      rt::EntryOp::create(builder, loc, training::scatterEntry,
                          builder.getArrayAttr({}), builder.getArrayAttr({}),
                          /*arena_peak=*/IntegerAttr());
  builder.createBlock(&entry.getBody());
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
        from.getElementType() == to.getElementType() ||
        !output.getDefiningOp<rt::BufferOp>())
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
  for (auto [input, output] :
       llvm::zip_equal(launch.getInputs(), launch.getOutputs())) {
    if (buckets->contains(input)) {
      FailureOr<unsigned> bucket = buckets->find(launch, input);
      if (failed(bucket))
        return failure();
      shown[output] = {*bucket, buckets->getOffset(input)};
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
  return success();
}

/// Adds a use to the last group of its bucket if that is near, else to a new
/// one.
void ShardParametersPass::addUse(Key key, Use use) {
  llvm::SmallSet<unsigned, 8> others;
  for (const Key &used : llvm::reverse(sequence)) {
    if (used == key || others.size() > kNear)
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

/// Gathers a bucket for a group; begins before a command that is not after the
/// first use.
LogicalResult ShardParametersPass::gather(const Group &group,
                                          Operation *before) {
  Type element = group.key.second;
  const ShardBucket &bucket = (*buckets)[group.key.first];
  Operation *first = group.getFirst();
  Location loc = first->getLoc();
  OpBuilder builder(before);
  Value own = getPart(builder, bucket);
  auto allocate = [&](int64_t elements) -> Value {
    return rt::BufferOp::create(builder, loc,
                                MemRefType::get({elements}, element));
  };
  Value whole = allocate(bucket.elements);
  if (!element.isF32()) {
    Value narrow = allocate(bucket.elements / ranks);
    if (failed(kernels->launch(builder, loc, own, narrow)))
      return failure();
    own = narrow;
  }
  rt::WriteShardOp::create(builder, loc, own, whole, bucket.shard);
  rt::CollectiveStartOp::create(builder, loc, rt::Collective::AllGather, whole,
                                builder.getI64IntegerAttr(ranks));
  builder.setInsertionPoint(first);
  rt::CollectiveDoneOp::create(builder, loc, whole);
  for (const Use &use : group.uses) {
    builder.setInsertionPoint(use.operand->getOwner());
    use.operand->set(rebase(builder, use.operand->get(), use, whole));
  }
  ++numGathers;
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
      rt::TensorRole::State, /*shard=*/0);
  if (failed(made))
    return signalPassFailure();
  part = *made;
  part.setState(StringRef(training::weightState));
  for (auto entry : getOperation().getOps<rt::EntryOp>()) {
    if (failed(updateParts(entry)) || failed(collect(entry)))
      return signalPassFailure();
    for (size_t i = 0; i < groups.size(); ++i)
      if (failed(gather(groups[i], groups[i - std::min(i, kAhead)].getFirst())))
        return signalPassFailure();
    eraseUnusedNames(entry);
  }
  buildScatter();
}
