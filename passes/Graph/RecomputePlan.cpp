//===- RecomputePlan.cpp - which forward values backward recomputes -------===//

#include "passes/Graph/RecomputePlan.h"

#include "dialects/Interfaces/RecomputeTraits.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Layers.h"
#include "passes/Support/Debug.h"

#define DEBUG_TYPE "nsa-recompute"

using namespace mlir;
using namespace nsa;

static bool isView(Operation *op) { return op->hasTrait<ViewOfOperand>(); }

static bool isCheap(Operation *op) { return op->hasTrait<CheapToRecompute>(); }

static bool isAlwaysKept(Operation *op) {
  return op->hasTrait<KeptForBackward>() || op->getNumOperands() == 0;
}

/// Bytes of memory that a value needs of its own: none if it is no tensor.
static uint64_t getBytes(Value value) {
  if (Operation *op = value.getDefiningOp();
      op && op->hasTrait<ViewOfArguments>())
    return 0;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return 0;
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

//===----------------------------------------------------------------------===//
// The two halves
//===----------------------------------------------------------------------===//

RecomputePlan::RecomputePlan(func::FuncOp function, uint64_t budget)
    : function(function), budget(budget) {
  for (Operation &op : function.front().without_terminator()) {
    if (isTagged(&op, kBackwardTag))
      backward.push_back(&op);
    else if (!isView(&op))
      forward.push_back(&op);
  }
  activations = findActivations(function, forward);
  for (Value value : function.front().getTerminator()->getOperands())
    returned.insert(getViewRoot(value));
  findSaved();
}

void RecomputePlan::findSaved() {
  for (Operation *op : backward)
    for (Value operand : op->getOperands()) {
      Value root = getViewRoot(operand);
      Operation *producer = root.getDefiningOp();
      if (producer && !isTagged(producer, kBackwardTag) && saved.insert(root))
        keptBytes += getBytes(root);
    }
}

bool RecomputePlan::isReturned(Operation *op) const {
  return llvm::any_of(op->getResults(),
                      [&](Value value) { return returned.contains(value); });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// Adds the values from which `op` can be computed again and the operations
/// that this takes.
void RecomputePlan::collect(Operation *op,
                            function_ref<bool(Operation *)> mayClone,
                            Frontier &frontier) const {
  if (!frontier.clones.insert(op))
    return;
  for (Value operand : op->getOperands()) {
    Value root = getViewRoot(operand);
    Operation *producer = root.getDefiningOp();
    if (producer && !kept.contains(root) && mayClone(producer))
      collect(producer, mayClone, frontier);
    else
      frontier.leaves.insert(root);
  }
}

void RecomputePlan::consider(ArrayRef<Operation *> group,
                             function_ref<bool(Operation *)> mayClone) {
  if (fitsBudget())
    return;
  Frontier frontier;
  uint64_t dropped = 0, added = 0;
  SmallVector<Value> results;
  for (Operation *op : group)
    for (Value result : op->getResults())
      if (saved.contains(result) && !kept.contains(result) && mayClone(op) &&
          !selected.contains(op)) {
        collect(op, mayClone, frontier);
        results.push_back(result);
        dropped += getBytes(result);
      }
  for (Value leaf : frontier.leaves)
    if (leaf.getDefiningOp() && !kept.contains(leaf) && !saved.contains(leaf))
      added += getBytes(leaf);
  if (results.empty())
    return;
  Operation *first = results.front().getDefiningOp();
  if (added >= dropped) {
    NSA_DEBUG() << first << " is kept: computing " << results.size()
                << " results again would keep " << added << " bytes instead of "
                << dropped;
    kept.insert_range(results);
    return;
  }
  NSA_DEBUG() << first << " is computed again: " << frontier.clones.size()
              << " operations keep " << added << " bytes instead of "
              << dropped;
  selected.insert_range(frontier.clones);
  kept.insert_range(frontier.leaves);
  keptBytes = keptBytes - dropped + added;
}

bool RecomputePlan::selectBlocks(size_t most) {
  auto layers = findLayers(forward, activations);
  for (const OperationGroup &block :
       ArrayRef(layers).take_front(std::min(most, layers.size()))) {
    DenseSet<Operation *> inside(block.begin(), block.end());
    // The next layer starts from the output.
    inside.erase(block.back());
    consider(block, [&](Operation *op) {
      bool isWeight = isCheap(op) && !activations.contains(op);
      return (inside.contains(op) || isWeight) && !isAlwaysKept(op) &&
             !isReturned(op);
    });
  }
  return most <= layers.size();
}

void RecomputePlan::selectCheap() {
  auto mayClone = [&](Operation *op) {
    return isCheap(op) && !isAlwaysKept(op) && !isReturned(op);
  };
  for (Value value : saved)
    if (Operation *op = value.getDefiningOp();
        !selected.contains(op) && !mayClone(op))
      kept.insert(value);
  for (Operation *op : forward)
    if (mayClone(op))
      consider(op, mayClone);
}
