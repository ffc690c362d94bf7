//===- RecomputePlan.cpp - which forward values backward recomputes -------===//

#include "passes/Transforms/RecomputePlan.h"

#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NN/NNAttributes.h"
#include "passes/Transforms/FunctionUtils.h"

using namespace mlir;
using namespace nsa;

static bool isView(Operation *op) { return op->hasTrait<ViewOfOperand>(); }

static bool isCheap(Operation *op) { return op->hasTrait<CheapToRecompute>(); }

static bool isAlwaysKept(Operation *op) {
  return op->hasTrait<KeptForBackward>() || op->getNumOperands() == 0;
}

Value nsa::getViewRoot(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

static uint64_t getBytes(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
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
  for (Value value : function.front().getTerminator()->getOperands())
    returned.insert(getViewRoot(value));
  findSaved();
  findActivations();
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

void RecomputePlan::findActivations() {
  auto isInput = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument)
      return activations.contains(value.getDefiningOp());
    std::optional<nn::ArgumentRole> role =
        nn::getArgumentRole(function, argument.getArgNumber());
    return !role || *role == nn::ArgumentRole::Input;
  };
  for (Operation *op : forward)
    if (llvm::any_of(op->getOperands(), [&](Value operand) {
          return isInput(getViewRoot(operand));
        }))
      activations.insert(op);
}

bool RecomputePlan::isReturned(Operation *op) const {
  return llvm::any_of(op->getResults(),
                      [&](Value value) { return returned.contains(value); });
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

/// Cuts the activations wherever exactly one value is needed by what follows.
SmallVector<RecomputePlan::Group> RecomputePlan::findStretches() const {
  DenseMap<Value, Operation *> lastReaders;
  for (Operation *op : forward)
    if (activations.contains(op))
      for (Value operand : op->getOperands())
        lastReaders[getViewRoot(operand)] = op;

  SmallVector<Group> stretches(1);
  DenseSet<Value> live;
  for (Operation *op : forward) {
    if (!activations.contains(op))
      continue;
    stretches.back().push_back(op);
    for (Value operand : op->getOperands())
      if (Value root = getViewRoot(operand); lastReaders.lookup(root) == op)
        live.erase(root);
    for (Value result : op->getResults())
      if (lastReaders.contains(result))
        live.insert(result);
    if (live.size() == 1)
      stretches.emplace_back();
  }
  return stretches;
}

SmallVector<RecomputePlan::Group> RecomputePlan::findBlocks() const {
  auto keeps = [](Operation *op) { return op->hasTrait<KeptForBackward>(); };
  bool hasKept = llvm::any_of(forward, keeps);
  SmallVector<Group> blocks;
  bool inside = false;
  for (const Group &stretch : findStretches()) {
    if (stretch.size() < 2) {
      inside = false;
      continue;
    }
    if (!inside || !hasKept || llvm::any_of(stretch, keeps))
      blocks.emplace_back();
    blocks.back().append(stretch);
    inside = true;
  }
  return blocks;
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
  if (added >= dropped) {
    kept.insert_range(results);
    return;
  }
  selected.insert_range(frontier.clones);
  kept.insert_range(frontier.leaves);
  keptBytes = keptBytes - dropped + added;
}

void RecomputePlan::selectBlocks() {
  for (const Group &block : findBlocks()) {
    DenseSet<Operation *> inside(block.begin(), block.end());
    // The next layer starts from the output.
    inside.erase(block.back());
    consider(block, [&](Operation *op) {
      bool isWeight = isCheap(op) && !activations.contains(op);
      return (inside.contains(op) || isWeight) && !isAlwaysKept(op) &&
             !isReturned(op);
    });
  }
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
