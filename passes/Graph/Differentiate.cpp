//===- Differentiate.cpp - reverse-mode differentiation -------------------===//

#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"
#include "passes/Support/Debug.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/RegionUtils.h"

#define DEBUG_TYPE "nsa-differentiate"

namespace nsa {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// Tags every operation that is built with "backward".
struct BackwardTagger : OpBuilder::Listener {
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    op->setLoc(tagLocation(op->getLoc(), kBackwardTag));
  }
};

/// Appends gradients to one function.
class Differentiator {
public:
  explicit Differentiator(func::FuncOp function)
      : function(function), builder(function.getContext(), &tagger) {}

  /// Differentiates the result at the position `objective`.
  LogicalResult run(unsigned objective);

  unsigned numAdjoints = 0, numSums = 0;

private:
  /// Collects the arguments to differentiate with respect to.
  LogicalResult findTargets();
  /// Finds the values that depend on a target through operands that gradients
  /// flow through.
  void findActiveValues();
  bool isActiveOperand(Operation &op, unsigned index);
  /// Whether a region of the operation reads such a value.
  bool capturesActive(Operation &op);
  FailureOr<Value> findSeed(RankedTensorType objective);
  FailureOr<Value> buildSeed(unsigned objective, Value value);
  LogicalResult visit(Operation &op);
  /// The gradients of the results as the operation takes them.
  SmallVector<Value> getResultGradients(Operation &op);
  void addGradient(Value primal, Value gradient);
  Value castTo(Value value, Type element);
  LogicalResult appendGradients();
  /// Takes results that the forward pass has kept, of so many, as arguments,
  /// and returns the gradients alone.
  void takeKeptResults(unsigned numResults, unsigned objective);

  func::FuncOp function;
  BackwardTagger tagger;
  OpBuilder builder;
  SmallVector<BlockArgument> targets;
  DenseSet<Value> active;
  /// A value without an entry has a gradient of zero.
  DenseMap<Value, Value> gradients;
};

struct DifferentiatePass : nsa::impl::DifferentiateBase<DifferentiatePass> {
  void runOnOperation() override;
};

} // namespace

//===----------------------------------------------------------------------===//
// Activity
//===----------------------------------------------------------------------===//

LogicalResult Differentiator::findTargets() {
  SmallVector<BlockArgument> parameters;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (function.getArgAttr(index, nn::kDifferentiateAttr))
      targets.push_back(argument);
    if (nn::getArgumentRole(function, index) == nn::ArgumentRole::Parameter)
      parameters.push_back(argument);
  }
  if (targets.empty())
    targets = parameters;
  if (targets.empty())
    return function.emitError("function `")
           << function.getName()
           << "` has an objective but no parameter to differentiate with "
              "respect to";
  for (BlockArgument target : targets)
    if (!isFloatTensor(target.getType()))
      return function.emitError("argument ")
             << target.getArgNumber() << " of type " << target.getType()
             << " has no gradient, expected a tensor of floating-point values";
  return success();
}

bool Differentiator::isActiveOperand(Operation &op, unsigned index) {
  Value operand = op.getOperand(index);
  if (!active.contains(operand))
    return false;
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  return !differentiable || differentiable.isDifferentiableOperand(index);
}

bool Differentiator::capturesActive(Operation &op) {
  if (op.getNumRegions() == 0)
    return false;
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op.getRegions(), captured);
  return llvm::any_of(captured, [&](Value v) { return active.contains(v); });
}

void Differentiator::findActiveValues() {
  active.insert_range(targets);
  for (Operation &op : function.front().without_terminator()) {
    auto operands = llvm::seq<unsigned>(0, op.getNumOperands());
    if (llvm::none_of(operands,
                      [&](unsigned i) { return isActiveOperand(op, i); }) &&
        !capturesActive(op))
      continue;
    // What others make of a value that is no tensor may be one again.
    bool hasAdjoint = isa<DifferentiableOpInterface>(op);
    for (Value result : op.getResults())
      if (!hasAdjoint || isFloatTensor(result.getType()))
        active.insert(result);
  }
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Value Differentiator::castTo(Value value, Type element) {
  if (getElementTypeOrSelf(value) == element)
    return value;
  return nn::CastOp::create(builder, value.getLoc(), value, element);
}

void Differentiator::addGradient(Value primal, Value gradient) {
  Value &total = gradients[primal];
  if (!total) {
    total = gradient;
    return;
  }
  Type a = getElementTypeOrSelf(total), b = getElementTypeOrSelf(gradient);
  Type wider = a.getIntOrFloatBitWidth() >= b.getIntOrFloatBitWidth() ? a : b;
  Value lhs = castTo(total, wider), rhs = castTo(gradient, wider);
  NSA_DEBUG() << "sums gradients of a value from " << primal.getLoc() << " in "
              << wider;
  total = nn::AddOp::create(builder, primal.getLoc(), lhs, rhs);
  ++numSums;
}

SmallVector<Value> Differentiator::getResultGradients(Operation &op) {
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  bool keepType = differentiable && differentiable.takesWiderGradients();
  return llvm::map_to_vector(op.getResults(), [&](Value result) {
    Value gradient = gradients.lookup(result);
    if (!gradient || keepType)
      return gradient;
    return castTo(gradient, getElementTypeOrSelf(result));
  });
}

LogicalResult Differentiator::visit(Operation &op) {
  auto reached = [&](Value result) {
    return active.contains(result) && gradients.contains(result);
  };
  if (llvm::none_of(op.getResults(), reached)) {
    NSA_DEBUG() << &op << " lies on no path from a target to the objective";
    return success();
  }
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  if (!differentiable || capturesActive(op))
    return op.emitOpError("lies between a parameter and the objective but has "
                          "no adjoint");
  SmallVector<Value> operandGradients;
  if (failed(differentiable.buildBackward(builder, getResultGradients(op),
                                          operandGradients)))
    return failure();
  if (operandGradients.size() != op.getNumOperands())
    return op.emitOpError("built ")
           << operandGradients.size() << " gradients for "
           << op.getNumOperands() << " operands";
  ++numAdjoints;
  for (auto [index, gradient] : llvm::enumerate(operandGradients)) {
    Value operand = op.getOperand(index);
    if (!gradient || !isActiveOperand(op, index))
      continue;
    auto found = cast<RankedTensorType>(gradient.getType());
    auto expected = cast<RankedTensorType>(operand.getType());
    if (found.getShape() != expected.getShape())
      return op.emitOpError("built a gradient of type ")
             << found << " for operand " << index << " of type " << expected;
    NSA_DEBUG() << &op << " gives operand " << index << " a gradient of type "
                << found;
    addGradient(operand, gradient);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

/// The attributes that name the gradient of a named tensor.
static DictionaryAttr nameGradient(MLIRContext *context, StringRef name,
                                   bool isInput) {
  NamedAttrList attributes;
  if (!name.empty())
    attributes.set(nn::kNameAttr,
                   StringAttr::get(context, training::gradientPrefix + name));
  if (!name.empty() && isInput)
    attributes.set(nn::kRoleAttr,
                   StringAttr::get(context, stringifyArgumentRole(
                                                nn::ArgumentRole::Input)));
  return attributes.getDictionary(context);
}

/// The argument that is marked as the gradient of the objective, which has the
/// type `objective`; null if there is none.
FailureOr<Value> Differentiator::findSeed(RankedTensorType objective) {
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (!nn::isSeed(function, index))
      continue;
    if (cast<RankedTensorType>(argument.getType()).getShape() !=
        objective.getShape())
      return emitError(argument.getLoc(), "argument ")
             << index << " of type " << argument.getType()
             << " is marked nn.seed, but the objective has type " << objective;
    return Value(argument);
  }
  return Value();
}

FailureOr<Value> Differentiator::buildSeed(unsigned objective, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  FailureOr<Value> seed = findSeed(type);
  if (failed(seed))
    return failure();
  if (*seed)
    return castTo(*seed, type.getElementType());
  if (type.getRank() == 0)
    return nn::FillOp::create(builder, value.getLoc(),
                              builder.getF64FloatAttr(1.0), TypeAttr::get(type))
        .getResult();
  unsigned index = function.getNumArguments();
  StringRef name = nn::getResultName(function, objective);
  LogicalResult inserted = function.insertArgument(
      index, type, nameGradient(function.getContext(), name, /*isInput=*/true),
      value.getLoc());
  assert(succeeded(inserted) && "function type without a new argument");
  (void)inserted;
  return Value(function.getArgument(index));
}

LogicalResult Differentiator::appendGradients() {
  Signature signature(function);
  for (BlockArgument target : targets) {
    unsigned index = target.getArgNumber();
    StringRef name = nn::getArgumentName(function, index);
    Value gradient = gradients.lookup(target);
    if (!gradient)
      return emitError(target.getLoc(), "argument ")
             << index << " (`" << name << "`) of function `"
             << function.getName() << "` does not reach the objective";
    gradient = castTo(gradient, getElementTypeOrSelf(target));
    signature.getArgument(index).erase(nn::kDifferentiateAttr);
    signature.addResult(gradient, nameGradient(function.getContext(), name,
                                               /*isInput=*/false));
  }
  signature.update();
  return success();
}

void Differentiator::takeKeptResults(unsigned numResults, unsigned objective) {
  auto ret = cast<func::ReturnOp>(function.front().getTerminator());
  Signature signature(function);
  unsigned numArguments = function.getNumArguments();
  BlockArgument output;
  for (unsigned index : llvm::seq(numResults)) {
    if (!function.getResultAttr(index, nn::kKeptAttr))
      continue;
    Value value = ret.getOperand(index);
    StringRef name = nn::getResultName(function, index);
    BlockArgument kept = signature.addArgument(
        value.getType(),
        nameArgument(function.getContext(), name, nn::ArgumentRole::Input),
        value.getLoc());
    value.replaceAllUsesWith(kept);
    if (index == objective)
      output = kept;
  }
  if (function.front().getNumArguments() == numArguments)
    return;
  signature.update();
  keepResults(function,
              llvm::to_vector(llvm::seq(numResults, function.getNumResults())));
  eraseDeadOps(function);
  if (output && output.use_empty())
    (void)function.eraseArgument(output.getArgNumber());
}

LogicalResult Differentiator::run(unsigned objective) {
  FailureOr<func::ReturnOp> ret = getReturn(function);
  if (failed(ret) || failed(findTargets()))
    return failure();
  findActiveValues();
  unsigned numResults = function.getNumResults();

  Value value = ret->getOperand(objective);
  builder.setInsertionPoint(*ret);
  FailureOr<Value> seed = buildSeed(objective, value);
  if (failed(seed))
    return failure();
  gradients[value] = *seed;
  auto primals = llvm::to_vector(
      llvm::make_pointer_range(function.front().without_terminator()));
  for (Operation *op : llvm::reverse(primals))
    if (failed(visit(*op)))
      return failure();
  if (failed(appendGradients()))
    return failure();
  function.removeResultAttr(
      objective, StringAttr::get(function.getContext(), nn::kObjectiveAttr));
  takeKeptResults(numResults, objective);
  return success();
}

/// A mark that nothing would act on is an error.
static LogicalResult checkNoTargets(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), nn::kDifferentiateAttr))
      return emitError(argument.getLoc(), "argument ")
             << argument.getArgNumber() << " of function `"
             << function.getName()
             << "` is marked nn.differentiate, but no result is marked "
                "nn.objective";
  for (unsigned i : llvm::seq(function.getNumResults()))
    if (function.getResultAttr(i, nn::kKeptAttr))
      return function.emitError("result ")
             << i << " of function `" << function.getName()
             << "` is marked nn.kept, but no result is marked nn.objective";
  return success();
}

void DifferentiatePass::runOnOperation() {
  func::FuncOp function = getOperation();
  SmallVector<unsigned> objectives;
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
    if (nn::isObjective(function, i))
      objectives.push_back(i);
  if (function.isExternal())
    return;
  if (objectives.empty()) {
    if (failed(checkNoTargets(function)))
      signalPassFailure();
    return;
  }
  if (objectives.size() > 1) {
    function.emitError("function `")
        << function.getName() << "` has " << objectives.size()
        << " objectives, expected 1";
    return signalPassFailure();
  }
  Differentiator differentiator(function);
  if (failed(differentiator.run(objectives.front())))
    return signalPassFailure();
  numAdjoints += differentiator.numAdjoints;
  numSums += differentiator.numSums;
  remark::analysis(function.getLoc(), remark::RemarkOpts::name("Gradient")
                                          .category(DEBUG_TYPE)
                                          .function(function.getName()))
      << remark::add("{0} operations differentiated, {1} gradients summed",
                     differentiator.numAdjoints, differentiator.numSums);
}
