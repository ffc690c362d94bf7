//===- FusedAttention.cpp - what an nsa.fused holds -----------------------===//

#include "dialects/NSA/FusedAttention.h"
#include "dialects/Interfaces/YieldChecks.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// What sums and gradients share
//===----------------------------------------------------------------------===//

/// Puts `op` into the field for its kind.
template <typename... OpTs>
static LogicalResult place(Operation &op, OpTs &...places) {
  bool isKnown = false, isTaken = false;
  auto tryOne = [&](auto &own) {
    auto typed = dyn_cast<std::decay_t<decltype(own)>>(op);
    if (!typed)
      return;
    isKnown = true;
    isTaken = static_cast<bool>(own);
    own = typed;
  };
  (tryOne(places), ...);
  if (!isKnown)
    return op.emitOpError("cannot be fused");
  return isTaken ? op.emitOpError("is the second one of its kind in a kernel")
                 : success();
}

/// The operands of `op`, but those that are among `own`, come from outside.
static LogicalResult verifyInputs(Operation *op, ValueRange own = {}) {
  for (OpOperand &operand : op->getOpOperands())
    if (!isa<BlockArgument>(operand.get()) &&
        !llvm::is_contained(own, operand.get()))
      return op->emitOpError("operand ")
             << operand.getOperandNumber()
             << " is computed inside, where no kernel has it";
  return success();
}

/// Nobody reads `value` but `readers`.
static LogicalResult verifyReaders(Value value, ArrayRef<Operation *> readers) {
  for (Operation *user : value.getUsers())
    if (!llvm::is_contained(readers, user))
      return user->emitOpError("reads what '")
             << value.getDefiningOp()->getName() << "' gives inside";
  return success();
}

/// The rows of a kernel are those of the branch with indices, and all branches
/// are for these rows. `branches` may be null.
template <typename OpT>
static LogicalResult verifyBranches(FusedOp fused, ArrayRef<OpT> branches) {
  OpT selected;
  for (OpT branch : branches) {
    if (!branch || !hasIndices(branch))
      continue;
    if (selected)
      return branch.emitOpError("is the second branch with indices");
    selected = branch;
  }
  if (!selected)
    return fused.emitOpError("has no branch with indices");
  for (OpT branch : branches) {
    StringRef difference = branch ? findDifference(selected, branch) : "";
    if (!difference.empty())
      return branch.emitOpError("cannot be fused: ") << difference;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

FailureOr<FusedSum> FusedSum::get(FusedOp op) {
  FusedSum sum;
  SmallVector<AttentionOp> attentions;
  for (Operation &inner : op.getBody().front().without_terminator()) {
    if (auto attention = dyn_cast<AttentionOp>(inner))
      attentions.push_back(attention);
    else if (failed(place(inner, sum.combine, sum.gate)))
      return failure();
  }
  if (!sum.combine)
    return op.emitOpError("has no 'nsa.combine'");
  OperandRange branches = sum.combine.getBranches();
  sum.branches.resize(branches.size());
  for (AttentionOp attention : attentions) {
    Value output = attention.getOutput();
    if (failed(verifyInputs(attention)))
      return failure();
    if (llvm::count(sum.combine->getOperands(), output) != 1 ||
        sum.combine.getGates() == output)
      return attention.emitOpError("is not one branch of the sum");
    if (!hasIndices(attention) && !attention.getVisibility().attendsToTokens())
      return attention.emitOpError("attends to rows of blocks, which come "
                                   "before the selection");
    sum.branches[llvm::find(branches, output) - branches.begin()] = attention;
  }
  if (sum.gate && (failed(verifyInputs(sum.gate)) ||
                   failed(verifyReaders(sum.gate.getGates(), {sum.combine}))))
    return failure();
  if (sum.gate && llvm::is_contained(branches, sum.gate.getGates()))
    return sum.gate.emitOpError("is a branch of the sum");
  if (failed(verifyBranches<AttentionOp>(op, sum.branches)))
    return failure();
  return sum;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Value FusedGradients::getStored(Value grad) {
  if (!grad.hasOneUse())
    return grad;
  auto rotation = dyn_cast<nn::RotaryOp>(*grad.getUsers().begin());
  return rotation ? rotation.getOutput() : grad;
}

namespace {
/// What is still to be checked of the operations of a region.
struct GradientReader {
  LogicalResult sort();
  LogicalResult readBranches();
  LogicalResult readGates();
  LogicalResult readSum();
  LogicalResult readRotations();

  FusedOp fused;
  FusedGradients found = {};
  SmallVector<AttentionBackwardOp> attentions = {};
  SmallVector<nn::AddOp> additions = {};
  SmallVector<nn::RotaryOp> rotations = {};
};
} // namespace

LogicalResult GradientReader::sort() {
  for (Operation &op : fused.getBody().front().without_terminator()) {
    if (auto attention = dyn_cast<AttentionBackwardOp>(op))
      attentions.push_back(attention);
    else if (auto addition = dyn_cast<nn::AddOp>(op))
      additions.push_back(addition);
    else if (auto rotation = dyn_cast<nn::RotaryOp>(op))
      rotations.push_back(rotation);
    else if (failed(place(op, found.combine, found.gate, found.gateBackward)))
      return failure();
  }
  return success();
}

LogicalResult GradientReader::readBranches() {
  CombineBackwardOp combine = found.combine;
  OperandRange outputs = combine.getBranches();
  ResultRange grads = combine.getBranchGrads();
  found.branches.resize(outputs.size());
  for (AttentionBackwardOp attention : attentions) {
    auto grad = llvm::find(grads, attention.getOutputGrad());
    if (grad == grads.end() || !attention.getOutputGrad().hasOneUse())
      return attention.emitOpError("has not alone the gradient of a branch");
    size_t index = grad - grads.begin();
    if (attention.getOutput() != outputs[index])
      return attention.emitOpError("has another output than branch ")
             << index << " of the sum";
    if (failed(verifyInputs(attention, attention.getOutputGrad())))
      return failure();
    found.branches[index] = attention;
  }
  for (auto [index, branch] : llvm::enumerate(found.branches))
    if (!branch)
      return combine.emitOpError("has no gradient of the attention of branch ")
             << index;
  if (failed(verifyBranches<AttentionBackwardOp>(fused, found.branches)))
    return failure();
  found.start = found.branches.front().getStart();
  return success();
}

LogicalResult GradientReader::readGates() {
  CombineBackwardOp combine = found.combine;
  nn::GateOp gate = found.gate;
  nn::GateBackwardOp backward = found.gateBackward;
  SmallVector<Value> own;
  if (gate)
    own.push_back(gate.getGates());
  if (failed(verifyInputs(combine, own)))
    return failure();
  if (gate && combine.getGates() != gate.getGates())
    return gate.emitOpError("does not give the gates of the sum");
  if (gate && llvm::is_contained(combine.getBranches(), gate.getGates()))
    return gate.emitOpError("gives a branch of the sum");
  if (!backward)
    return gate ? gate.emitOpError("has no gradient") : success();
  if (!gate || backward.getGates() != gate.getGates() ||
      backward.getGatesGrad() != combine.getGatesGrad() ||
      backward.getActivation() != gate.getActivation())
    return backward.emitOpError("is not the gradient of the gates of the sum");
  if (backward.getPartialSums() ||
      backward.getLogitsGrad().getType() != gate.getLogits().getType())
    return backward.emitOpError("gives other sums or logits than the gates "
                                "have");
  if (!gate.getBias() && !backward.getBiasGrad().use_empty())
    return backward.emitOpError("gives the gradient of a bias that the gates "
                                "do not have");
  if (failed(verifyInputs(gate)) ||
      failed(verifyReaders(gate.getGates(), {combine, backward})))
    return failure();
  return verifyReaders(combine.getGatesGrad(), {backward});
}

/// A sum of all terms has each of them, and each partial sum, once.
LogicalResult GradientReader::readSum() {
  SmallVector<Value> terms =
      llvm::map_to_vector(found.branches, [](auto branch) -> Value {
        return branch.getQueryGrad();
      });
  if (additions.empty() && terms.size() > 1) {
    for (Value term : terms)
      if (!term.use_empty())
        return fused.emitOpError("does not add the gradients of the queries");
    return success();
  }
  for (nn::AddOp addition : additions) {
    for (Value operand : addition->getOperands())
      if (!llvm::is_contained(terms, operand) || !operand.hasOneUse())
        return addition.emitOpError("is not of the sum of the gradients of the "
                                    "queries");
    terms.push_back(addition.getOutput());
  }
  if (additions.size() + 1 != found.branches.size())
    return fused.emitOpError("does not add the gradients of all queries");
  found.queryGrad = terms.back();
  return success();
}

LogicalResult GradientReader::readRotations() {
  SmallVector<Value> tokens = {found.queryGrad}, blocks;
  SmallVector<int64_t> strides;
  for (AttentionBackwardOp branch : found.branches) {
    VisibilityAttrInterface visibility = branch.getVisibility();
    if (visibility.attendsToTokens()) {
      tokens.push_back(branch.getKeyGrad());
    } else {
      blocks.push_back(branch.getKeyGrad());
      strides.push_back(visibility.getKeyStride());
    }
  }
  size_t turned = 0;
  for (nn::RotaryOp rotation : rotations) {
    Value grad = rotation.getInput();
    auto *block = llvm::find(blocks, grad);
    int64_t stride =
        block == blocks.end() ? 1 : strides[block - blocks.begin()];
    bool isToken = block == blocks.end() && llvm::is_contained(tokens, grad);
    if ((block == blocks.end() && !isToken) || !grad.hasOneUse())
      return rotation.emitOpError("does not turn the gradient of rows");
    if (rotation.getAt())
      return rotation.emitOpError(
          "begins inside of longer sequences, whose rows "
          "no kernel of gradients turns back");
    if (!rotation.getInverse() ||
        static_cast<int64_t>(rotation.getStride()) != stride)
      return rotation.emitOpError("does not turn rows at a distance of ")
             << stride << " back";
    if (found.table && rotation.getTable() != found.table)
      return rotation.emitOpError("has other angles than others have");
    if (rotation.getStart() != found.start)
      return rotation.emitOpError("has another start than the attention");
    if (failed(verifyInputs(rotation, grad)))
      return failure();
    found.table = rotation.getTable();
    turned += isToken;
  }
  if (turned != 0 && turned != tokens.size())
    return fused.emitOpError("turns back ")
           << turned << " gradients of tokens, expected all " << tokens.size()
           << " or none";
  found.turnsTokens = turned != 0;
  return success();
}

FusedGradients FusedGradients::of(AttentionBackwardOp op) {
  FusedGradients found;
  found.branches = {op};
  found.queryGrad = op.getQueryGrad();
  found.start = op.getStart();
  return found;
}

FailureOr<FusedGradients> FusedGradients::get(FusedOp op) {
  GradientReader reader = {op};
  if (failed(reader.sort()))
    return failure();
  if (!reader.found.combine)
    return op.emitOpError("has no 'nsa.combine_backward'");
  if (failed(reader.readBranches()) || failed(reader.readGates()) ||
      failed(reader.readSum()) || failed(reader.readRotations()))
    return failure();
  return reader.found;
}

//===----------------------------------------------------------------------===//
// nsa.fused
//===----------------------------------------------------------------------===//

OperandRange FusedOp::getYielded() {
  return cast<YieldOp>(getBody().front().getTerminator()).getValues();
}

Value FusedOp::getOutside(Value argument) {
  return getInputs()[cast<BlockArgument>(argument).getArgNumber()];
}

Value nsa::getOutside(Operation *op, Value inside) {
  auto fused = dyn_cast<FusedOp>(op);
  return fused && inside ? fused.getOutside(inside) : inside;
}

bool FusedOp::isBackward() {
  return !getBody().front().getOps<CombineBackwardOp>().empty();
}

void FusedOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (!getOutputs().empty())
    setName(getOutputs().front(), "fused");
}

LogicalResult FusedOp::verify() {
  if (getInputs().getTypes() != getBody().getArgumentTypes())
    return emitOpError("has inputs of types ")
           << getInputs().getTypes() << ", but its body takes "
           << getBody().getArgumentTypes();
  return success();
}

LogicalResult FusedOp::verifyRegions() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield)
    return emitOpError("must end with 'nsa.yield'");
  if (failed(verifyYieldedValues(yield, getOutputs().getTypes())))
    return failure();
  if (isBackward())
    return FusedGradients::get(*this);
  FailureOr<FusedSum> sum = FusedSum::get(*this);
  if (failed(sum))
    return failure();
  if (yield.getValues().empty() ||
      yield.getValues().front() != sum->combine.getOutput())
    return yield.emitOpError("must give the sum first");
  return success();
}
