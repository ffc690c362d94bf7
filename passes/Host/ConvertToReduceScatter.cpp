//===- ConvertToReduceScatter.cpp - reduce only the part of each rank -----===//

#include "dialects/RT/RTOps.h"
#include "passes/Host/Passes.h"

#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "nsa-convert-to-reduce-scatter"

namespace nsa {
#define GEN_PASS_DEF_CONVERTTOREDUCESCATTER
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

using Names = SmallVector<FlatSymbolRefAttr>;

namespace {
/// Elements of each bucket of a shard and the number of its tensors, in the
/// order of memory.
using Cuts = SmallVector<std::pair<int64_t, size_t>>;

/// What an entry does with a shard.
struct Shard {
  rt::SliceShardOp gradient, weight;
  rt::WriteShardOp put;
  rt::CollectiveStartOp gather;
  rt::CollectiveDoneOp gathered;
  /// The reductions of the gradients, in the order of memory.
  SmallVector<std::pair<rt::CollectiveStartOp, rt::CollectiveDoneOp>>
      reductions;
  Cuts cuts;
};

struct ConvertToReduceScatterPass
    : nsa::impl::ConvertToReduceScatterBase<ConvertToReduceScatterPass> {
  using ConvertToReduceScatterBase::ConvertToReduceScatterBase;
  void runOnOperation() override;

private:
  bool isGradient(Value memory);
  void collect(rt::EntryOp entry);
  StringRef findObstacle(rt::EntryOp entry, Shard &shard);
  void cut(Shard &shard);

  std::optional<SymbolTable> symbols;
  /// By number; one for each entry.
  llvm::MapVector<uint64_t, SmallVector<std::pair<rt::EntryOp, Shard>>> shards;
};
} // namespace

bool ConvertToReduceScatterPass::isGradient(Value memory) {
  Names names = rt::getTensorNames(memory);
  return !names.empty() &&
         symbols->lookup<rt::TensorOp>(names.front().getAttr()).getRole() ==
             rt::TensorRole::Gradient;
}

void ConvertToReduceScatterPass::collect(rt::EntryOp entry) {
  llvm::MapVector<uint64_t, Shard> found;
  for (auto take : entry.getOps<rt::SliceShardOp>()) {
    Shard &shard = found[take.getShard()];
    bool ofGradient = isGradient(take.getMemory());
    (ofGradient ? shard.gradient : shard.weight) = take;
  }
  for (auto put : entry.getOps<rt::WriteShardOp>()) {
    Shard &shard = found[put.getShard()];
    shard.put = put;
    for (Operation *user : put.getMemory().getUsers()) {
      if (auto start = dyn_cast<rt::CollectiveStartOp>(user))
        shard.gather = start;
      if (auto done = dyn_cast<rt::CollectiveDoneOp>(user))
        shard.gathered = done;
    }
  }
  for (auto &[number, shard] : found)
    shards[number].push_back({entry, shard});
}

/// Whether something besides the shard reads what `done` leaves.
static bool isReadElsewhere(rt::SliceShardOp take, rt::CollectiveDoneOp done) {
  for (Operation *op = done->getNextNode(); op; op = op->getNextNode()) {
    auto command = dyn_cast<rt::CommandOpInterface>(op);
    if (!command || op == take.getOperation())
      continue;
    SmallVector<Value> read;
    command.getReads(read);
    if (llvm::any_of(read, [&](Value value) {
          return rt::shareTensors(value, done.getMemory());
        }))
      return true;
  }
  return false;
}

/// Finds the reductions that together are the gradients of the shard. Returns
/// why only parts of them would not do; empty if they would.
StringRef ConvertToReduceScatterPass::findObstacle(rt::EntryOp entry,
                                                   Shard &shard) {
  if (!shard.gradient || !shard.weight || !shard.put || !shard.gather)
    return "not all of it is in one entry";
  DenseMap<StringAttr, rt::CollectiveStartOp> starts;
  DenseMap<Value, rt::CollectiveDoneOp> ends;
  for (auto start : entry.getOps<rt::CollectiveStartOp>())
    if (start.getKind() == rt::Collective::AllReduce)
      for (FlatSymbolRefAttr name : rt::getTensorNames(start.getMemory()))
        starts[name.getAttr()] = start;
  for (auto done : entry.getOps<rt::CollectiveDoneOp>())
    ends[done.getMemory()] = done;
  Names names = rt::getTensorNames(shard.gradient.getMemory());
  for (size_t i = 0; i < names.size();) {
    rt::CollectiveStartOp start = starts.lookup(names[i].getAttr());
    if (!start)
      return "a gradient is not reduced";
    Names own = rt::getTensorNames(start.getMemory());
    if (ArrayRef(names).slice(i).take_front(own.size()) != ArrayRef(own))
      return "a bucket has other tensors as well";
    rt::CollectiveDoneOp done = ends.lookup(start.getMemory());
    if (isReadElsewhere(shard.gradient, done))
      return "a gradient has another reader";
    int64_t bytes = 0;
    for (FlatSymbolRefAttr name : own)
      bytes += int64_t(
          rt::getFlatViewBytes(symbols->lookup<rt::TensorOp>(name.getAttr())));
    shard.reductions.push_back({start, done});
    shard.cuts.push_back({bytes / 4, own.size()});
    i += own.size();
  }
  return {};
}

/// The memory of each bucket among the tensors that `whole` shows.
static SmallVector<Value> getFlatViews(OpBuilder &builder, Value whole,
                                       const Cuts &cuts) {
  Names names = rt::getTensorNames(whole);
  SmallVector<Value> views;
  size_t first = 0;
  for (auto [elements, count] : cuts) {
    SmallVector<Attribute> own(names.begin() + first,
                               names.begin() + first + count);
    views.push_back(rt::FlatViewOp::create(
        builder, whole.getLoc(),
        MemRefType::get({elements}, builder.getF32Type()),
        builder.getArrayAttr(own)));
    first += count;
  }
  return views;
}

/// What the rank has of each bucket, in memory for all of them.
static SmallVector<Value> getParts(OpBuilder &builder, Value part,
                                   const Cuts &cuts, int64_t ranks) {
  SmallVector<Value> parts;
  int64_t offset = 0;
  for (auto [elements, count] : cuts) {
    auto type = MemRefType::get({elements / ranks}, builder.getF32Type());
    parts.push_back(rt::ViewOp::create(builder, part.getLoc(), type, part,
                                       builder.getI64IntegerAttr(offset)));
    offset += elements / ranks;
  }
  return parts;
}

/// Cuts all commands of a shard at the buckets, and reduces only parts.
void ConvertToReduceScatterPass::cut(Shard &shard) {
  IntegerAttr ranksAttr = shard.gather.getRanksAttr();
  int64_t ranks = ranksAttr.getInt();
  for (auto [reduction, bucket] :
       llvm::zip_equal(shard.reductions, shard.cuts)) {
    auto [start, done] = reduction;
    OpBuilder builder(start);
    Value whole =
        getFlatViews(builder, start.getMemory(), Cuts{bucket}).front();
    start.getMemoryMutable().assign(whole);
    done.getMemoryMutable().assign(whole);
    start.setKind(rt::Collective::ReduceScatter);
    start.setRanksAttr(ranksAttr);
    ++numScattered;
  }
  for (rt::SliceShardOp take : {shard.gradient, shard.weight}) {
    OpBuilder builder(take);
    for (auto [view, part] :
         llvm::zip_equal(getFlatViews(builder, take.getMemory(), shard.cuts),
                         getParts(builder, take.getPart(), shard.cuts, ranks)))
      rt::SliceShardOp::create(builder, take.getLoc(), view, part,
                               take.getShard());
    take.erase();
  }
  OpBuilder builder(shard.put);
  Location loc = shard.put.getLoc();
  SmallVector<Value> views =
      getFlatViews(builder, shard.put.getMemory(), shard.cuts);
  for (auto [view, part] : llvm::zip_equal(
           views, getParts(builder, shard.put.getPart(), shard.cuts, ranks)))
    rt::WriteShardOp::create(builder, loc, part, view, shard.put.getShard());
  for (Value view : views)
    rt::CollectiveStartOp::create(builder, loc, rt::Collective::AllGather, view,
                                  ranksAttr);
  for (Value view : views)
    rt::CollectiveDoneOp::create(builder, loc, view);
  for (Operation *op : {shard.put.getOperation(), shard.gather.getOperation(),
                        shard.gathered.getOperation()})
    op->erase();
}

void ConvertToReduceScatterPass::runOnOperation() {
  symbols.emplace(getOperation());
  shards.clear();
  for (auto entry : getOperation().getOps<rt::EntryOp>())
    collect(entry);
  for (auto &[number, list] : shards) {
    StringRef obstacle;
    for (auto &[entry, shard] : list) {
      if (obstacle.empty())
        obstacle = findObstacle(entry, shard);
      if (obstacle.empty() && shard.cuts != list.front().second.cuts)
        obstacle = "entries have other buckets";
    }
    if (obstacle.empty()) {
      for (auto &[entry, shard] : list)
        cut(shard);
      continue;
    }
    remark::missed(getOperation().getLoc(),
                   remark::RemarkOpts::name("Scatter").category(DEBUG_TYPE))
        << remark::reason("shard {0}: {1}", number, obstacle);
  }
}
