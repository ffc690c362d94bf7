//===- ShardGradients.cpp - keep a part of the gradients ------------------===//

#include "dialects/NN/NNAttributes.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Host/Passes.h"
#include "passes/Host/ShardBuckets.h"
#include "passes/Host/SumKernels.h"

#include "llvm/ADT/MapVector.h"

namespace nsa {
#define GEN_PASS_DEF_SHARDGRADIENTS
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
/// The commands of an entry that touch a bucket's gradients.
struct Uses {
  Operation *first = nullptr, *last = nullptr;
  SmallVector<OpOperand *> operands;
};

struct ShardGradientsPass : nsa::impl::ShardGradientsBase<ShardGradientsPass> {
  using ShardGradientsBase::ShardGradientsBase;
  void runOnOperation() override;

private:
  LogicalResult checkReduced(rt::EntryOp entry);
  LogicalResult createParts();
  Value getPart(OpBuilder &builder, uint64_t shard);
  void keepRest(rt::FillOp fill);
  void readParts(rt::EntryOp entry);
  LogicalResult findUses(rt::EntryOp entry,
                         llvm::MapVector<unsigned, Uses> &uses);
  Value allocate(OpBuilder &builder, Uses &uses, const ShardBucket &bucket);
  LogicalResult addPart(OpBuilder &builder, Value buffer,
                        const ShardBucket &bucket);
  LogicalResult reduce(rt::EntryOp entry);

  std::optional<ShardBuckets> buckets;
  std::optional<SumKernels> kernels;
  /// By the number of the shard.
  std::map<uint64_t, rt::TensorOp> parts;
};
} // namespace

/// Buckets whose reductions may run at once.
static constexpr size_t kInFlight = 2;

/// What is taken of gradients is all that an entry reads of them.
LogicalResult ShardGradientsPass::checkReduced(rt::EntryOp entry) {
  for (auto take : entry.getOps<rt::SliceShardOp>()) {
    SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(take.getMemory());
    auto isReduced = [&](rt::CollectiveStartOp start) {
      return start.getKind() == rt::Collective::ReduceScatter &&
             rt::getTensorNames(start.getMemory()) == names;
    };
    if (buckets->contains(take.getMemory()) &&
        llvm::none_of(entry.getOps<rt::CollectiveStartOp>(), isReduced))
      return take.emitOpError("takes a part of gradients that are not reduced "
                              "by themselves");
  }
  return success();
}

LogicalResult ShardGradientsPass::createParts() {
  for (auto [shard, elements] : buckets->getParts()) {
    FailureOr<rt::TensorOp> tensor = buckets->createTensor(
        training::gradientName(shard == 0 ? training::sharedDecayed
                                          : training::sharedOthers),
        rt::TensorRole::Gradient, elements, Float32Type::get(&getContext()));
    if (failed(tensor))
      return failure();
    tensor->setInitAttr(
        nn::InitAttr::get(&getContext(), nn::InitKind::Constant, 0.0));
    parts[shard] = *tensor;
  }
  return success();
}

/// The parts of a shard, named in this entry.
Value ShardGradientsPass::getPart(OpBuilder &builder, uint64_t shard) {
  rt::TensorOp tensor = parts[shard];
  return rt::GetOp::create(builder, tensor.getLoc(), tensor.getMemoryType(),
                           tensor.getSymName());
}

/// Sets the gradients of a fill to zero that ranks keep whole.
void ShardGradientsPass::keepRest(rt::FillOp fill) {
  SmallVector<Attribute> rest;
  int64_t elements = 0;
  for (FlatSymbolRefAttr name : rt::getTensorNames(fill.getOut()))
    if (!buckets->contains(name)) {
      rest.push_back(name);
      auto tensor = buckets->getSymbols().lookup<rt::TensorOp>(name.getAttr());
      elements += int64_t(rt::getFlatViewBytes(tensor)) / 4;
    }
  if (rest.empty())
    return;
  OpBuilder builder(fill);
  fill.getOutMutable().assign(rt::FlatViewOp::create(
      builder, fill.getLoc(), MemRefType::get({elements}, builder.getF32Type()),
      builder.getArrayAttr(rest)));
}

/// Lets an entry read, set to zero and initialize parts instead of reducing
/// gradients.
void ShardGradientsPass::readParts(rt::EntryOp entry) {
  Block &block = entry.getBody().front();
  OpBuilder front = OpBuilder::atBlockBegin(&block);
  OpBuilder back = OpBuilder::atBlockEnd(&block);
  bool zeroes = false, initializes = false;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (op.getNumOperands() == 0 || !buckets->contains(op.getOperand(0)))
      continue;
    if (auto take = dyn_cast<rt::SliceShardOp>(op)) {
      rt::getMemoryRoot(take.getPart())
          .replaceAllUsesWith(getPart(front, take.getShard()));
    } else if (auto fill = dyn_cast<rt::FillOp>(op);
               fill && fill.getValue().isZero()) {
      zeroes = true;
      keepRest(fill);
      if (!buckets->contains(fill.getOut()))
        continue;
    } else if (isa<rt::InitializeOp>(op)) {
      initializes = true;
    } else if (!isa<rt::CollectiveStartOp, rt::CollectiveDoneOp>(op)) {
      continue;
    }
    op.erase();
  }
  for (uint64_t shard : llvm::make_first_range(parts)) {
    Location loc = entry.getLoc();
    if (initializes)
      rt::InitializeOp::create(back, loc, getPart(back, shard));
    if (zeroes)
      rt::FillOp::create(back, loc, back.getF64FloatAttr(0.0),
                         getPart(back, shard));
  }
}

/// Finds the commands that add to gradients, by bucket.
LogicalResult
ShardGradientsPass::findUses(rt::EntryOp entry,
                             llvm::MapVector<unsigned, Uses> &uses) {
  for (rt::CommandOpInterface command : rt::getCommands(entry))
    for (OpOperand &operand : command->getOpOperands()) {
      if (!buckets->contains(operand.get()))
        continue;
      FailureOr<unsigned> bucket = buckets->find(command, operand.get());
      if (failed(bucket))
        return failure();
      Uses &found = uses[*bucket];
      if (!found.first)
        found.first = command;
      found.last = command;
      found.operands.push_back(&operand);
    }
  return success();
}

/// Memory for the gradients of a bucket while its commands run.
Value ShardGradientsPass::allocate(OpBuilder &builder, Uses &uses,
                                   const ShardBucket &bucket) {
  Location loc = uses.first->getLoc();
  Value buffer = rt::BufferOp::create(
      builder, loc, MemRefType::get({bucket.elements}, builder.getF32Type()));
  for (OpOperand *operand : uses.operands)
    if (Value root = rt::getMemoryRoot(operand->get()); root != buffer)
      root.replaceAllUsesWith(rt::ViewOp::create(
          builder, loc, root.getType(), buffer,
          builder.getI64IntegerAttr(buckets->getOffset(root))));
  builder.setInsertionPoint(uses.first);
  rt::FillOp::create(builder, loc, builder.getF64FloatAttr(0.0), buffer);
  return buffer;
}

/// Waits for the reduction of a bucket, and adds the rank's part.
LogicalResult ShardGradientsPass::addPart(OpBuilder &builder, Value buffer,
                                          const ShardBucket &bucket) {
  Location loc = buffer.getLoc();
  rt::CollectiveDoneOp::create(builder, loc, buffer);
  auto type = MemRefType::get({bucket.elements / ranks}, builder.getF32Type());
  Value own = rt::BufferOp::create(builder, loc, type);
  rt::SliceShardOp::create(builder, loc, buffer, own, bucket.shard);
  Value sum =
      rt::ViewOp::create(builder, loc, type, getPart(builder, bucket.shard),
                         builder.getI64IntegerAttr(bucket.partOffset));
  return kernels->launch(builder, loc, own, sum, /*adds=*/true);
}

/// Reduces the gradients that an entry computes, and adds the rank's part.
LogicalResult ShardGradientsPass::reduce(rt::EntryOp entry) {
  llvm::MapVector<unsigned, Uses> found;
  if (failed(findUses(entry, found)))
    return failure();
  auto uses = found.takeVector();
  llvm::stable_sort(uses, [](auto &a, auto &b) {
    return a.second.last->isBeforeInBlock(b.second.last);
  });
  OpBuilder builder(entry.getContext());
  SmallVector<rt::CollectiveStartOp> starts;
  for (auto &[number, use] : uses) {
    builder.setInsertionPointToStart(&entry.getBody().front());
    Value buffer = allocate(builder, use, (*buckets)[number]);
    builder.setInsertionPointAfter(use.last);
    starts.push_back(rt::CollectiveStartOp::create(
        builder, use.last->getLoc(), rt::Collective::ReduceScatter, buffer,
        builder.getI64IntegerAttr(ranks)));
  }
  // The last ones end together, in order.
  for (size_t index = uses.size(); index-- > 0;) {
    builder.setInsertionPointAfter(
        starts[std::min(index + kInFlight, starts.size() - 1)]);
    if (failed(addPart(builder, starts[index].getMemory(),
                       (*buckets)[uses[index].first])))
      return failure();
    ++numBuckets;
  }
  return success();
}

void ShardGradientsPass::runOnOperation() {
  buckets.emplace(getOperation(), rt::TensorRole::Gradient);
  kernels.emplace(getOperation());
  parts.clear();
  SmallVector<rt::EntryOp> entries(getOperation().getOps<rt::EntryOp>());
  if (failed(buckets->collect(/*lastShard=*/~uint64_t(0))))
    return signalPassFailure();
  if (buckets->get().empty())
    return;
  for (rt::EntryOp entry : entries)
    if (failed(checkReduced(entry)))
      return signalPassFailure();
  if (failed(createParts()))
    return signalPassFailure();
  for (rt::EntryOp entry : entries) {
    readParts(entry);
    if (failed(reduce(entry)))
      return signalPassFailure();
    eraseUnusedNames(entry);
  }
  for (const ShardBucket &bucket : buckets->get())
    for (FlatSymbolRefAttr name : bucket.names)
      buckets->getSymbols().erase(buckets->getSymbols().lookup(name.getAttr()));
}
