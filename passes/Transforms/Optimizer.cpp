//===- Optimizer.cpp - accumulation and update ----------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Transforms/FunctionUtils.h"
#include "passes/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-optimizer"

namespace nsa {
#define GEN_PASS_DEF_OPTIMIZER
#include "passes/Transforms/Passes.h.inc"
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

  RankedTensorType getType() const {
    return cast<RankedTensorType>(argument.getType());
  }
  std::string getGradientName() const { return ("grad." + name).str(); }
};

struct OptimizerPass : nsa::impl::OptimizerBase<OptimizerPass> {
  void runOnOperation() override;
  /// No symbol of the module has the name of an entry that is made here.
  LogicalResult checkFree(StringRef name);
  func::FuncOp buildUpdate(func::FuncOp accumulate,
                           ArrayRef<Parameter> parameters);
  void buildStep(func::FuncOp accumulate, func::FuncOp update);
};

constexpr StringLiteral kLossSum = "loss_sum";

} // namespace

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

static BlockArgument appendArgument(func::FuncOp function, Type type,
                                    DictionaryAttr attributes, Location loc) {
  unsigned index = function.getNumArguments();
  LogicalResult inserted =
      function.insertArgument(index, type, attributes, loc);
  assert(succeeded(inserted) && "function type without a new argument");
  (void)inserted;
  return function.getArgument(index);
}

/// Appends a persistent tensor that starts at 0. The attributes go in at once:
/// each change of one rebuilds those of all arguments.
static BlockArgument appendState(func::FuncOp function, const Twine &name,
                                 ArgumentRole role, Type type, Location loc) {
  Builder builder(function.getContext());
  auto init =
      nn::InitAttr::get(function.getContext(), nn::InitKind::Constant, 0.0);
  NamedAttribute attributes[] = {
      builder.getNamedAttr(nn::kNameAttr, builder.getStringAttr(name)),
      builder.getNamedAttr(nn::kRoleAttr, builder.getStringAttr(
                                              nn::stringifyArgumentRole(role))),
      builder.getNamedAttr(nn::kInitAttr, init)};
  return appendArgument(function, type, builder.getDictionaryAttr(attributes),
                        loc);
}

static unsigned appendResult(func::FuncOp function, Value value,
                             DictionaryAttr attributes = {}) {
  unsigned index = function.getNumResults();
  LogicalResult inserted =
      function.insertResult(index, value.getType(), attributes);
  assert(succeeded(inserted) && "function type without a new result");
  (void)inserted;
  cast<func::ReturnOp>(function.front().getTerminator())
      .getOperandsMutable()
      .append(value);
  return index;
}

/// Appends the new value of an argument.
static void appendAlias(func::FuncOp function, Value value, StringRef name) {
  nn::setResultAlias(function, appendResult(function, value), name);
}

static Value createZero(OpBuilder &builder, Location loc, Type type) {
  return nn::FillOp::create(builder, loc, builder.getF64FloatAttr(0.0),
                            TypeAttr::get(type));
}

//===----------------------------------------------------------------------===//
// @accumulate
//===----------------------------------------------------------------------===//

static FailureOr<SmallVector<Parameter>>
collectParameters(func::FuncOp accumulate) {
  SmallVector<Parameter> parameters;
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
    std::optional<unsigned> result =
        nn::findResult(accumulate, ("grad." + name).str());
    if (!result)
      return emitError(argument.getLoc(), "parameter `")
             << name << "` has no result `grad." << name << "` in function `"
             << accumulate.getName() << "`";
    parameters.push_back(
        {argument, name, accumulate.getArgAttrDict(index), *result});
  }
  return parameters;
}

/// The sum of a persistent value and `value`, right after the latter, so that
/// nothing has to keep it until the end.
static Value buildSum(BlockArgument sum, Value value) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  return nn::AddOp::create(builder, value.getLoc(), sum, value);
}

/// Turns the results of `@accumulate` that are gradients into updates of
/// persistent sums.
static void buildAccumulation(func::FuncOp accumulate, unsigned loss,
                              ArrayRef<Parameter> parameters) {
  Operation *ret = accumulate.front().getTerminator();
  for (const Parameter &parameter : parameters) {
    unsigned result = parameter.gradientResult;
    BlockArgument sum = appendState(accumulate, parameter.getGradientName(),
                                    ArgumentRole::Gradient, parameter.getType(),
                                    parameter.argument.getLoc());
    ret->setOperand(result, buildSum(sum, ret->getOperand(result)));
    accumulate.removeResultAttr(
        result, StringAttr::get(accumulate.getContext(), nn::kNameAttr));
    nn::setResultAlias(accumulate, result, parameter.getGradientName());
  }
  Value value = ret->getOperand(loss);
  BlockArgument sum = appendState(accumulate, kLossSum, ArgumentRole::State,
                                  value.getType(), value.getLoc());
  appendAlias(accumulate, buildSum(sum, value), kLossSum);
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

func::FuncOp OptimizerPass::buildUpdate(func::FuncOp accumulate,
                                        ArrayRef<Parameter> parameters) {
  func::FuncOp update =
      createEntry(getOperation(), "update", accumulate.getLoc());
  Location loc = update.getLoc();
  OpBuilder builder(update.front().getTerminator());
  Type f32 = builder.getF32Type();

  SmallVector<Value> weights, moments1, moments2, gradients;
  for (const Parameter &p : parameters)
    weights.push_back(
        appendArgument(update, p.getType(), p.attributes, p.argument.getLoc()));
  for (const Parameter &p : parameters)
    moments1.push_back(appendState(update, "m." + p.name, ArgumentRole::Moment1,
                                   p.getType(), p.argument.getLoc()));
  for (const Parameter &p : parameters)
    moments2.push_back(appendState(update, "v." + p.name, ArgumentRole::Moment2,
                                   p.getType(), p.argument.getLoc()));
  for (const Parameter &p : parameters)
    gradients.push_back(appendState(update, p.getGradientName(),
                                    ArgumentRole::Gradient, p.getType(),
                                    p.argument.getLoc()));
  Value lossSum = appendState(update, kLossSum, ArgumentRole::State,
                              RankedTensorType::get({}, f32), loc);
  BlockArgument hyper = appendArgument(
      update, RankedTensorType::get({nn::kNumHyper}, f32), {}, loc);
  nn::setArgumentName(update, hyper.getArgNumber(), "hyper");
  nn::setArgumentRole(update, hyper.getArgNumber(), ArgumentRole::Input);

  Value norm = nn::GradientNormOp::create(builder, loc, gradients);
  nn::setResultName(update, appendResult(update, norm), "grad_norm");
  nn::setResultName(update, appendResult(update, lossSum), "loss_sum_out");
  for (auto [p, w, m, v, g] :
       llvm::zip_equal(parameters, weights, moments1, moments2, gradients)) {
    auto adamw = nn::AdamWOp::create(builder, p.argument.getLoc(), w, m, v, g,
                                     norm, lossSum, hyper,
                                     p.attributes.contains(nn::kDecayAttr));
    appendAlias(update, adamw.getNewWeight(), p.name);
    appendAlias(update, adamw.getNewMoment1(), ("m." + p.name).str());
    appendAlias(update, adamw.getNewMoment2(), ("v." + p.name).str());
  }
  for (auto [p, g] : llvm::zip_equal(parameters, gradients))
    appendAlias(update, createZero(builder, p.argument.getLoc(), g.getType()),
                p.getGradientName());
  appendAlias(update, createZero(builder, loc, lossSum.getType()), kLossSum);
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

  IRMapping mapping;
  for (BlockArgument argument : second.getArguments()) {
    unsigned index = argument.getArgNumber();
    StringRef name = nn::getArgumentName(second, index);
    if (auto alias = aliases.find(name); alias != aliases.end())
      mapping.map(argument, ret->getOperand(alias->second));
    else if (std::optional<unsigned> same = nn::findArgument(function, name))
      mapping.map(argument, function.getArgument(*same));
    else
      mapping.map(argument, appendArgument(function, argument.getType(),
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
      appendResult(function, value, second.getResultAttrDict(i));
  }
}

void OptimizerPass::buildStep(func::FuncOp accumulate, func::FuncOp update) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  auto step = cast<func::FuncOp>(builder.clone(*accumulate));
  step.setName("step");
  appendEntry(step, update);
}

void OptimizerPass::runOnOperation() {
  auto accumulate = getOperation().lookupSymbol<func::FuncOp>("accumulate");
  if (!accumulate)
    return;
  if (accumulate.isExternal() || failed(getReturn(accumulate)))
    return signalPassFailure();
  FailureOr<unsigned> loss = findLoss(accumulate);
  if (failed(loss))
    return signalPassFailure();
  FailureOr<SmallVector<Parameter>> parameters = collectParameters(accumulate);
  if (failed(parameters) || failed(checkFree("update")) ||
      failed(checkFree("step")))
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
