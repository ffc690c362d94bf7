//===- FuseKernels.cpp - several operations in one kernel -----------------===//
//
// Operations that are to be one kernel form a cluster. Producers and consumers
// are joined pair by pair, then roots that share an iteration space; the
// operations of a cluster stand one after the other in the block, so that a
// cluster moves as one.
//
//===----------------------------------------------------------------------===//

#include "passes/Graph/FuseKernels.h"
#include "dialects/Interfaces/FusionInterfaces.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

namespace {

/// Operations that stand one after the other in the block. An operation that is
/// in no kernel is a cluster too, so that clusters have an order.
struct Cluster {
  Operation *first = nullptr, *last = nullptr;
  size_t size = 1;
  bool isFusible = false;
  /// Position in the block: less than that of each cluster after it.
  size_t place = 0;
  /// Those that are not elementwise.
  SmallVector<Operation *> roots;
  /// What it reads of others, with the number of uses, and which of its results
  /// others read.
  llvm::SmallMapVector<Value, size_t, 4> inputs;
  llvm::SmallSetVector<Value, 2> outputs;
  /// The cluster that it became part of.
  Cluster *whole = nullptr;

  auto ops() const {
    return llvm::make_range(first->getIterator(),
                            std::next(last->getIterator()));
  }
};

/// Tensors of a fused kernel at most: GPUs take a few hundred pointers, and a
/// root may have tensors of its own.
constexpr size_t kMostTensors = 128;

class KernelFuser {
public:
  explicit KernelFuser(func::FuncOp function) : function(function) {}

  unsigned run();

private:
  void makeClusters();
  void joinProducer(OpOperand &use);
  void joinAlike(Cluster *first, ArrayRef<Cluster *> others);
  StringRef findObstacle(Cluster *producer, Cluster *consumer);
  bool hasManyTensors(Cluster *first, Cluster *second);
  bool canMerge(Cluster *first, Cluster *second);
  void merge(Cluster *first, Cluster *second);
  void report(Operation *op, Operation *other, StringRef obstacle);
  bool isReadBefore(Cluster *cluster, Cluster *reader);
  bool isKnownAt(Cluster *cluster, Cluster *place);
  bool dependsOn(Cluster *second, Cluster *first);
  void outline(Cluster *cluster);

  /// The cluster of an operation of the block.
  Cluster *find(Operation *op);
  /// The cluster that computes a value; null for arguments.
  Cluster *getProducer(Value value) {
    Operation *op = value.getDefiningOp();
    return op ? find(op) : nullptr;
  }

  func::FuncOp function;
  SmallVector<std::unique_ptr<Cluster>> owned;
  DenseMap<Operation *, Cluster *> clusters;
  /// Uses of a result by others than its cluster.
  DenseMap<Value, size_t> outsideUses;
  unsigned numFused = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Which operations are joined
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kManyTensors =
    "the kernel would have too many tensors";

/// Path compression of the union-find structure.
Cluster *KernelFuser::find(Operation *op) {
  Cluster *&known = clusters[op];
  Cluster *whole = known;
  while (whole->whole)
    whole = whole->whole;
  for (Cluster *part = known; part != whole;)
    part = std::exchange(part->whole, whole);
  return known = whole;
}

/// Whether an operation outside of both reads the cluster before `reader`.
bool KernelFuser::isReadBefore(Cluster *cluster, Cluster *reader) {
  return llvm::any_of(cluster->outputs, [&](Value output) {
    return llvm::any_of(output.getUsers(), [&](Operation *user) {
      Cluster *other = find(user);
      return other != cluster && other != reader &&
             other->place < reader->place;
    });
  });
}

/// Whether what the cluster reads is there at the end of `place`.
bool KernelFuser::isKnownAt(Cluster *cluster, Cluster *place) {
  return llvm::all_of(cluster->inputs, [&](auto &input) {
    Cluster *producer = getProducer(input.first);
    return !producer || producer == place || producer->place < place->place;
  });
}

/// Whether both can stand one after the other, `first` first.
bool KernelFuser::canMerge(Cluster *first, Cluster *second) {
  return !isReadBefore(first, second) || isKnownAt(second, first);
}

/// How often the cluster reads what another one computes.
static size_t countUses(Cluster *reader, Value output) {
  auto input = reader->inputs.find(output);
  return input == reader->inputs.end() ? 0 : input->second;
}

/// Whether a kernel of both would read and write too many tensors.
bool KernelFuser::hasManyTensors(Cluster *first, Cluster *second) {
  size_t tensors = 0;
  for (auto [cluster, other] : {std::pair(first, second), {second, first}}) {
    for (auto &[input, uses] : cluster->inputs)
      tensors += getProducer(input) != other &&
                 (cluster == first || !first->inputs.contains(input));
    for (Value output : cluster->outputs)
      tensors += outsideUses[output] > countUses(other, output);
  }
  return tensors > kMostTensors;
}

/// Merges both clusters, at the position of the second if that is possible.
void KernelFuser::merge(Cluster *first, Cluster *second) {
  Block::OpListType &ops = function.front().getOperations();
  if (!isReadBefore(first, second)) {
    ops.splice(second->first->getIterator(), ops, first->first->getIterator(),
               std::next(first->last->getIterator()));
    first->place = second->place;
  } else {
    ops.splice(std::next(first->last->getIterator()), ops,
               second->first->getIterator(),
               std::next(second->last->getIterator()));
  }
  for (auto [cluster, other] : {std::pair(first, second), {second, first}})
    for (Value output : cluster->outputs)
      outsideUses[output] -= countUses(other, output);
  second->whole = first;
  first->last = second->last;
  first->size += second->size;
  first->roots.append(second->roots);
  for (auto &[input, uses] : second->inputs)
    first->inputs[input] += uses;
  first->inputs.remove_if(
      [&](auto &input) { return getProducer(input.first) == first; });
  first->outputs.insert_range(second->outputs);
  first->outputs.remove_if(
      [&](Value output) { return outsideUses[output] == 0; });
}

void KernelFuser::report(Operation *op, Operation *other, StringRef obstacle) {
  auto options = remark::RemarkOpts::name("Kernel")
                     .category(DEBUG_TYPE)
                     .function(function.getName());
  StringRef name = other->getName().getStringRef();
  if (obstacle.empty())
    remark::passed(op->getLoc(), options)
        << remark::add("in one kernel with {0}", name);
  else
    remark::missed(op->getLoc(), options)
        << remark::reason("{0}: {1}", name, obstacle);
}

/// Why a value cannot be passed on within a kernel, or nothing.
static StringRef findObstacle(OpOperand &use) {
  auto result = cast<OpResult>(use.get());
  if (!cast<FusibleOpInterface>(result.getOwner())
           .isElementResult(result.getResultNumber()))
    return "the value is not computed element by element";
  if (!cast<FusibleOpInterface>(use.getOwner())
           .isElementOperand(use.getOperandNumber()))
    return "the value is not read element by element";
  return "";
}

/// Why the two are not joined, or nothing. The consumer may read several values
/// of the producer.
StringRef KernelFuser::findObstacle(Cluster *producer, Cluster *consumer) {
  for (Value output : producer->outputs)
    if (consumer->inputs.contains(output))
      for (OpOperand &use : output.getUses())
        if (find(use.getOwner()) == consumer)
          if (StringRef obstacle = ::findObstacle(use); !obstacle.empty())
            return obstacle;
  if (!producer->roots.empty() && !consumer->roots.empty())
    return "both are kernels that are not elementwise";
  if (!canMerge(producer, consumer))
    return "another operation has to come between";
  return hasManyTensors(producer, consumer) ? StringRef(kManyTensors) : "";
}

void KernelFuser::joinProducer(OpOperand &use) {
  Operation *op = use.getOwner(), *other = use.get().getDefiningOp();
  if (!other)
    return;
  Cluster *producer = find(other), *consumer = find(op);
  if (!producer->isFusible || producer == consumer)
    return;
  StringRef obstacle = findObstacle(producer, consumer);
  if (obstacle.empty())
    merge(producer, consumer);
  report(op, other, obstacle);
}

/// Whether `second` reads what `first` computes, directly or through others.
bool KernelFuser::dependsOn(Cluster *second, Cluster *first) {
  SmallVector<Cluster *> pending = {second};
  llvm::SmallPtrSet<Cluster *, 16> seen = {second};
  while (!pending.empty())
    for (auto &[input, uses] : pending.pop_back_val()->inputs) {
      Cluster *producer = getProducer(input);
      if (producer == first)
        return true;
      if (producer && producer->place > first->place &&
          seen.insert(producer).second)
        pending.push_back(producer);
    }
  return false;
}

/// Joins roots that share an iteration space through different tensors with
/// `first`. Only the nearest that cannot join is worth a remark.
void KernelFuser::joinAlike(Cluster *first, ArrayRef<Cluster *> others) {
  bool isNearest = true;
  for (Cluster *second : others) {
    if (second->whole)
      continue;
    Operation *op = second->roots.front(), *root = first->roots.front();
    if (!cast<FusibleOpInterface>(root).sharesIterationSpace(op))
      continue;
    StringRef obstacle;
    if (!canMerge(first, second))
      obstacle = "another operation has to come between";
    else if (dependsOn(second, first))
      obstacle = "one needs the other";
    else if (hasManyTensors(first, second))
      obstacle = kManyTensors;
    else
      merge(first, second);
    if (obstacle.empty() || isNearest)
      report(op, root, obstacle);
    isNearest &= obstacle.empty();
  }
}

//===----------------------------------------------------------------------===//
// Fused operations
//===----------------------------------------------------------------------===//

void KernelFuser::outline(Cluster *cluster) {
  llvm::SetVector<Value> inputs;
  SmallVector<Value> outputs;
  llvm::SetVector<Operation *> ops;
  SmallVector<Location> locations, inputLocations;
  for (Operation &op : cluster->ops()) {
    ops.insert(&op);
    locations.push_back(op.getLoc());
    for (Value operand : op.getOperands())
      if (!ops.contains(operand.getDefiningOp()))
        inputs.insert(operand);
    for (Value result : op.getResults())
      if (cluster->outputs.contains(result))
        outputs.push_back(result);
  }
  if (outputs.empty()) {
    // Nothing needs what it computes.
    for (Operation *op : llvm::reverse(ops))
      op->erase();
    return;
  }
  for (Value input : inputs)
    inputLocations.push_back(input.getLoc());
  OpBuilder builder(ops.front());
  // The kernel is found under the operation that takes most of its time.
  Location loc = cluster->roots.empty() ? ops.back()->getLoc()
                                        : cluster->roots.front()->getLoc();
  auto fused = nn::FusedOp::create(builder, loc, ValueRange(outputs).getTypes(),
                                   inputs.getArrayRef());
  Block *body = builder.createBlock(&fused.getBody(), {},
                                    ValueRange(inputs.getArrayRef()).getTypes(),
                                    inputLocations);
  IRMapping mapping;
  mapping.map(inputs.getArrayRef(), body->getArguments());
  for (Operation *op : ops)
    builder.clone(*op, mapping);
  nn::YieldOp::create(builder, loc, llvm::map_to_vector(outputs, [&](Value v) {
                        return mapping.lookup(v);
                      }));
  for (auto [output, result] : llvm::zip_equal(outputs, fused.getOutputs()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(ops))
    op->erase();
}

void KernelFuser::makeClusters() {
  for (Operation &op : function.front()) {
    auto cluster = std::make_unique<Cluster>();
    cluster->first = cluster->last = &op;
    cluster->place = owned.size();
    cluster->isFusible = isa<FusibleOpInterface>(op);
    if (cluster->isFusible && !isa<ElementwiseOpInterface>(op))
      cluster->roots.push_back(&op);
    for (Value operand : op.getOperands())
      ++cluster->inputs[operand];
    for (Value result : op.getResults())
      if (size_t uses = std::distance(result.use_begin(), result.use_end())) {
        outsideUses[result] = uses;
        cluster->outputs.insert(result);
      }
    clusters[&op] = cluster.get();
    owned.push_back(std::move(cluster));
  }
}

unsigned KernelFuser::run() {
  makeClusters();
  SmallVector<Operation *> ops;
  for (Operation &op : function.front())
    if (find(&op)->isFusible)
      ops.push_back(&op);
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands())
      joinProducer(operand);
  SmallVector<Cluster *> rooted;
  for (auto &cluster : owned)
    if (!cluster->whole && !cluster->roots.empty())
      rooted.push_back(cluster.get());
  llvm::stable_sort(rooted,
                    [](Cluster *a, Cluster *b) { return a->place < b->place; });
  for (auto [index, first] : llvm::enumerate(rooted))
    if (!first->whole)
      joinAlike(first, ArrayRef(rooted).drop_front(index + 1));
  for (auto &cluster : owned) {
    if (cluster->whole || cluster->size < 2)
      continue;
    numFused += cluster->size - 1;
    outline(cluster.get());
  }
  return numFused;
}

unsigned nsa::fuseKernels(func::FuncOp function) {
  return KernelFuser(function).run();
}
