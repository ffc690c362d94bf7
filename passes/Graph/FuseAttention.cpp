//===- FuseAttention.cpp - branches of attention in fewer launches --------===//

#include "passes/Graph/FuseAttention.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/FusedAttention.h"
#include "passes/Graph/Passes.h"
#include "passes/Kernels/NSA/SelectedForms.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "nsa-fuse-attention"

namespace nsa {
#define GEN_PASS_DEF_FUSEATTENTION
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct FuseAttentionPass : nsa::impl::FuseAttentionBase<FuseAttentionPass> {
  using FuseAttentionBase::FuseAttentionBase;
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

/// Moves `ops`, in a legal order, into an `nsa.fused` before `position`. Its
/// results replace `results` for all other readers; unused ones of `ops` are
/// erased.
static void fuse(Operation *position, ArrayRef<Operation *> ops,
                 ArrayRef<Value> results) {
  llvm::SmallPtrSet<Operation *, 16> own(ops.begin(), ops.end());
  llvm::SetVector<Value> inputs;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (!own.contains(operand.getDefiningOp()))
        inputs.insert(operand);
  OpBuilder builder(position);
  auto fused =
      FusedOp::create(builder, position->getLoc(),
                      ValueRange(results).getTypes(), inputs.getArrayRef());
  Block &body = fused.getBody().emplaceBlock();
  IRMapping inside;
  for (Value input : inputs)
    inside.map(input, body.addArgument(input.getType(), input.getLoc()));
  builder.setInsertionPointToEnd(&body);
  for (Operation *op : ops)
    builder.clone(*op, inside);
  SmallVector<Value> yielded;
  for (auto [value, output] : llvm::zip_equal(results, fused.getOutputs())) {
    yielded.push_back(inside.lookup(value));
    Value replaced = value;
    replaced.replaceUsesWithIf(
        output, [&](OpOperand &use) { return !own.contains(use.getOwner()); });
  }
  YieldOp::create(builder, position->getLoc(), yielded);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
}

/// Whether the value has users other than `ops`.
static bool isReadElsewhere(Value value, ArrayRef<Operation *> ops) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    return !llvm::is_contained(ops, user);
  });
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

/// The attention whose output is `value`, null if there is none that may be
/// fused: to the blocks of indices, or to tokens.
static AttentionOp getBranch(Value value) {
  auto attention = value.getDefiningOp<AttentionOp>();
  bool isBranch =
      attention && value == attention.getOutput() &&
      (hasIndices(attention) || attention.getVisibility().attendsToTokens());
  return isBranch ? attention : nullptr;
}

/// Why the kernel of the sum cannot compute the branch, or nothing.
static StringRef findObstacle(CombineOp combine, AttentionOp branch) {
  if (isReadBefore(branch, combine))
    return "a branch is read before the branches are summed";
  // The operation that computes a branch cannot be given it.
  if (llvm::count(combine->getOperands(), branch.getOutput()) != 1)
    return "a branch is also another operand of the sum";
  return "";
}

/// The branches that the kernel of the sum can compute.
static SmallVector<AttentionOp> findBranches(CombineOp combine,
                                             bool fuseTokens) {
  SmallVector<AttentionOp> branches;
  AttentionOp selected;
  for (Value value : combine.getBranches()) {
    AttentionOp branch = getBranch(value);
    if (!branch || (!hasIndices(branch) && !fuseTokens))
      continue;
    StringRef obstacle = findObstacle(combine, branch);
    if (obstacle.empty() && hasIndices(branch) && selected)
      obstacle = "another branch attends to blocks of indices already";
    if (obstacle.empty()) {
      branches.push_back(branch);
      if (hasIndices(branch))
        selected = branch;
      continue;
    }
    reportFusion(branch, "Branches", obstacle);
    addPerformanceLints(combine, {kUnfusedPath});
  }
  if (!selected) {
    reportFusion(combine, "Branches",
                 "no branch attends to the blocks of indices");
    return {};
  }
  if (gathersQueries(selected)) {
    reportFusion(combine, "Branches",
                 "the selected branch gathers queries, which takes launches of "
                 "its own");
    return {};
  }
  llvm::erase_if(branches, [&](AttentionOp branch) {
    StringRef obstacle = findDifference(selected, branch);
    if (obstacle.empty())
      return false;
    reportFusion(branch, "Branches", obstacle);
    addPerformanceLints(combine, {kUnfusedPath});
    return true;
  });
  return branches;
}

static bool fuseForward(CombineOp combine, bool fuseTokens) {
  SmallVector<AttentionOp> branches = findBranches(combine, fuseTokens);
  if (branches.empty())
    return false;
  reportFusion(combine, "Branches", "");
  SmallVector<Operation *> ops;
  llvm::append_range(ops, branches);
  if (auto gate = combine.getGates().getDefiningOp<nn::GateOp>())
    ops.push_back(gate);
  ops.push_back(combine);
  SmallVector<Value> results = {combine.getOutput()};
  for (AttentionOp branch : branches)
    for (Value value : branch->getResults())
      if (isReadElsewhere(value, {combine}))
        results.push_back(value);
  fuse(combine, ops, results);
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
  /// Moves operands that stand after `combine`, because they are computed
  /// again, before it.
  LogicalResult moveOperands();
  /// Returns how many rotations of gradients the operation does.
  size_t replace();

  CombineBackwardOp combine;
  /// Null where a gradient of a branch has other readers.
  SmallVector<AttentionBackwardOp> branches;
  /// Null if the gradient of the gates themselves is wanted.
  nn::GateOp gate;
  nn::GateBackwardOp gateBackward;
  /// The sum of the gradients of the queries, if it is used.
  SmallVector<nn::AddOp> additions;
  Value queryGrad;
};
} // namespace

/// Whether `backward` is the gradient of `gate`, and one that a kernel of the
/// gradients has.
static bool isGradientOf(nn::GateBackwardOp backward, nn::GateOp gate) {
  return backward && gate && backward.getGates() == gate.getGates() &&
         backward.getActivation() == gate.getActivation() &&
         backward.getLogitsGrad().getType() == gate.getLogits().getType() &&
         (gate.getBias() || backward.getBiasGrad().use_empty());
}

BackwardMatch::BackwardMatch(CombineBackwardOp combine)
    : combine(combine), gate(combine.getGates().getDefiningOp<nn::GateOp>()),
      gateBackward(getOnlyReader<nn::GateBackwardOp>(combine.getGatesGrad())) {
  for (Value grad : combine.getBranchGrads())
    branches.push_back(getOnlyReader<AttentionBackwardOp>(grad));
  if (isGradientOf(gateBackward, gate))
    return;
  gate = nullptr;
  gateBackward = nullptr;
}

StringRef BackwardMatch::findObstacle() {
  AttentionBackwardOp selected;
  for (auto [branch, grad, output] : llvm::zip_equal(
           branches, combine.getBranchGrads(), combine.getBranches())) {
    if (!branch || branch.getOutputGrad() != grad)
      return "the gradient of a branch is not read by the gradient of its "
             "attention alone";
    if (branch.getOutput() != output)
      return "the gradient of a branch is taken with another output";
    if (!hasIndices(branch))
      continue;
    if (selected)
      return "two branches attend to blocks of indices";
    selected = branch;
  }
  if (!selected)
    return "no branch attends to the blocks of indices";
  SmallVector<Value> queryGrads;
  for (AttentionBackwardOp branch : branches) {
    StringRef difference = findDifference(selected, branch);
    if (!difference.empty())
      return difference;
    queryGrads.push_back(branch.getQueryGrad());
  }
  if (queryGrads.size() == 1)
    queryGrad = queryGrads.front();
  if (queryGrads.size() == 1 ||
      llvm::all_of(queryGrads, [](Value grad) { return grad.use_empty(); }))
    return "";
  auto sum = findSum(queryGrads);
  if (failed(sum))
    return "the gradients of the queries are not only summed";
  additions = std::move(*sum);
  queryGrad = additions.back().getOutput();
  return "";
}

LogicalResult BackwardMatch::moveOperands() {
  SmallVector<Value> operands;
  for (AttentionBackwardOp branch : branches) {
    operands.append({branch.getQuery(), branch.getKey(), branch.getValue(),
                     branch.getLse()});
    if (hasIndices(branch))
      operands.push_back(branch.getIndices());
    for (Value sequences : {branch.getStart(), branch.getAt()})
      if (sequences)
        operands.push_back(sequences);
  }
  if (gate)
    llvm::append_range(operands, gate->getOperands());
  IRRewriter rewriter(combine.getContext());
  return moveValueDefinitions(rewriter, operands, combine);
}

size_t BackwardMatch::replace() {
  SmallVector<Operation *> ops, rotations;
  rotations = findRotationsBack(queryGrad, branches, combine);
  if (gate)
    ops.push_back(gate);
  ops.push_back(combine);
  if (gateBackward)
    ops.push_back(gateBackward);
  llvm::append_range(ops, branches);
  llvm::append_range(ops, additions);
  llvm::append_range(ops, rotations);

  SmallVector<Value> results;
  auto addResult = [&](Value grad) {
    for (Operation *user : grad.getUsers())
      if (llvm::is_contained(rotations, user))
        return results.push_back(user->getResult(0));
    if (!grad.use_empty())
      results.push_back(grad);
  };
  if (queryGrad)
    addResult(queryGrad);
  for (AttentionBackwardOp branch : branches) {
    addResult(branch.getKeyGrad());
    addResult(branch.getValueGrad());
  }
  if (gateBackward)
    llvm::for_each(gateBackward->getResults(), addResult);
  else
    addResult(combine.getGatesGrad());
  fuse(combine, ops, results);
  return rotations.size();
}

/// The number of rotations that it made part of the operation, nothing if it
/// made none.
static std::optional<size_t> fuseBackward(CombineBackwardOp combine) {
  BackwardMatch match(combine);
  StringRef obstacle = match.findObstacle();
  if (obstacle.empty() && failed(match.moveOperands()))
    obstacle = "the gradient of a branch reads the gradient of another";
  reportFusion(combine, "Gradients", obstacle);
  if (!obstacle.empty()) {
    addPerformanceLints(combine, {kUnfusedPath});
    return std::nullopt;
  }
  return match.replace();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
/// Rows of blocks that attention is to, and gradients of them, if there are.
struct BlockRows {
  Value key, value, keyGrad, valueGrad;
};
} // namespace

/// The result of `fused` that a value inside is, or null.
static Value getResult(FusedOp fused, Value inside) {
  auto yielded = fused.getYielded();
  auto found = llvm::find(yielded, inside);
  return found == yielded.end() ? Value()
                                : fused.getOutputs()[found - yielded.begin()];
}

static SmallVector<BlockRows> getBlockRows(Operation *op) {
  SmallVector<BlockRows> rows;
  if (auto attention = dyn_cast<AttentionOp>(op);
      attention && !attention.getVisibility().attendsToTokens())
    rows.push_back({attention.getKey(), attention.getValue(), {}, {}});
  if (auto backward = dyn_cast<AttentionBackwardOp>(op);
      backward && !backward.getVisibility().attendsToTokens())
    rows.push_back({backward.getKey(), backward.getValue(),
                    backward.getKeyGrad(), backward.getValueGrad()});
  auto fused = dyn_cast<FusedOp>(op);
  if (!fused)
    return rows;
  for (auto inner : fused.getBody().getOps<AttentionBackwardOp>())
    if (!inner.getVisibility().attendsToTokens())
      rows.push_back(
          {fused.getOutside(inner.getKey()), fused.getOutside(inner.getValue()),
           getResult(fused, FusedGradients::getStored(inner.getKeyGrad())),
           getResult(fused, inner.getValueGrad())});
  return rows;
}

void FuseAttentionPass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (!function.getBody().hasOneBlock())
    return;
  MachineAttr machine = MachineAttr::of(function);
  for (auto op : llvm::make_early_inc_range(function.getOps<CombineOp>()))
    numBranches += fuseForward(op, !machine.isParallel());
  for (auto op :
       llvm::make_early_inc_range(function.getOps<CombineBackwardOp>())) {
    std::optional<size_t> rotations = fuseBackward(op);
    numGradients += rotations.has_value();
    numRotations += rotations.value_or(0);
  }

  // Operations move while compressions are fused: these stay.
  SmallVector<Operation *> attentions;
  for (Operation &op : function.front())
    if (!getBlockRows(&op).empty())
      attentions.push_back(&op);
  for (Operation *op : attentions)
    for (size_t i = 0; i < getBlockRows(op).size(); ++i) {
      BlockRows rows = getBlockRows(op)[i];
      numCompressions += fuseCompression(rows.key, rows.value);
    }
  for (Operation *op : attentions)
    for (BlockRows rows : getBlockRows(op))
      if (rows.keyGrad && rows.valueGrad)
        numCompressions +=
            fuseCompressionBackward(rows.keyGrad, rows.valueGrad);
  for (auto op : llvm::make_early_inc_range(function.getOps<AttentionOp>()))
    if (!op.getVisibility().attendsToTokens())
      numRotations += fuseRotation(op);
}
