//===- Layers.cpp - the layers of a model, found in its graph -------------===//

#include "passes/Graph/Layers.h"

#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NN/NNAttributes.h"
#include "passes/Graph/FunctionUtils.h"

using namespace mlir;
using namespace nsa;

static bool isView(Operation *op) { return op->hasTrait<ViewOfOperand>(); }

Value nsa::getViewRoot(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

OperationGroup nsa::getForwardOps(func::FuncOp function) {
  OperationGroup forward;
  for (Operation &op : function.front().without_terminator())
    if (!isView(&op) && !isTagged(&op, kBackwardTag) &&
        !isTagged(&op, kRecomputeTag))
      forward.push_back(&op);
  return forward;
}

DenseSet<Operation *> nsa::findActivations(func::FuncOp function,
                                           ArrayRef<Operation *> forward) {
  DenseSet<Operation *> activations;
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
  return activations;
}

/// Cuts the activations wherever exactly one value is needed by what follows.
static SmallVector<OperationGroup>
findRanges(ArrayRef<Operation *> forward,
           const DenseSet<Operation *> &activations) {
  DenseMap<Value, Operation *> lastReaders;
  for (Operation *op : forward)
    if (activations.contains(op))
      for (Value operand : op->getOperands())
        lastReaders[getViewRoot(operand)] = op;

  SmallVector<OperationGroup> ranges(1);
  DenseSet<Value> live;
  for (Operation *op : forward) {
    if (!activations.contains(op))
      continue;
    ranges.back().push_back(op);
    for (Value operand : op->getOperands())
      if (Value root = getViewRoot(operand); lastReaders.lookup(root) == op)
        live.erase(root);
    for (Value result : op->getResults())
      if (lastReaders.contains(result))
        live.insert(result);
    if (live.size() == 1)
      ranges.emplace_back();
  }
  return ranges;
}

SmallVector<OperationGroup>
nsa::findLayers(ArrayRef<Operation *> forward,
                const DenseSet<Operation *> &activations) {
  auto keeps = [](Operation *op) { return op->hasTrait<KeptForBackward>(); };
  bool hasKept = llvm::any_of(forward, keeps);
  SmallVector<OperationGroup> layers;
  bool inside = false;
  for (const OperationGroup &range : findRanges(forward, activations)) {
    if (range.size() < 2) {
      inside = false;
      continue;
    }
    if (!inside || !hasKept || llvm::any_of(range, keeps))
      layers.emplace_back();
    layers.back().append(range);
    inside = true;
  }
  return layers;
}
