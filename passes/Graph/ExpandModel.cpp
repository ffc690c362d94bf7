//===- ExpandModel.cpp - a model's text to one function -------------------===//

#include "dialects/NN/NNModuleOps.h"
#include "dialects/NN/NNOps.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"

#define DEBUG_TYPE "nsa-expand-model"

namespace nsa {
#define GEN_PASS_DEF_EXPANDMODEL
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Operations of an expanded model at most, and calls within calls.
static constexpr int64_t kMaxOperations = 1 << 20;
static constexpr size_t kMaxCalls = 64;

namespace {

/// Where an operation is expanded: the calls around it and the layer.
struct Place {
  SmallVector<nn::FunctionOp> calls;
  /// The layer of each scope that is being repeated.
  llvm::SmallMapVector<StringAttr, int64_t, 4> layers;
  /// "layers.3.", or nothing outside of layers.
  std::string prefix;
};

class ModelExpander {
public:
  ModelExpander(nn::ModelOp model, nn::FunctionOp train)
      : model(model), train(train), builder(model) {}

  FailureOr<func::FuncOp> run();
  int64_t getNumOps() const { return numOps; }

private:
  LogicalResult expand(Block &block, IRMapping &values);
  LogicalResult expand(Operation &op, IRMapping &values);
  LogicalResult call(nn::CallOp op, IRMapping &values);
  LogicalResult repeat(nn::RepeatOp op, IRMapping &values);

  /// The argument for a parameter of the layer that is being expanded.
  FailureOr<Value> parameter(Operation *user, SymbolRefAttr reference);
  Value argument(StringRef name, Type type, nn::ArgumentRole role,
                 ArrayAttr dims, ArrayRef<NamedAttribute> others, Location loc);
  LogicalResult setResults(IRMapping &values);
  LogicalResult checkUsed();
  Location getLocation(Operation &op);

  nn::ModelOp model;
  nn::FunctionOp train;
  SymbolTableCollection tables;
  OpBuilder builder;
  func::FuncOp function;
  Place place;
  /// The argument of each parameter, by layer.
  DenseMap<std::pair<Operation *, int64_t>, Value> parameters;
  DenseSet<Operation *> used;
  SmallVector<std::pair<std::string, Value>> statistics;
  int64_t numOps = 0;
};

struct ExpandModelPass : nsa::impl::ExpandModelBase<ExpandModelPass> {
  using ExpandModelBase::ExpandModelBase;
  void runOnOperation() override;
};

} // namespace

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

Value ModelExpander::argument(StringRef name, Type type, nn::ArgumentRole role,
                              ArrayAttr dims, ArrayRef<NamedAttribute> others,
                              Location loc) {
  NamedAttrList attributes(others);
  attributes.set(nn::kNameAttr, builder.getStringAttr(name));
  attributes.set(nn::kRoleAttr,
                 builder.getStringAttr(nn::stringifyArgumentRole(role)));
  if (dims && !dims.empty())
    attributes.set(nn::kDimsAttr, dims);
  unsigned index = function.getNumArguments();
  LogicalResult inserted = function.insertArgument(
      index, type, attributes.getDictionary(builder.getContext()), loc);
  assert(succeeded(inserted) && "func accepts arguments");
  (void)inserted;
  return function.getArgument(index);
}

FailureOr<Value> ModelExpander::parameter(Operation *user,
                                          SymbolRefAttr reference) {
  auto op = cast<nn::ParameterOp>(tables.lookupSymbolIn(model, reference));
  int64_t layer = 0;
  if (isa<nn::ScopeOp>(op->getParentOp())) {
    auto *found = place.layers.find(reference.getRootReference());
    if (found == place.layers.end())
      return user->emitOpError("reads ")
             << reference << " outside of an nn.repeat of @"
             << reference.getRootReference().getValue();
    layer = found->second;
  }
  used.insert(op);
  Value &value = parameters[{op, layer}];
  if (value)
    return value;
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr(nn::kInitAttr, op.getInit())};
  if (op.getDecay())
    attributes.push_back(
        builder.getNamedAttr(nn::kDecayAttr, builder.getUnitAttr()));
  if (op.getOptimizer())
    attributes.push_back(
        builder.getNamedAttr(nn::kOptimizerAttr, op.getOptimizerAttr()));
  std::string name = nn::getParameterName(op, layer);
  value = argument(name, op.getType(),
                   op.getFrozen() ? nn::ArgumentRole::Constant
                                  : nn::ArgumentRole::Parameter,
                   op.getDimsAttr(), attributes,
                   NameLoc::get(builder.getStringAttr(name), op.getLoc()));
  return value;
}

/// An unused parameter is a mistake, and no tensor of a program.
LogicalResult ModelExpander::checkUsed() {
  WalkResult result = model.walk([&](nn::ParameterOp op) {
    if (used.contains(op))
      return WalkResult::advance();
    op.emitOpError("@") << op.getSymName() << " is read by no operation of @"
                        << train.getSymName();
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// The name of an operation's location: "layers.3.attention.query" if it reads
/// that parameter, "layers.3.attention" for others of this function.
Location ModelExpander::getLocation(Operation &op) {
  std::string name = place.prefix;
  if (auto reader = dyn_cast<nn::ParameterUserOpInterface>(op))
    name += nn::getPlaceName(reader.getParameterRef());
  else if (place.calls.empty())
    name += train.getSymName();
  else
    name += place.calls.back().getSymName();
  return NameLoc::get(builder.getStringAttr(name), op.getLoc());
}

LogicalResult ModelExpander::call(nn::CallOp op, IRMapping &values) {
  auto callee =
      cast<nn::FunctionOp>(tables.lookupSymbolIn(model, op.getCalleeAttr()));
  if (llvm::is_contained(place.calls, callee))
    return op.emitOpError("makes @") << callee.getSymName() << " call itself";
  if (place.calls.size() >= kMaxCalls)
    return op.emitOpError("is nested in ")
           << kMaxCalls << " calls, expected fewer";
  place.calls.push_back(callee);
  llvm::scope_exit leave([&] { place.calls.pop_back(); });
  Block &body = callee.getBody().front();
  IRMapping inner;
  for (auto [argument, value] :
       llvm::zip_equal(body.getArguments(), op.getOperands()))
    inner.map(argument, values.lookup(value));
  if (failed(expand(body, inner)))
    return failure();
  for (auto [result, value] :
       llvm::zip_equal(op.getResults(), body.back().getOperands()))
    values.map(result, inner.lookup(value));
  return success();
}

LogicalResult ModelExpander::repeat(nn::RepeatOp op, IRMapping &values) {
  auto names = llvm::to_vector(op.getScopes().getAsRange<FlatSymbolRefAttr>());
  auto scope = [&](FlatSymbolRefAttr name) {
    return cast<nn::ScopeOp>(tables.lookupSymbolIn(model, name));
  };
  for (FlatSymbolRefAttr name : names)
    if (place.layers.contains(name.getAttr()))
      return op.emitOpError("repeats ") << name << " within itself";
  Place outside = place;
  llvm::scope_exit leave([&] { place = std::move(outside); });
  Block &body = op.getBody().front();
  // The body reads values of the function around it.
  IRMapping inner = values;
  SmallVector<Value> carried = llvm::map_to_vector(
      op.getInitial(), [&](Value value) { return values.lookup(value); });
  for (int64_t index :
       op.getIndices().value_or(scope(names.front()).getIndices())) {
    for (FlatSymbolRefAttr name : names)
      place.layers[name.getAttr()] = index;
    place.prefix =
        (scope(names.front()).getNamePrefix() + "." + Twine(index) + ".").str();
    inner.map(body.getArguments(), carried);
    if (failed(expand(body, inner)))
      return failure();
    for (auto [value, next] :
         llvm::zip_equal(carried, body.back().getOperands()))
      value = inner.lookup(next);
  }
  values.map(op.getResults(), carried);
  return success();
}

LogicalResult ModelExpander::expand(Operation &op, IRMapping &values) {
  if (auto inner = dyn_cast<nn::CallOp>(op))
    return call(inner, values);
  if (auto layers = dyn_cast<nn::RepeatOp>(op))
    return repeat(layers, values);
  if (auto log = dyn_cast<nn::LogOp>(op)) {
    statistics.emplace_back(place.prefix + log.getName().str(),
                            values.lookup(log.getValue()));
    return success();
  }
  if (++numOps > kMaxOperations)
    return op.emitError("the model expands to more than ")
           << kMaxOperations << " operations";
  if (auto reader = dyn_cast<nn::ParameterUserOpInterface>(op)) {
    FailureOr<Value> read = parameter(&op, reader.getParameterRef());
    if (failed(read))
      return failure();
    Value operand =
        op.getNumOperands() ? values.lookup(op.getOperand(0)) : Value();
    values.map(op.getResult(0),
               reader.expand(builder, getLocation(op), operand, *read));
    return success();
  }
  builder.clone(op, values)->setLoc(getLocation(op));
  return success();
}

LogicalResult ModelExpander::expand(Block &block, IRMapping &values) {
  for (Operation &op : block.without_terminator())
    if (failed(expand(op, values)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// Returns the results and what is logged, by name.
LogicalResult ModelExpander::setResults(IRMapping &values) {
  Operation &end = train.getBody().front().back();
  SmallVector<Value> results = llvm::map_to_vector(
      end.getOperands(), [&](Value value) { return values.lookup(value); });
  for (auto &[name, value] : statistics)
    results.push_back(value);
  func::ReturnOp::create(builder, end.getLoc(), results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           ValueRange(results).getTypes()));
  unsigned index = 0;
  llvm::StringSet<> names;
  for (auto name : train.getResultNames()->getAsRange<StringAttr>()) {
    names.insert(name.getValue());
    function.setResultAttr(index++, nn::kNameAttr, name);
  }
  for (auto &[name, value] : statistics) {
    if (!names.insert(name).second)
      return train.emitOpError("logs or returns two values of the name `")
             << name << "`";
    function.setResultAttr(index, nn::kNameAttr, builder.getStringAttr(name));
    function.setResultAttr(index++, nn::kStatisticAttr, builder.getUnitAttr());
  }
  return success();
}

FailureOr<func::FuncOp> ModelExpander::run() {
  function = func::FuncOp::create(builder, train.getLoc(), train.getSymName(),
                                  builder.getFunctionType({}, {}));
  function->setAttr(nn::kTrainAttr, builder.getUnitAttr());
  builder.setInsertionPointToStart(function.addEntryBlock());
  Block &body = train.getBody().front();
  IRMapping values;
  for (BlockArgument input : body.getArguments()) {
    unsigned index = input.getArgNumber();
    ArrayAttr dims;
    if (train.getArgDims())
      dims = cast<ArrayAttr>((*train.getArgDims())[index]);
    auto name = cast<StringAttr>(train.getArgNames()[index]);
    values.map(input, argument(name, input.getType(), nn::ArgumentRole::Input,
                               dims, {}, NameLoc::get(name, input.getLoc())));
  }
  if (failed(expand(body, values)) || failed(setResults(values)) ||
      failed(checkUsed()))
    return failure();
  return function;
}

void ExpandModelPass::runOnOperation() {
  ModuleOp module = getOperation();
  SmallVector<nn::ModelOp> models(module.getOps<nn::ModelOp>());
  if (models.empty())
    return markAllAnalysesPreserved();
  nn::ModelOp model = models.front();
  if (models.size() > 1) {
    models[1].emitOpError("is the second model of the file, expected one");
    return signalPassFailure();
  }
  auto functions = model.getOps<nn::FunctionOp>();
  auto train = llvm::find_if(
      functions, [](nn::FunctionOp function) { return function.getTrain(); });
  if (train == functions.end()) {
    model.emitOpError("has no function to train: one is to begin with "
                      "`nn.func train`");
    return signalPassFailure();
  }
  if (Operation *other =
          SymbolTable::lookupSymbolIn(module, (*train).getSymNameAttr());
      other && other != model) {
    (*train).emitOpError("@") << (*train).getSymName()
                              << " has the name of a function next to the "
                                 "model";
    return signalPassFailure();
  }
  ModelExpander expander(model, *train);
  FailureOr<func::FuncOp> function = expander.run();
  if (failed(function))
    return signalPassFailure();
  numOps += expander.getNumOps();
  if (model.getConfig())
    module->setAttr(nn::kConfigAttr, *model.getConfig());
  if (model.getPrecision())
    module->setAttr(nn::kPrecisionAttr, model.getPrecisionAttr());
  remark::analysis(function->getLoc(), remark::RemarkOpts::name("Expanded")
                                           .category(DEBUG_TYPE)
                                           .function(function->getName()))
      << remark::add("{0} operations, {1} arguments", expander.getNumOps(),
                     function->getNumArguments());
  model.erase();
}
