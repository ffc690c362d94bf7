//===- FuseKernels.cpp - several operations in one kernel -----------------===//
//
// Operations that are to be one kernel form a cluster. Producers and consumers
// are joined pair by pair, then roots that walk alike; the operations of a
// cluster stand one after the other in the block, so that a cluster moves as
// one.
//
//===----------------------------------------------------------------------===//

#include "passes/Transforms/FuseKernels.h"
#include "dialects/Interfaces/FusionInterfaces.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

namespace {

struct Cluster {
  /// In the order of the block.
  SmallVector<Operation *> ops;
  /// Those that are not elementwise.
  SmallVector<Operation *> roots;

  Operation *front() const { return ops.front(); }
  Operation *back() const { return ops.back(); }
};

/// Tensors of a fused kernel at most: GPUs take a few hundred pointers, and a
/// root may have tensors of its own.
constexpr size_t kMostTensors = 128;

class KernelFuser {
public:
  explicit KernelFuser(func::FuncOp function) : function(function) {}

  unsigned run();

private:
  void joinProducer(OpOperand &use);
  void joinAlike(Cluster *first, ArrayRef<Cluster *> others);
  StringRef findObstacle(Cluster *producer, Cluster *consumer) const;
  bool hasManyTensors(Cluster *first, Cluster *second) const;
  bool canMerge(Cluster *first, Cluster *second) const;
  void merge(Cluster *first, Cluster *second);
  void report(Operation *op, Operation *other, StringRef obstacle);
  bool isReadBefore(Cluster *cluster, Cluster *reader) const;
  bool isKnownAt(Cluster *cluster, Cluster *place) const;
  bool isIn(Operation *op, Cluster *cluster) const {
    return op && clusters.lookup(op) == cluster;
  }
  void outline(Cluster *cluster);

  func::FuncOp function;
  SmallVector<std::unique_ptr<Cluster>> owned;
  DenseMap<Operation *, Cluster *> clusters;
  unsigned numFused = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Which operations are joined
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kManyTensors =
    "the kernel would have too many tensors";

/// Whether an operation outside of both reads the cluster before `reader`.
bool KernelFuser::isReadBefore(Cluster *cluster, Cluster *reader) const {
  return llvm::any_of(cluster->ops, [&](Operation *op) {
    return llvm::any_of(op->getUsers(), [&](Operation *user) {
      return !isIn(user, cluster) && !isIn(user, reader) &&
             user->isBeforeInBlock(reader->front());
    });
  });
}

/// Whether what the cluster reads is there at the end of `place`.
bool KernelFuser::isKnownAt(Cluster *cluster, Cluster *place) const {
  return llvm::all_of(cluster->ops, [&](Operation *op) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *producer = operand.getDefiningOp();
      return !producer || isIn(producer, cluster) || isIn(producer, place) ||
             producer->isBeforeInBlock(place->front());
    });
  });
}

/// Whether both can stand one after the other, `first` in front.
bool KernelFuser::canMerge(Cluster *first, Cluster *second) const {
  return !isReadBefore(first, second) || isKnownAt(second, first);
}

/// Whether a kernel of both would read and write too many tensors.
bool KernelFuser::hasManyTensors(Cluster *first, Cluster *second) const {
  auto isInside = [&](Operation *op) {
    return isIn(op, first) || isIn(op, second);
  };
  llvm::SmallDenseSet<Value, 16> tensors;
  for (Operation *op : llvm::concat<Operation *>(first->ops, second->ops)) {
    for (Value operand : op->getOperands())
      if (!isInside(operand.getDefiningOp()))
        tensors.insert(operand);
    for (Value result : op->getResults())
      if (!llvm::all_of(result.getUsers(), isInside))
        tensors.insert(result);
  }
  return tensors.size() > kMostTensors;
}

/// Makes one cluster of both, at the place of the second if that is possible.
void KernelFuser::merge(Cluster *first, Cluster *second) {
  if (!isReadBefore(first, second))
    for (Operation *op : first->ops)
      op->moveBefore(second->front());
  else
    for (Operation *op : llvm::reverse(second->ops))
      op->moveAfter(first->back());
  for (Operation *op : second->ops)
    clusters[op] = first;
  first->ops.append(second->ops);
  first->roots.append(second->roots);
  second->ops.clear();
  second->roots.clear();
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
StringRef KernelFuser::findObstacle(Cluster *producer,
                                    Cluster *consumer) const {
  for (Operation *op : consumer->ops)
    for (OpOperand &use : op->getOpOperands())
      if (isIn(use.get().getDefiningOp(), producer))
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
  Cluster *producer = clusters.lookup(other), *consumer = clusters.lookup(op);
  if (!producer || producer == consumer)
    return;
  StringRef obstacle = findObstacle(producer, consumer);
  if (obstacle.empty())
    merge(producer, consumer);
  report(op, other, obstacle);
}

/// Whether `second` reads what `first` computes, maybe through others.
static bool dependsOn(const Cluster &second, const Cluster &first) {
  SmallVector<Operation *> pending(second.ops);
  llvm::SmallPtrSet<Operation *, 16> seen(pending.begin(), pending.end());
  while (!pending.empty())
    for (Value operand : pending.pop_back_val()->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (!producer || producer->isBeforeInBlock(first.front()))
        continue;
      if (llvm::is_contained(first.ops, producer))
        return true;
      if (seen.insert(producer).second)
        pending.push_back(producer);
    }
  return false;
}

/// Joins roots that walk alike through different tensors with `first`. Only the
/// nearest that cannot join is worth a remark.
void KernelFuser::joinAlike(Cluster *first, ArrayRef<Cluster *> others) {
  bool isNearest = true;
  for (Cluster *second : others) {
    if (second->ops.empty())
      continue;
    Operation *op = second->roots.front(), *root = first->roots.front();
    if (!cast<FusibleOpInterface>(root).sharesWalkWith(op))
      continue;
    StringRef obstacle;
    if (!canMerge(first, second))
      obstacle = "another operation has to come between";
    else if (dependsOn(*second, *first))
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
  SmallVector<Location> locations, inputLocations;
  for (Operation *op : cluster->ops) {
    locations.push_back(op->getLoc());
    for (Value operand : op->getOperands())
      if (!isIn(operand.getDefiningOp(), cluster))
        inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(),
                       [&](Operation *user) { return !isIn(user, cluster); }))
        outputs.push_back(result);
  }
  if (outputs.empty()) {
    // Nothing needs what it computes.
    for (Operation *op : llvm::reverse(cluster->ops))
      op->erase();
    return;
  }
  for (Value input : inputs)
    inputLocations.push_back(input.getLoc());
  OpBuilder builder(cluster->front());
  // The kernel is found under the operation that takes most of its time.
  Location loc = cluster->roots.empty() ? cluster->back()->getLoc()
                                        : cluster->roots.front()->getLoc();
  auto fused = nn::FusedOp::create(builder, loc, ValueRange(outputs).getTypes(),
                                   inputs.getArrayRef());
  Block *body = builder.createBlock(&fused.getBody(), {},
                                    ValueRange(inputs.getArrayRef()).getTypes(),
                                    inputLocations);
  IRMapping mapping;
  mapping.map(inputs.getArrayRef(), body->getArguments());
  for (Operation *op : cluster->ops)
    builder.clone(*op, mapping);
  nn::YieldOp::create(builder, loc, llvm::map_to_vector(outputs, [&](Value v) {
                        return mapping.lookup(v);
                      }));
  for (auto [output, result] : llvm::zip_equal(outputs, fused.getOutputs()))
    output.replaceAllUsesWith(result);
  for (Operation *op : llvm::reverse(cluster->ops))
    op->erase();
}

unsigned KernelFuser::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : function.front()) {
    if (!isa<FusibleOpInterface>(op))
      continue;
    ops.push_back(&op);
    auto cluster = std::make_unique<Cluster>();
    cluster->ops.push_back(&op);
    if (!isa<ElementwiseOpInterface>(op))
      cluster->roots.push_back(&op);
    clusters[&op] = cluster.get();
    owned.push_back(std::move(cluster));
  }
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands())
      joinProducer(operand);
  SmallVector<Cluster *> rooted;
  for (auto &cluster : owned)
    if (!cluster->roots.empty())
      rooted.push_back(cluster.get());
  llvm::stable_sort(rooted, [](Cluster *a, Cluster *b) {
    return a->front()->isBeforeInBlock(b->front());
  });
  for (auto [index, first] : llvm::enumerate(rooted))
    if (!first->ops.empty())
      joinAlike(first, ArrayRef(rooted).drop_front(index + 1));
  for (auto &cluster : owned) {
    if (cluster->ops.size() < 2)
      continue;
    numFused += cluster->ops.size() - 1;
    outline(cluster.get());
  }
  return numFused;
}

unsigned nsa::fuseKernels(func::FuncOp function) {
  return KernelFuser(function).run();
}
