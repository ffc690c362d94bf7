//===- Optimizer.cpp - accumulation and update ----------------------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#define DEBUG_TYPE "nsa-optimizer"

namespace nsa {
#define GEN_PASS_DEF_OPTIMIZER
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;
using nn::ArgumentRole;

namespace {

/// A parameter of `@accumulate` and the result that is its gradient.
struct Parameter {
  BlockArgument argument;
  StringRef name;
  DictionaryAttr attributes;
  unsigned gradientResult;
  /// What updates it, found once all parameters are.
  std::optional<OptimizerKind> kind = std::nullopt;

  RankedTensorType getType() const {
    return cast<RankedTensorType>(argument.getType());
  }
  std::string getGradientName() const { return training::gradientName(name); }
  SmallVector<OptimizerState> getStateSpecs() const {
    return kind->getStateSpecs(getType());
  }
};

struct OptimizerPass : nsa::impl::OptimizerBase<OptimizerPass> {
  using OptimizerBase::OptimizerBase;
  void runOnOperation() override;
  FailureOr<OptimizerKind> findKind(Location loc, StringRef name);
  /// Finds for each parameter its own optimizer, or the one that the option
  /// names, which must be able to update it.
  LogicalResult findKinds(func::FuncOp accumulate,
                          MutableArrayRef<Parameter> parameters);
  /// No symbol of the module has the name of an entry that is made here.
  LogicalResult checkFree(StringRef name);
  func::FuncOp buildUpdate(func::FuncOp accumulate,
                           ArrayRef<Parameter> parameters);
  void buildStep(func::FuncOp accumulate, func::FuncOp update);
};

/// Steps with finite gradients after which the loss scale doubles (that of the
/// paper cited at `nn.update_loss_scale`).
constexpr int64_t kGrowthInterval = 2000;

} // namespace

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

/// Appends a persistent tensor that starts at 0.
static BlockArgument appendState(Signature &signature, const Twine &name,
                                 ArgumentRole role, Type type, Location loc) {
  return signature.addState(name, role, 0.0, type, loc);
}

static NamedAttribute nameResult(MLIRContext *context, StringRef attribute,
                                 const Twine &name) {
  Builder builder(context);
  return builder.getNamedAttr(attribute, builder.getStringAttr(name));
}

/// Appends the new value of an argument.
static void appendAlias(Signature &signature, Value value, const Twine &name) {
  signature.addResult(value,
                      nameResult(value.getContext(), nn::kAliasAttr, name));
}

static Value createZero(OpBuilder &builder, Location loc, Type type) {
  return nn::FillOp::create(builder, loc, builder.getF64FloatAttr(0.0),
                            TypeAttr::get(type));
}

//===----------------------------------------------------------------------===//
// @accumulate
//===----------------------------------------------------------------------===//

/// The argument by which gradients are larger than those of the loss.
static std::optional<unsigned> findLossScale(func::FuncOp accumulate) {
  std::optional<unsigned> scale =
      nn::findArgument(accumulate, training::lossScaleState);
  return scale && nn::isSeed(accumulate, *scale) ? scale : std::nullopt;
}

static FailureOr<SmallVector<Parameter>>
collectParameters(func::FuncOp accumulate) {
  SmallVector<Parameter> parameters;
  llvm::StringMap<unsigned> results;
  for (unsigned i = 0, e = accumulate.getNumResults(); i < e; ++i)
    results.try_emplace(nn::getResultName(accumulate, i), i);
  for (BlockArgument argument : accumulate.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (nn::getArgumentRole(accumulate, index) != ArgumentRole::Parameter)
      continue;
    StringRef name = nn::getArgumentName(accumulate, index);
    if (name.empty())
      return emitError(argument.getLoc(), "parameter at position ")
             << index << " of function `" << accumulate.getName()
             << "` has no nn.name";
    if (!getElementTypeOrSelf(argument).isF32())
      return emitError(argument.getLoc(), "parameter `")
             << name << "` of type " << argument.getType()
             << " has no fp32 master weights";
    if (!cast<ShapedType>(argument.getType()).hasStaticShape())
      return emitError(argument.getLoc(), "parameter `")
             << name << "` of type " << argument.getType()
             << " has no static shape";
    auto result = results.find(training::gradientName(name));
    if (result == results.end())
      return emitError(argument.getLoc(), "parameter `")
             << name << "` has no result `grad." << name << "` in function `"
             << accumulate.getName() << "`";
    if (Type type = accumulate.getResultTypes()[result->second];
        type != argument.getType())
      return emitError(argument.getLoc(), "parameter `")
             << name << "` of type " << argument.getType()
             << " has a gradient of type " << type;
    parameters.push_back(
        {argument, name, accumulate.getArgAttrDict(index), result->second});
  }
  return parameters;
}

/// No argument or result of `@accumulate` may have a name that is made here: in
/// `@step` both would be one.
static LogicalResult checkNames(func::FuncOp accumulate,
                                ArrayRef<Parameter> parameters) {
  llvm::StringSet<> made = {training::hyperInput,
                            training::lossSumState,
                            training::lossSumOutput,
                            training::targetFractionSumState,
                            training::targetFractionSumOutput,
                            training::gradNormOutput};
  for (const Parameter &p : parameters) {
    made.insert(p.getGradientName());
    for (const OptimizerState &state : p.getStateSpecs())
      made.insert((state.name + "." + p.name).str());
  }
  if (findLossScale(accumulate)) {
    made.insert(training::lossScaleStreakState);
    made.insert(training::skippedUpdatesState);
    made.insert(training::lossScaleOutput);
    made.insert(training::skippedUpdatesOutput);
  }
  for (BlockArgument argument : accumulate.getArguments())
    if (StringRef name =
            nn::getArgumentName(accumulate, argument.getArgNumber());
        made.contains(name))
      return emitError(argument.getLoc(), "argument `")
             << name << "` of function `" << accumulate.getName()
             << "` has the name of a tensor of the optimizer";
  for (const Parameter &p : parameters)
    made.erase(p.getGradientName());
  for (unsigned i = 0, e = accumulate.getNumResults(); i < e; ++i)
    if (StringRef name = nn::getResultName(accumulate, i); made.contains(name))
      return accumulate.emitError("result `")
             << name << "` of function `" << accumulate.getName()
             << "` has the name of a tensor of the optimizer";
  return success();
}

/// What is added up with the losses is of their type.
static LogicalResult checkTargetFraction(func::FuncOp accumulate,
                                         unsigned loss) {
  std::optional<unsigned> fraction =
      nn::findResult(accumulate, training::targetFractionResult);
  ArrayRef<Type> types = accumulate.getResultTypes();
  if (!fraction || types[*fraction] == types[loss])
    return success();
  return accumulate.emitError("result `")
         << training::targetFractionResult << "` of function `"
         << accumulate.getName() << "` has type " << types[*fraction]
         << ", expected " << types[loss];
}

/// The sum of a persistent value and `value`, right after the latter, whose
/// memory is then free.
static Value buildSum(BlockArgument sum, Value value) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  return nn::AddOp::create(builder, value.getLoc(), sum, value);
}

/// Makes a result of `@accumulate` the update of a persistent sum.
static void buildSumOfResult(Signature &signature, func::FuncOp accumulate,
                             unsigned result, const Twine &name,
                             ArgumentRole role, Location loc) {
  Operation *ret = accumulate.front().getTerminator();
  Value value = ret->getOperand(result);
  BlockArgument sum = appendState(signature, name, role, value.getType(), loc);
  ret->setOperand(result, buildSum(sum, value));
  NamedAttrList &attributes = signature.getResult(result);
  attributes.erase(nn::kNameAttr);
  attributes.append(nameResult(accumulate.getContext(), nn::kAliasAttr, name));
}

/// Turns the results of `@accumulate` that are gradients, and the fraction of
/// its targets that count, into updates of persistent sums.
static void buildAccumulation(func::FuncOp accumulate, unsigned loss,
                              ArrayRef<Parameter> parameters) {
  Operation *ret = accumulate.front().getTerminator();
  Signature signature(accumulate);
  for (const Parameter &parameter : parameters)
    buildSumOfResult(signature, accumulate, parameter.gradientResult,
                     parameter.getGradientName(), ArgumentRole::Gradient,
                     parameter.argument.getLoc());
  Value value = ret->getOperand(loss);
  Location loc = value.getLoc();
  BlockArgument sum = appendState(signature, training::lossSumState,
                                  ArgumentRole::State, value.getType(), loc);
  appendAlias(signature, buildSum(sum, value), training::lossSumState);
  std::optional<unsigned> fraction =
      nn::findResult(accumulate, training::targetFractionResult);
  if (!fraction) {
    // Where no target can be ignored, all count.
    OpBuilder builder(ret);
    fraction = signature.addResult(
        nn::FillOp::create(builder, loc, builder.getF64FloatAttr(1.0),
                           TypeAttr::get(value.getType())),
        {});
  }
  buildSumOfResult(signature, accumulate, *fraction,
                   training::targetFractionSumState, ArgumentRole::State, loc);
  signature.update();
}

//===----------------------------------------------------------------------===//
// @update and @step
//===----------------------------------------------------------------------===//

LogicalResult OptimizerPass::checkFree(StringRef name) {
  if (Operation *other = SymbolTable::lookupSymbolIn(getOperation(), name))
    return other->emitError("symbol `")
           << name << "` has the name of an entry that is made here";
  return success();
}

/// A public function at the end of the module that only returns.
static func::FuncOp createEntry(ModuleOp module, StringRef name, Location loc) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto entry =
      func::FuncOp::create(builder, loc, name, builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(entry.addEntryBlock());
  func::ReturnOp::create(builder, loc);
  return entry;
}

/// Appends the scale of the loss and its new value. Returns the scalars of the
/// updates and the norm without it.
static std::pair<Value, Value> buildLossScale(Signature &signature,
                                              OpBuilder &builder,
                                              func::FuncOp accumulate,
                                              unsigned argument, Value hyper,
                                              Value norm, Value loss) {
  Location loc = norm.getLoc();
  Type type = norm.getType();
  NamedAttrList attributes = accumulate.getArgAttrDict(argument);
  attributes.erase(nn::kSeedAttr);
  Value scale = signature.addArgument(type, attributes, loc);
  Value streak = appendState(signature, training::lossScaleStreakState,
                             ArgumentRole::State, type, loc);
  Value skipped = appendState(signature, training::skippedUpdatesState,
                              ArgumentRole::State, type, loc);
  auto update = nn::UpdateLossScaleOp::create(
      builder, loc, hyper, norm, loss, scale, streak, skipped, kGrowthInterval);
  appendAlias(signature, update.getNewScale(), training::lossScaleState);
  appendAlias(signature, update.getNewStreak(), training::lossScaleStreakState);
  appendAlias(signature, update.getNewSkipped(), training::skippedUpdatesState);
  for (auto [value, name] :
       {std::pair<Value, const char *>(update.getNewScale(),
                                       training::lossScaleOutput),
        {update.getNewSkipped(), training::skippedUpdatesOutput}})
    signature.addResult(value,
                        nameResult(loc.getContext(), nn::kNameAttr, name));
  return {update.getUnscaledHyper(), update.getUnscaledNorm()};
}

/// Appends what the optimizer keeps, the first state of all parameters first.
/// Returns the states of each parameter.
static SmallVector<SmallVector<Value>>
appendStates(Signature &signature, ArrayRef<Parameter> parameters) {
  SmallVector<SmallVector<Value>> states(parameters.size());
  bool isMore = true;
  for (unsigned number = 0; isMore; ++number) {
    isMore = false;
    for (auto [p, values] : llvm::zip_equal(parameters, states)) {
      SmallVector<OptimizerState> specs = p.getStateSpecs();
      if (number >= specs.size())
        continue;
      isMore = true;
      const OptimizerState &spec = specs[number];
      values.push_back(signature.addOptimizerState(
          spec.name, p.name, spec.initial, spec.type, p.argument.getLoc()));
    }
  }
  return states;
}

/// The element type in which the model computes with a weight.
static Type getComputeType(Value weight) {
  for (Operation *user : weight.getUsers()) {
    if (auto cast = dyn_cast<nn::CastOp>(user))
      return cast.getElementType();
    if (!isa<nn::FlattenOp, nn::RecomputeBarrierOp>(user))
      continue;
    if (Type type = getComputeType(user->getResult(0)); !type.isF32())
      return type;
  }
  return getElementTypeOrSelf(weight);
}

func::FuncOp OptimizerPass::buildUpdate(func::FuncOp accumulate,
                                        ArrayRef<Parameter> parameters) {
  func::FuncOp update =
      createEntry(getOperation(), training::updateEntry, accumulate.getLoc());
  Location loc = update.getLoc();
  OpBuilder builder(update.front().getTerminator());
  Type f32 = builder.getF32Type();

  Signature signature(update);
  SmallVector<Value> weights, gradients;
  for (const Parameter &p : parameters)
    weights.push_back(
        signature.addArgument(p.getType(), p.attributes, p.argument.getLoc()));
  SmallVector<SmallVector<Value>> states = appendStates(signature, parameters);
  for (const Parameter &p : parameters)
    gradients.push_back(appendState(signature, p.getGradientName(),
                                    ArgumentRole::Gradient, p.getType(),
                                    p.argument.getLoc()));
  auto scalar = RankedTensorType::get({}, f32);
  Value lossSum = appendState(signature, training::lossSumState,
                              ArgumentRole::State, scalar, loc);
  Value fractionSum = appendState(signature, training::targetFractionSumState,
                                  ArgumentRole::State, scalar, loc);
  Value hyper = signature.addArgument(
      RankedTensorType::get({training::numHyper}, f32),
      nameArgument(builder.getContext(), training::hyperInput,
                   ArgumentRole::Input),
      loc);

  // Ranks accumulate apart, and update alike.
  for (Value &gradient : gradients)
    gradient = nn::AllReduceOp::create(builder, loc, gradient);
  lossSum = nn::AllReduceOp::create(builder, loc, lossSum);
  fractionSum = nn::AllReduceOp::create(builder, loc, fractionSum);

  Value norm =
      nn::GradientNormOp::create(builder, loc, gradients, /*squared=*/false);
  Value unscaledNorm = norm;
  auto mean =
      nn::AverageStepOp::create(builder, loc, hyper, lossSum, fractionSum);
  hyper = mean.getMeanHyper();
  if (std::optional<unsigned> scale = findLossScale(accumulate))
    std::tie(hyper, unscaledNorm) = buildLossScale(
        signature, builder, accumulate, *scale, hyper, norm, lossSum);
  signature.addResult(unscaledNorm,
                      nameResult(builder.getContext(), nn::kNameAttr,
                                 training::gradNormOutput));
  for (auto [value, name] :
       {std::pair<Value, const char *>(lossSum, training::lossSumOutput),
        {fractionSum, training::targetFractionSumOutput}})
    signature.addResult(value,
                        nameResult(builder.getContext(), nn::kNameAttr, name));
  for (auto [p, w, kept, g] :
       llvm::zip_equal(parameters, weights, states, gradients)) {
    SmallVector<Value> operands = {w};
    llvm::append_range(operands, kept);
    operands.append({g, norm, mean.getMeanLoss(), hyper});
    OptimizerOpInterface step = p.kind->create(
        builder, p.argument.getLoc(), operands,
        bool(p.attributes.get(nn::kDecayAttr)), getComputeType(p.argument));
    appendAlias(signature, step.getNewWeight(), p.name);
    for (auto [state, value] :
         llvm::zip_equal(p.getStateSpecs(), step.getNewStates()))
      appendAlias(signature, value, state.name + "." + p.name);
  }
  for (auto [p, g] : llvm::zip_equal(parameters, gradients))
    appendAlias(signature,
                createZero(builder, p.argument.getLoc(), g.getType()),
                p.getGradientName());
  for (const char *sum :
       {training::lossSumState, training::targetFractionSumState})
    appendAlias(signature, createZero(builder, loc, scalar), sum);
  signature.update();
  return update;
}

/// Runs `second` after what `function` does: an argument of `second` is the
/// value that `function` leaves in the argument of that name.
static void appendEntry(func::FuncOp function, func::FuncOp second) {
  Operation *ret = function.front().getTerminator();
  llvm::StringMap<unsigned> aliases;
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
    if (StringRef alias = nn::getResultAlias(function, i); !alias.empty())
      aliases[alias] = i;
  llvm::StringMap<unsigned> arguments;
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    arguments.try_emplace(nn::getArgumentName(function, i), i);

  Signature signature(function);
  IRMapping mapping;
  for (BlockArgument argument : second.getArguments()) {
    unsigned index = argument.getArgNumber();
    StringRef name = nn::getArgumentName(second, index);
    if (auto alias = aliases.find(name); alias != aliases.end())
      mapping.map(argument, ret->getOperand(alias->second));
    else if (auto same = arguments.find(name); same != arguments.end())
      mapping.map(argument, function.front().getArgument(same->second));
    else
      mapping.map(argument, signature.addArgument(argument.getType(),
                                                  second.getArgAttrDict(index),
                                                  argument.getLoc()));
  }
  OpBuilder builder(ret);
  for (Operation &op : second.front().without_terminator())
    builder.clone(op, mapping);
  Operation *last = second.front().getTerminator();
  for (unsigned i = 0, e = second.getNumResults(); i < e; ++i) {
    Value value = mapping.lookup(last->getOperand(i));
    auto alias = aliases.find(nn::getResultAlias(second, i));
    if (alias != aliases.end())
      ret->setOperand(alias->second, value);
    else
      signature.addResult(value, second.getResultAttrDict(i));
  }
  signature.update();
}

void OptimizerPass::buildStep(func::FuncOp accumulate, func::FuncOp update) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  auto step = cast<func::FuncOp>(builder.clone(*accumulate));
  step.setName(training::stepEntry);
  appendEntry(step, update);
}

FailureOr<OptimizerKind> OptimizerPass::findKind(Location loc, StringRef name) {
  if (std::optional<OptimizerKind> kind =
          OptimizerKind::find(&getContext(), name))
    return *kind;
  return emitError(loc, "unknown optimizer `")
         << name << "`, expected one of "
         << llvm::join(OptimizerKind::list(&getContext()), ", ");
}

LogicalResult OptimizerPass::findKinds(func::FuncOp accumulate,
                                       MutableArrayRef<Parameter> parameters) {
  FailureOr<OptimizerKind> common =
      findKind(getOperation().getLoc(), optimizer);
  if (failed(common))
    return failure();
  for (Parameter &p : parameters) {
    Location loc = p.argument.getLoc();
    StringRef own =
        nn::getArgumentOptimizer(accumulate, p.argument.getArgNumber());
    FailureOr<OptimizerKind> kind = own.empty() ? common : findKind(loc, own);
    if (failed(kind))
      return failure();
    if (!kind->canUpdate(p.getType()))
      return emitError(loc, "parameter `")
             << p.name << "` of type " << p.getType()
             << " cannot be updated by `" << kind->getName() << "`";
    p.kind = *kind;
  }
  return success();
}

void OptimizerPass::runOnOperation() {
  auto accumulate =
      getOperation().lookupSymbol<func::FuncOp>(training::accumulateEntry);
  if (!accumulate)
    return;
  if (accumulate.isExternal() || failed(getReturn(accumulate)))
    return signalPassFailure();
  FailureOr<unsigned> loss = findLoss(accumulate);
  if (failed(loss))
    return signalPassFailure();
  FailureOr<SmallVector<Parameter>> parameters = collectParameters(accumulate);
  if (failed(parameters) || failed(checkTargetFraction(accumulate, *loss)))
    return signalPassFailure();
  if (failed(findKinds(accumulate, *parameters)) ||
      failed(checkNames(accumulate, *parameters)) ||
      failed(checkFree(training::updateEntry)) ||
      failed(checkFree(training::stepEntry)))
    return signalPassFailure();
  buildAccumulation(accumulate, *loss, *parameters);
  buildStep(accumulate, buildUpdate(accumulate, *parameters));
  numParameters += parameters->size();
  unsigned decayed = llvm::count_if(*parameters, [](const Parameter &p) {
    return p.attributes.contains(nn::kDecayAttr);
  });
  remark::analysis(accumulate.getLoc(),
                   remark::RemarkOpts::name("Update").category(DEBUG_TYPE))
      << remark::add("{0} parameters, {1} with weight decay",
                     parameters->size(), decayed);
}
