//===- FuseAttention.cpp - branches of attention in fewer launches --------===//

#include "passes/Transforms/FuseAttention.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/Interfaces/SlowPaths.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Transforms/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/RegionUtils.h"

#define DEBUG_TYPE "nsa-fuse-attention"

namespace nsa {
#define GEN_PASS_DEF_FUSEATTENTION
#include "passes/Transforms/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct FuseAttentionPass : nsa::impl::FuseAttentionBase<FuseAttentionPass> {
  void runOnOperation() override;
};
} // namespace

//===----------------------------------------------------------------------===//
// What the patterns share
//===----------------------------------------------------------------------===//

void nsa::reportFusion(Operation *op, StringRef name, StringRef obstacle) {
  auto function = op->getParentOfType<func::FuncOp>();
  auto options = remark::RemarkOpts::name(name)
                     .category(DEBUG_TYPE)
                     .function(function.getName());
  if (obstacle.empty())
    remark::passed(op->getLoc(), options) << remark::add("fused");
  else
    remark::missed(op->getLoc(), options) << remark::reason("{0}", obstacle);
}

bool nsa::isReadBefore(Operation *producer, Operation *op) {
  return llvm::any_of(producer->getUsers(), [&](Operation *user) {
    return user != op && user->isBeforeInBlock(op);
  });
}

namespace {
/// Where the gates of a sum of branches come from.
struct Gates {
  explicit Gates(Value value) : gates(value) {
    producer = value.getDefiningOp<nn::GateOp>();
    if (!producer)
      return;
    bool softmax = producer.getActivation() == nn::GateActivation::Softmax;
    gating = softmax ? Gating::Softmax : Gating::Sigmoid;
    gates = producer.getLogits();
    bias = producer.getBias();
  }

  Gating gating = Gating::Given;
  Value gates, bias;
  nn::GateOp producer;
};
} // namespace

static void eraseIfUnused(Operation *op) {
  if (op && op->use_empty())
    op->erase();
}

/// Why branches with these attributes cannot share rows, or nothing.
template <typename First, typename Second>
static StringRef findDifference(First first, Second second) {
  if (first.getQuery() != second.getQuery())
    return "the branches have different queries";
  if (first.getScaleOrDefault() != second.getScaleOrDefault())
    return "the branches have different scales";
  if (getDim(first.getKey(), 2) != getDim(second.getKey(), 2))
    return "the branches have different numbers of key heads";
  return "";
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

namespace {
/// The branches of a sum that `nsa.gated_attention` treats, by their order: one
/// to blocks, one to the blocks of indices, one to tokens.
enum Branch { Blocks, Indexed, Tokens, NumBranches };
} // namespace

/// Whether a branch attends to what `branch` does.
template <typename OpT>
static bool isOfBranch(OpT attention, Branch branch) {
  VisibilityAttrInterface visibility = attention.getVisibility();
  bool isIndexed = visibility.getIndexBlock() != 0;
  return visibility.attendsToTokens() == (branch != Blocks) &&
         isIndexed == (branch == Indexed);
}

/// The attention whose output is `value`, null if it is no such branch.
static AttentionOp getBranch(Value value, Branch branch) {
  auto attention = value.getDefiningOp<AttentionOp>();
  bool isBranch = attention && value == attention.getOutput() &&
                  isOfBranch(attention, branch);
  return isBranch ? attention : nullptr;
}

static StringRef findObstacle(CombineOp combine, AttentionOp selected,
                              AttentionOp window) {
  if (combine.getBranches().size() != NumBranches)
    return "a kernel of several branches is one of blocks, indexed blocks and "
           "tokens";
  if (!selected)
    return "the second branch is not attention to the blocks of indices";
  if (!window)
    return "the third branch is not attention to tokens";
  StringRef difference = findDifference(selected, window);
  if (!difference.empty())
    return difference;
  if (isReadBefore(selected, combine) || isReadBefore(window, combine))
    return "a branch is read before the branches are summed";
  // The operation that computes a branch cannot be given it.
  OperandRange branches = combine.getBranches();
  for (Value other : {Value(combine.getGates()), branches[Blocks]})
    if (other == branches[Indexed] || other == branches[Tokens])
      return "a branch is also another operand of the sum";
  return "";
}

static bool fuseForward(CombineOp combine) {
  OperandRange branches = combine.getBranches();
  AttentionOp selected, window;
  if (branches.size() == NumBranches) {
    selected = getBranch(branches[Indexed], Indexed);
    window = getBranch(branches[Tokens], Tokens);
  }
  StringRef obstacle = findObstacle(combine, selected, window);
  reportFusion(combine, "Branches", obstacle);
  if (!obstacle.empty()) {
    // A sum that is computed again has its branches from the first time.
    if (selected && window)
      addSlowPaths(combine, {kUnfusedPath});
    return false;
  }
  Gates gates(combine.getGates());
  auto isKept = [&](Operation *branch) {
    return llvm::any_of(branch->getUsers(),
                        [&](Operation *user) { return user != combine; });
  };
  bool keep = isKept(selected) || isKept(window);
  OpBuilder builder(combine);
  auto fused = GatedAttentionOp::create(
      builder, combine.getLoc(), gates.gating, selected.getQuery(),
      branches[Blocks], selected.getKey(), selected.getValue(),
      selected.getIndices(), window.getKey(), window.getValue(), gates.gates,
      gates.bias, keep, selected.getVisibility(), window.getVisibility(),
      selected.getScaleAttr());
  combine.getOutput().replaceAllUsesWith(fused.getOutput());
  combine.erase();
  if (keep) {
    selected.replaceAllUsesWith(fused.getKept().take_front(2));
    window.replaceAllUsesWith(fused.getKept().drop_front(2));
  }
  selected.erase();
  window.erase();
  eraseIfUnused(gates.producer);
  return true;
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

/// The additions that sum `terms`, in order; nothing if a partial sum or a term
/// has other readers.
static FailureOr<SmallVector<nn::AddOp>> findSum(SmallVector<Value> terms) {
  SmallVector<nn::AddOp> additions;
  while (terms.size() > 1) {
    bool found = false;
    for (Value term : terms) {
      auto addition = getOnlyReader<nn::AddOp>(term);
      if (!addition)
        return failure();
      Value other =
          addition.getLhs() == term ? addition.getRhs() : addition.getLhs();
      if (other == term || !llvm::is_contained(terms, other) ||
          !other.hasOneUse())
        continue;
      llvm::erase(terms, term);
      llvm::erase(terms, other);
      terms.push_back(addition.getOutput());
      additions.push_back(addition);
      found = true;
      break;
    }
    if (!found)
      return failure();
  }
  return additions;
}

namespace {
/// The gradients of the branches, of their sum and of the gates.
struct BackwardMatch {
  explicit BackwardMatch(CombineBackwardOp combine);

  /// Why they cannot become one operation, or nothing.
  StringRef findObstacle();
  /// Moves what is read, and stands behind `combine` because it is computed
  /// again, in front of it.
  LogicalResult moveOperands();
  void replace();

  CombineBackwardOp combine;
  /// Null if the sum has other branches.
  AttentionBackwardOp compressed, selected, window;
  Gates gates;
  /// Null if the gradient of the gates themselves is wanted.
  nn::GateBackwardOp gateBackward;
  /// The sum of the gradients of the queries.
  SmallVector<nn::AddOp> additions;

private:
  SmallVector<Value> getQueryGrads() {
    return {compressed.getQueryGrad(), selected.getQueryGrad(),
            window.getQueryGrad()};
  }
  bool hasQueryGrad() {
    return llvm::any_of(getQueryGrads(),
                        [](Value grad) { return !grad.use_empty(); });
  }
};
} // namespace

/// Whether `backward` is the gradient of `gate`, and one that
/// `nsa.gated_attention_backward` has.
static bool isGradientOf(nn::GateBackwardOp backward, nn::GateOp gate) {
  return backward && gate && backward.getGates() == gate.getGates() &&
         backward.getActivation() == gate.getActivation() &&
         backward.getLogitsGrad().getType() == gate.getLogits().getType() &&
         (gate.getBias() || backward.getBiasGrad().use_empty());
}

/// The gradient of a branch, if it alone reads that of the branch's output.
static AttentionBackwardOp getGradient(CombineBackwardOp combine,
                                       Branch branch) {
  auto backward =
      getOnlyReader<AttentionBackwardOp>(combine.getBranchGrads()[branch]);
  return backward && isOfBranch(backward, branch) ? backward : nullptr;
}

BackwardMatch::BackwardMatch(CombineBackwardOp combine)
    : combine(combine), gates(combine.getGates()),
      gateBackward(getOnlyReader<nn::GateBackwardOp>(combine.getGatesGrad())) {
  if (combine.getBranches().size() == NumBranches) {
    compressed = getGradient(combine, Blocks);
    selected = getGradient(combine, Indexed);
    window = getGradient(combine, Tokens);
  }
  if (isGradientOf(gateBackward, gates.producer))
    return;
  gateBackward = nullptr;
  gates.gating = Gating::Given;
  gates.gates = combine.getGates();
  gates.bias = Value();
}

StringRef BackwardMatch::findObstacle() {
  if (combine.getBranches().size() != NumBranches)
    return "a kernel of several branches is one of blocks, indexed blocks and "
           "tokens";
  if (!compressed || !selected || !window)
    return "the gradient of a branch is not read by the gradient of its "
           "attention alone";
  OperandRange branches = combine.getBranches();
  if (compressed.getOutput() != branches[Blocks] ||
      selected.getOutput() != branches[Indexed] ||
      window.getOutput() != branches[Tokens])
    return "the gradient of a branch is taken with another output";
  for (StringRef difference :
       {findDifference(selected, window), findDifference(selected, compressed)})
    if (!difference.empty())
      return difference;
  if (!hasQueryGrad())
    return "";
  auto sum = findSum(getQueryGrads());
  if (failed(sum))
    return "the gradients of the queries are not only summed";
  additions = std::move(*sum);
  return "";
}

LogicalResult BackwardMatch::moveOperands() {
  SmallVector<Value> operands = {
      compressed.getKey(), compressed.getValue(), compressed.getLse(),
      selected.getQuery(), selected.getKey(),     selected.getValue(),
      selected.getLse(),   selected.getIndices(), window.getKey(),
      window.getValue(),   window.getLse(),       gates.gates};
  if (gates.bias)
    operands.push_back(gates.bias);
  IRRewriter rewriter(combine.getContext());
  return moveValueDefinitions(rewriter, operands, combine);
}

void BackwardMatch::replace() {
  OpBuilder builder(combine);
  OperandRange branches = combine.getBranches();
  auto fused = GatedAttentionBackwardOp::create(
      builder, combine.getLoc(), gates.gating, combine.getOutputGrad(),
      selected.getQuery(), compressed.getKey(), compressed.getValue(),
      branches[Blocks], compressed.getLse(), selected.getKey(),
      selected.getValue(), branches[Indexed], selected.getLse(),
      selected.getIndices(), window.getKey(), window.getValue(),
      branches[Tokens], window.getLse(), gates.gates, gates.bias,
      /*table=*/Value(), compressed.getVisibility(), selected.getVisibility(),
      window.getVisibility(), /*rotate_tokens=*/false, selected.getScaleAttr());
  if (!additions.empty())
    additions.back().getOutput().replaceAllUsesWith(fused.getQueryGrad());
  for (nn::AddOp addition : llvm::reverse(additions))
    addition.erase();
  compressed.getKeyGrad().replaceAllUsesWith(fused.getCompressedKeyGrad());
  compressed.getValueGrad().replaceAllUsesWith(fused.getCompressedValueGrad());
  selected.getKeyGrad().replaceAllUsesWith(fused.getSelectedKeyGrad());
  selected.getValueGrad().replaceAllUsesWith(fused.getSelectedValueGrad());
  window.getKeyGrad().replaceAllUsesWith(fused.getWindowKeyGrad());
  window.getValueGrad().replaceAllUsesWith(fused.getWindowValueGrad());
  for (Operation *op : {compressed.getOperation(), selected.getOperation(),
                        window.getOperation()})
    op->erase();
  if (gateBackward) {
    gateBackward.getLogitsGrad().replaceAllUsesWith(fused.getGatesGrad());
    if (gates.bias)
      gateBackward.getBiasGrad().replaceAllUsesWith(fused.getBiasGrad());
    gateBackward.erase();
  } else {
    combine.getGatesGrad().replaceAllUsesWith(fused.getGatesGrad());
  }
  combine.erase();
  eraseIfUnused(gates.producer);
}

static bool fuseBackward(CombineBackwardOp combine) {
  BackwardMatch match(combine);
  StringRef obstacle = match.findObstacle();
  if (obstacle.empty() && failed(match.moveOperands()))
    obstacle = "the gradient of a branch reads the gradient of another";
  reportFusion(combine, "Gradients", obstacle);
  if (!obstacle.empty()) {
    addSlowPaths(combine, {kUnfusedPath});
    return false;
  }
  match.replace();
  return true;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Whether attention or its gradient is to blocks of tokens.
template <typename OpT>
static bool attendsToBlocks(OpT op) {
  return op && isOfBranch(op, Blocks);
}

/// The blocks of keys and values that an operation attends to, if it does.
static std::pair<Value, Value> getCompressed(Operation *op) {
  if (auto attention = dyn_cast<AttentionOp>(op); attendsToBlocks(attention))
    return {attention.getKey(), attention.getValue()};
  if (auto backward = dyn_cast<AttentionBackwardOp>(op);
      attendsToBlocks(backward))
    return {backward.getKey(), backward.getValue()};
  if (auto backward = dyn_cast<GatedAttentionBackwardOp>(op))
    return {backward.getCompressedKey(), backward.getCompressedValue()};
  return {};
}

void FuseAttentionPass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (!function.getBody().hasOneBlock())
    return;
  for (auto op : llvm::make_early_inc_range(function.getOps<CombineOp>()))
    numBranches += fuseForward(op);
  for (auto op :
       llvm::make_early_inc_range(function.getOps<CombineBackwardOp>()))
    numGradients += fuseBackward(op);

  // Operations move while compressions are fused: these stay.
  SmallVector<Operation *> attentions;
  for (Operation &op : function.front())
    if (getCompressed(&op).first)
      attentions.push_back(&op);
  for (Operation *op : attentions) {
    auto [key, value] = getCompressed(op);
    numCompressions += fuseCompression(key, value);
  }
  for (Operation *op : attentions) {
    if (auto backward = dyn_cast<GatedAttentionBackwardOp>(op)) {
      numRotations += fuseRotationsBack(backward);
      numCompressions += fuseCompressionBackward(
          backward.getCompressedKeyGrad(), backward.getCompressedValueGrad());
    } else if (auto backward = dyn_cast<AttentionBackwardOp>(op)) {
      numCompressions += fuseCompressionBackward(backward.getKeyGrad(),
                                                 backward.getValueGrad());
    }
  }
  for (auto op : llvm::make_early_inc_range(function.getOps<AttentionOp>()))
    if (attendsToBlocks(op))
      numRotations += fuseRotation(op);
}
