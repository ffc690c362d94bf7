//===- BucketAllReduce.cpp - reduce neighbouring tensors together ---------===//

#include "passes/Host/Passes.h"
#include "passes/Host/TensorOrder.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "nsa-bucket-all-reduce"

namespace nsa {
#define GEN_PASS_DEF_BUCKETALLREDUCE
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
/// The reduction of one tensor in one entry.
struct Reduction {
  rt::CollectiveStartOp start;
  rt::CollectiveDoneOp done;
  /// The numbers of the last command before that touches the tensor and of the
  /// first one after, counted from 1: 0 and kEnd if there is none.
  unsigned ready, need;
  /// The latter.
  Operation *reader;
};

constexpr unsigned kEnd = ~0u;

/// The reductions of one tensor, one for each entry that has some, in the order
/// of the entries.
using Reductions = llvm::SmallMapVector<Operation *, Reduction, 2>;

/// Tensors that lie one after the other and are reduced as one.
struct Bucket {
  /// From the end of memory to its beginning, as backward completes them.
  SmallVector<rt::TensorOp> tensors;
  uint64_t bytes = 0;
  /// In each entry, the command that completes the last tensor, and the first
  /// one that needs a tensor.
  llvm::SmallMapVector<Operation *, std::pair<unsigned, unsigned>, 2> times;
};

struct BucketAllReducePass
    : nsa::impl::BucketAllReduceBase<BucketAllReducePass> {
  using BucketAllReduceBase::BucketAllReduceBase;

  void runOnOperation() override;

private:
  void collect(rt::EntryOp entry);
  bool mustJoin(const Bucket &bucket, rt::TensorOp tensor);
  bool mayJoin(const Bucket &bucket, rt::TensorOp tensor,
               const Reductions &reductions);
  void merge(const Bucket &bucket);

  DenseMap<StringAttr, Reductions> reductionsOf;
  /// Of gradients that ranks share, the number of the shard, from 1.
  DenseMap<StringAttr, uint64_t> shardOf;
  /// The tensors that commands see as one, by pairs of neighbours.
  DenseSet<std::pair<Attribute, Attribute>> inseparable;
};
} // namespace

/// Notes which tensors a command sees as one.
static void noteViews(rt::CommandOpInterface command,
                      DenseSet<std::pair<Attribute, Attribute>> &inseparable) {
  if (!isa<rt::LaunchOp, rt::GemmOp>(command.getOperation()))
    return;
  for (Value operand : command->getOperands())
    if (auto view = rt::getMemoryRoot(operand).getDefiningOp<rt::FlatViewOp>())
      for (auto [a, b] : llvm::zip(view.getTensors(),
                                   view.getTensors().getValue().drop_front()))
        inseparable.insert({a, b});
}

void BucketAllReducePass::collect(rt::EntryOp entry) {
  DenseMap<StringAttr, unsigned> lastTouch;
  DenseMap<StringAttr, Reduction> found;
  auto getTensor = [](Value memory) {
    auto get = memory.getDefiningOp<rt::GetOp>();
    return get ? get.getTensorAttr().getAttr() : StringAttr();
  };
  for (auto [index, command] : llvm::enumerate(rt::getCommands(entry))) {
    unsigned number = index + 1;
    if (auto start = dyn_cast<rt::CollectiveStartOp>(command.getOperation())) {
      StringAttr tensor = getTensor(start.getMemory());
      if (tensor && start.getKind() == rt::Collective::AllReduce)
        found[tensor] = {start, {}, lastTouch.lookup(tensor), kEnd, nullptr};
      continue;
    }
    if (auto done = dyn_cast<rt::CollectiveDoneOp>(command.getOperation())) {
      if (StringAttr tensor = getTensor(done.getMemory()))
        found[tensor].done = done;
      continue;
    }
    noteViews(command, inseparable);
    if (auto take = dyn_cast<rt::SliceShardOp>(command.getOperation()))
      for (FlatSymbolRefAttr name : rt::getTensorNames(take.getMemory()))
        shardOf[name.getAttr()] = take.getShard() + 1;
    SmallVector<Value> touched;
    command.getReads(touched);
    command.getWrites(touched);
    for (Value value : touched)
      for (FlatSymbolRefAttr name : rt::getTensorNames(value)) {
        lastTouch[name.getAttr()] = number;
        auto reduction = found.find(name.getAttr());
        if (reduction == found.end() || reduction->second.reader)
          continue;
        reduction->second.need = number;
        reduction->second.reader = command;
      }
  }
  for (auto &[tensor, reduction] : found)
    reductionsOf[tensor].insert({entry, reduction});
}

/// Whether the tensor, which lies just before the bucket's, cannot be in
/// another one: of parts that ranks keep, each begins at a multiple of 64
/// bytes.
bool BucketAllReducePass::mustJoin(const Bucket &bucket, rt::TensorOp tensor) {
  if (ranks == 1)
    return false;
  auto getName = [](rt::TensorOp op) -> Attribute {
    return FlatSymbolRefAttr::get(op);
  };
  uint64_t bytes = 0;
  for (rt::TensorOp own : bucket.tensors)
    bytes += rt::getFlatViewBytes(own);
  return bytes % (rt::kFlatViewAlignment * ranks) != 0 ||
         inseparable.contains(
             {getName(tensor), getName(bucket.tensors.back())});
}

/// The share of a full bucket up to which a reduction takes about as long as an
/// empty one.
static constexpr uint64_t kSmallShare = 32;

/// Whether the tensor, which lies just before the bucket's, is complete
/// early enough for all of them, and no earlier than those, so that it need not
/// wait for them; waiting does not matter to what is small.
bool BucketAllReducePass::mayJoin(const Bucket &bucket, rt::TensorOp tensor,
                                  const Reductions &reductions) {
  uint64_t bytes = rt::getByteSize(tensor.getMemoryType());
  uint64_t limit = uint64_t(bucketMiB) << 20;
  bool isSmall = bucket.bytes + bytes <= limit / kSmallShare;
  rt::TensorOp next = bucket.tensors.back();
  bool isForced = mustJoin(bucket, tensor);
  if ((bucket.bytes + bytes > limit && !isForced) ||
      next.getRole() != tensor.getRole() ||
      shardOf.lookup(next.getSymNameAttr()) !=
          shardOf.lookup(tensor.getSymNameAttr()) ||
      reductions.size() != bucket.times.size())
    return false;
  return llvm::all_of(reductions, [&](auto &entry) {
    const Reduction &reduction = entry.second;
    auto times = bucket.times.find(entry.first);
    return times != bucket.times.end() &&
           (isSmall || isForced || reduction.ready >= times->second.first) &&
           std::max(reduction.ready, times->second.first) <
               std::min(reduction.need, times->second.second);
  });
}

/// Makes one reduction of those of a bucket, in every entry.
void BucketAllReducePass::merge(const Bucket &bucket) {
  ++numBuckets;
  if (bucket.tensors.size() == 1)
    return;
  SmallVector<Attribute> names;
  uint64_t bytes = 0;
  for (rt::TensorOp tensor : llvm::reverse(bucket.tensors)) {
    names.push_back(FlatSymbolRefAttr::get(tensor.getSymNameAttr()));
    bytes += rt::getFlatViewBytes(tensor);
  }
  for (Operation *entry : llvm::make_first_range(bucket.times)) {
    SmallVector<Reduction> parts;
    for (rt::TensorOp tensor : bucket.tensors)
      parts.push_back(reductionsOf[tensor.getSymNameAttr()].lookup(entry));
    Reduction &first = *llvm::min_element(
        parts, [](auto &a, auto &b) { return a.need < b.need; });
    OpBuilder builder(entry->getContext());
    if (first.reader)
      builder.setInsertionPoint(first.reader);
    else
      builder.setInsertionPointToEnd(&entry->getRegion(0).front());
    auto type = MemRefType::get({int64_t(bytes / 4)}, builder.getF32Type());
    Location loc = first.start.getLoc();
    Value view =
        rt::FlatViewOp::create(builder, loc, type, builder.getArrayAttr(names));
    rt::CollectiveStartOp::create(builder, loc, view);
    rt::CollectiveDoneOp::create(builder, loc, view);
    for (Reduction &part : parts) {
      Operation *get = part.start.getMemory().getDefiningOp();
      part.start.erase();
      part.done.erase();
      if (get->use_empty())
        get->erase();
    }
  }
}

/// Bytes of a bucket are counted in 64 bits.
static constexpr int64_t kMaxBucketMiB = int64_t(1) << 40;

void BucketAllReducePass::runOnOperation() {
  if (bucketMiB < 1 || bucketMiB > kMaxBucketMiB) {
    getOperation().emitError("bucket of ")
        << int64_t(bucketMiB) << " MiB, expected 1 to " << kMaxBucketMiB;
    return signalPassFailure();
  }
  reductionsOf.clear();
  shardOf.clear();
  inseparable.clear();
  for (auto entry : getOperation().getOps<rt::EntryOp>())
    collect(entry);
  SmallVector<rt::TensorOp> tensors;
  for (auto tensor : getOperation().getOps<rt::TensorOp>())
    if (!tensor.isIO())
      tensors.push_back(tensor);

  SmallVector<Bucket> buckets;
  bool adjacent = false;
  SmallVector<rt::TensorOp> order =
      getMemoryOrder(tensors, getFlatViews(getOperation()));
  for (rt::TensorOp tensor : llvm::reverse(order)) {
    auto found = reductionsOf.find(tensor.getSymNameAttr());
    if (found == reductionsOf.end()) {
      adjacent = false;
      continue;
    }
    const Reductions &reductions = found->second;
    if (!adjacent || !mayJoin(buckets.back(), tensor, reductions))
      buckets.emplace_back();
    adjacent = true;
    Bucket &bucket = buckets.back();
    bucket.tensors.push_back(tensor);
    bucket.bytes += rt::getByteSize(tensor.getMemoryType());
    for (auto &[entry, reduction] : reductions) {
      auto [times, isNew] =
          bucket.times.insert({entry, {reduction.ready, reduction.need}});
      times->second = {std::max(times->second.first, reduction.ready),
                       std::min(times->second.second, reduction.need)};
    }
  }
  for (const Bucket &bucket : buckets)
    merge(bucket);
  for (const Bucket &bucket : buckets)
    remark::analysis(getOperation().getLoc(),
                     remark::RemarkOpts::name("Bucket").category(DEBUG_TYPE))
        << remark::add("{0} tensors, {1} bytes", bucket.tensors.size(),
                       bucket.bytes);
}
