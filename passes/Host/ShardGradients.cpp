//===- ShardGradients.cpp - keep a part of the gradients ------------------===//

#include "nsa/Artifact/TrainingContract.h"
#include "passes/Host/Passes.h"
#include "passes/Host/SumKernels.h"

#include "dialects/NN/NNAttributes.h"

#include "llvm/ADT/MapVector.h"

namespace nsa {
#define GEN_PASS_DEF_SHARDGRADIENTS
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
/// Gradients that lie one after the other and are reduced as one.
struct Bucket {
  uint64_t shard = 0;
  int64_t elements = 0;
  /// In elements, in the parts of its shard.
  int64_t partOffset = 0;
};

/// The commands of an entry that touch a bucket's gradients.
struct Uses {
  Operation *first = nullptr, *last = nullptr;
  SmallVector<OpOperand *> operands;
};

struct ShardGradientsPass : nsa::impl::ShardGradientsBase<ShardGradientsPass> {
  using ShardGradientsBase::ShardGradientsBase;
  void runOnOperation() override;

private:
  LogicalResult collect(rt::SliceShardOp take);
  LogicalResult createParts();
  rt::TensorOp getTensor(Value memory);
  Value getPart(OpBuilder &builder, uint64_t shard);
  void readParts(rt::EntryOp entry);
  LogicalResult findUses(rt::EntryOp entry,
                         llvm::MapVector<unsigned, Uses> &uses);
  Value allocate(OpBuilder &builder, Uses &uses, const Bucket &bucket);
  LogicalResult reduce(rt::EntryOp entry);

  std::optional<SymbolTable> symbols;
  std::optional<SumKernels> kernels;
  SmallVector<Bucket> buckets;
  /// Of a gradient, the number of its bucket and the first element there.
  DenseMap<StringAttr, std::pair<unsigned, int64_t>> placeOf;
  /// By the number of the shard, the elements of its parts and their tensor.
  llvm::MapVector<uint64_t, std::pair<int64_t, rt::TensorOp>> parts;
};
} // namespace

/// Buckets whose reductions may run at once.
static constexpr size_t kInFlight = 2;

rt::TensorOp ShardGradientsPass::getTensor(Value memory) {
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(memory);
  if (names.empty())
    return {};
  auto tensor = symbols->lookup<rt::TensorOp>(names.front().getAttr());
  return tensor.getRole() == rt::TensorRole::Gradient ? tensor : rt::TensorOp();
}

/// Notes the bucket that a part is taken of, which all entries have alike.
LogicalResult ShardGradientsPass::collect(rt::SliceShardOp take) {
  if (!getTensor(take.getMemory()))
    return success();
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(take.getMemory());
  if (llvm::none_of(take->getBlock()->getOps<rt::CollectiveStartOp>(),
                    [&](rt::CollectiveStartOp start) {
                      return start.getKind() == rt::Collective::ReduceScatter &&
                             rt::getTensorNames(start.getMemory()) == names;
                    }))
    return take.emitOpError("takes a part of gradients that are not reduced "
                            "by themselves");
  auto whole = cast<MemRefType>(rt::getMemoryRoot(take.getPart()).getType());
  parts[take.getShard()].first = whole.getNumElements();
  if (placeOf.contains(names.front().getAttr()))
    return success();
  int64_t elements =
      cast<MemRefType>(take.getMemory().getType()).getNumElements();
  uint64_t offset = rt::getByteOffset(take.getPart());
  if (offset % rt::kFlatViewAlignment != 0)
    return take.emitOpError("has its part at byte ")
           << offset << " of those of " << int64_t(ranks)
           << " ranks, which is not a multiple of " << rt::kFlatViewAlignment;
  int64_t first = 0;
  for (FlatSymbolRefAttr name : names) {
    placeOf[name.getAttr()] = {buckets.size(), first};
    first += int64_t(rt::getFlatViewBytes(
                 symbols->lookup<rt::TensorOp>(name.getAttr()))) /
             4;
  }
  buckets.push_back({take.getShard(), elements, int64_t(offset) / 4});
  return success();
}

/// Makes tensors for the parts.
LogicalResult ShardGradientsPass::createParts() {
  auto last = *llvm::to_vector(getOperation().getOps<rt::TensorOp>()).rbegin();
  OpBuilder builder(last->getContext());
  builder.setInsertionPointAfter(last);
  for (auto &[shard, part] : parts) {
    std::string name = training::gradientName(
        shard == 0 ? training::sharedDecayed : training::sharedOthers);
    if (Operation *other = symbols->lookup(name))
      return other->emitOpError("has the name of the parts of gradients");
    part.second = rt::TensorOp::create(
        builder, last.getLoc(), rt::TensorRole::Gradient, name,
        MemRefType::get({part.first}, builder.getF32Type()),
        nn::InitAttr::get(builder.getContext(), nn::InitKind::Constant, 0.0),
        /*decay=*/false, /*state=*/StringAttr(), /*slice=*/rt::SliceAttr());
    symbols->insert(part.second);
  }
  return success();
}

/// The parts of a shard, named in this entry.
Value ShardGradientsPass::getPart(OpBuilder &builder, uint64_t shard) {
  rt::TensorOp tensor = parts[shard].second;
  return rt::GetOp::create(builder, tensor.getLoc(), tensor.getMemoryType(),
                           tensor.getSymName());
}

/// Lets an entry read, set to zero and initialize parts instead of reducing
/// gradients.
void ShardGradientsPass::readParts(rt::EntryOp entry) {
  Block &block = entry.getBody().front();
  OpBuilder front = OpBuilder::atBlockBegin(&block);
  OpBuilder back = OpBuilder::atBlockEnd(&block);
  bool zeroes = false, initializes = false;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (op.getNumOperands() == 0 || !getTensor(op.getOperand(0)))
      continue;
    if (auto take = dyn_cast<rt::SliceShardOp>(op)) {
      Value buffer = rt::getMemoryRoot(take.getPart());
      if (buffer.getDefiningOp<rt::BufferOp>())
        buffer.replaceAllUsesWith(getPart(front, take.getShard()));
    } else if (auto fill = dyn_cast<rt::FillOp>(op);
               fill && fill.getValue().isZero()) {
      zeroes = true;
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
      SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(operand.get());
      if (names.empty() || !placeOf.contains(names.front().getAttr()))
        continue;
      unsigned bucket = placeOf.lookup(names.front().getAttr()).first;
      for (FlatSymbolRefAttr name : names)
        if (auto place = placeOf.find(name.getAttr());
            place == placeOf.end() || place->second.first != bucket)
          return command->emitOpError("has gradients of two buckets as one "
                                      "operand, of which ranks keep parts");
      Uses &found = uses[bucket];
      if (!found.first)
        found.first = command;
      found.last = command;
      found.operands.push_back(&operand);
    }
  return success();
}

/// Memory for the gradients of a bucket while its commands run.
Value ShardGradientsPass::allocate(OpBuilder &builder, Uses &uses,
                                   const Bucket &bucket) {
  Location loc = uses.first->getLoc();
  Value buffer = rt::BufferOp::create(
      builder, loc, MemRefType::get({bucket.elements}, builder.getF32Type()),
      rt::SliceAttr(), rt::LiveRangeAttr());
  for (OpOperand *operand : uses.operands) {
    Value root = rt::getMemoryRoot(operand->get());
    if (root == buffer)
      continue;
    StringAttr name = rt::getTensorNames(root).front().getAttr();
    root.replaceAllUsesWith(rt::ViewOp::create(
        builder, loc, root.getType(), buffer,
        builder.getI64IntegerAttr(placeOf.lookup(name).second)));
  }
  builder.setInsertionPoint(uses.first);
  rt::FillOp::create(builder, loc, builder.getF64FloatAttr(0.0), buffer);
  return buffer;
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
    Value buffer = allocate(builder, use, buckets[number]);
    builder.setInsertionPointAfter(use.last);
    starts.push_back(rt::CollectiveStartOp::create(
        builder, use.last->getLoc(), rt::Collective::ReduceScatter, buffer,
        builder.getI64IntegerAttr(ranks)));
  }
  // The last ones end together, in order.
  for (size_t index = uses.size(); index-- > 0;) {
    auto &use = uses[index];
    const Bucket &bucket = buckets[use.first];
    Value buffer = starts[index].getMemory();
    Location loc = starts[index].getLoc();
    builder.setInsertionPointAfter(
        starts[std::min(index + kInFlight, starts.size() - 1)]);
    rt::CollectiveDoneOp::create(builder, loc, buffer);
    auto type =
        MemRefType::get({bucket.elements / ranks}, builder.getF32Type());
    Value own = rt::BufferOp::create(builder, loc, type, rt::SliceAttr(),
                                     rt::LiveRangeAttr());
    rt::SliceShardOp::create(builder, loc, buffer, own, bucket.shard);
    Value sum =
        rt::ViewOp::create(builder, loc, type, getPart(builder, bucket.shard),
                           builder.getI64IntegerAttr(bucket.partOffset));
    if (failed(kernels->launch(builder, loc, own, sum, /*adds=*/true)))
      return failure();
    ++numBuckets;
  }
  return success();
}

void ShardGradientsPass::runOnOperation() {
  symbols.emplace(getOperation());
  kernels.emplace(getOperation());
  buckets.clear();
  placeOf.clear();
  parts.clear();
  SmallVector<rt::EntryOp> entries(getOperation().getOps<rt::EntryOp>());
  for (rt::EntryOp entry : entries)
    for (auto take : entry.getOps<rt::SliceShardOp>())
      if (failed(collect(take)))
        return signalPassFailure();
  if (parts.empty())
    return;
  if (failed(createParts()))
    return signalPassFailure();
  for (rt::EntryOp entry : entries) {
    readParts(entry);
    if (failed(reduce(entry)))
      return signalPassFailure();
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(entry.getBody().front())))
      if (isa<rt::GetOp, rt::FlatViewOp, rt::ViewOp, rt::BufferOp>(op) &&
          op.use_empty())
        op.erase();
  }
  for (StringAttr name : llvm::make_first_range(placeOf))
    symbols->erase(symbols->lookup(name));
}
