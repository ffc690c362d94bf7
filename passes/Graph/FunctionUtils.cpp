//===- FunctionUtils.cpp - straight-line functions ------------------------===//

#include "passes/Graph/FunctionUtils.h"
#include "nsa/Artifact/TrainingContract.h"

#include "dialects/NN/NNAttributes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

FailureOr<func::ReturnOp> nsa::getReturn(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitError("function `")
           << function.getName() << "` has "
           << function.getBody().getBlocks().size() << " blocks, expected 1";
  if (function.front().empty())
    return function.emitError("function `")
           << function.getName() << "` is empty, expected func.return";
  Operation *terminator = &function.front().back();
  auto ret = dyn_cast<func::ReturnOp>(terminator);
  if (!ret)
    return function.emitError("function `")
           << function.getName() << "` ends with " << terminator->getName()
           << ", expected func.return";
  return ret;
}

Location nsa::tagLocation(Location location, StringRef tag) {
  return NameLoc::get(StringAttr::get(location.getContext(), tag), location);
}

bool nsa::isTagged(Operation *op, StringRef tag) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name && name.getName() == tag;
}

bool nsa::isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType());
}

FailureOr<unsigned> nsa::findLoss(func::FuncOp function) {
  std::optional<unsigned> loss = nn::findResult(function, training::lossOutput);
  if (!loss)
    return function.emitError("function `")
           << function.getName() << "` has no result named `loss`";
  Type type = function.getResultTypes()[*loss];
  Type expected =
      RankedTensorType::get({}, Float32Type::get(function.getContext()));
  if (type != expected)
    return function.emitError("result `loss` of function `")
           << function.getName() << "` has type " << type << ", expected "
           << expected;
  return *loss;
}

LogicalResult nsa::inferResultTypes(Operation *op) {
  auto inferable = dyn_cast<InferTypeOpInterface>(op);
  if (!inferable)
    return op->emitOpError("does not infer its result types, so they cannot "
                           "follow those of its operands");
  SmallVector<Type> types;
  if (failed(inferable.inferReturnTypes(
          op->getContext(), op->getLoc(), op->getOperands(),
          op->getRawDictionaryAttrs(), op->getPropertiesStorage(),
          op->getRegions(), types)))
    return op->emitOpError("has no result types for its operands");
  if (types.size() != op->getNumResults())
    return op->emitOpError("has ")
           << op->getNumResults() << " results, expected " << types.size();
  for (auto [result, type] : llvm::zip_equal(op->getResults(), types))
    result.setType(type);
  return verify(op);
}

FailureOr<unsigned> nsa::inferResultTypes(func::FuncOp function,
                                          DenseSet<Value> changed) {
  if (failed(getReturn(function)))
    return failure();
  unsigned count = 0;
  for (Operation &op : function.front().without_terminator()) {
    if (llvm::none_of(op.getOperands(),
                      [&](Value v) { return changed.contains(v); }))
      continue;
    SmallVector<Type> before(op.getResultTypes());
    if (failed(inferResultTypes(&op)))
      return failure();
    for (auto [result, type] : llvm::zip_equal(op.getResults(), before))
      if (result.getType() != type)
        changed.insert(result);
    ++count;
  }
  updateFunctionType(function);
  return count;
}

void nsa::updateFunctionType(func::FuncOp function) {
  Operation *ret = function.front().getTerminator();
  function.setFunctionType(FunctionType::get(
      function.getContext(), function.front().getArgumentTypes(),
      ret->getOperandTypes()));
}

NamedAttrList nsa::nameArgument(MLIRContext *context, const Twine &name,
                                nn::ArgumentRole role) {
  Builder builder(context);
  NamedAttrList attributes;
  attributes.set(nn::kNameAttr, builder.getStringAttr(name));
  attributes.set(nn::kRoleAttr,
                 builder.getStringAttr(nn::stringifyArgumentRole(role)));
  return attributes;
}

nsa::Signature::Signature(func::FuncOp function) : function(function) {
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    arguments.push_back(function.getArgAttrDict(i));
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
    results.push_back(function.getResultAttrDict(i));
}

BlockArgument nsa::Signature::addArgument(Type type, NamedAttrList attributes,
                                          Location loc) {
  arguments.push_back(std::move(attributes));
  return function.front().addArgument(type, loc);
}

BlockArgument nsa::Signature::addState(const Twine &name, nn::ArgumentRole role,
                                       double initial, Type type,
                                       Location loc) {
  MLIRContext *context = loc.getContext();
  NamedAttrList attributes = nameArgument(context, name, role);
  attributes.set(nn::kInitAttr,
                 nn::InitAttr::get(context, nn::InitKind::Constant, initial));
  return addArgument(type, attributes, loc);
}

BlockArgument nsa::Signature::addOptimizerState(StringRef state,
                                                const Twine &of, double initial,
                                                Type type, Location loc) {
  BlockArgument argument =
      addState(state + "." + of, nn::ArgumentRole::State, initial, type, loc);
  arguments.back().set(nn::kStateAttr,
                       StringAttr::get(loc.getContext(), state));
  return argument;
}

unsigned nsa::Signature::addResult(Value value, NamedAttrList attributes) {
  results.push_back(std::move(attributes));
  cast<func::ReturnOp>(function.front().getTerminator())
      .getOperandsMutable()
      .append(value);
  return results.size() - 1;
}

void nsa::Signature::update() {
  auto build = [&](NamedAttrList &attributes) {
    return attributes.getDictionary(function.getContext());
  };
  updateFunctionType(function);
  function.setAllArgAttrs(llvm::map_to_vector(arguments, build));
  function.setAllResultAttrs(llvm::map_to_vector(results, build));
}

void nsa::keepResults(func::FuncOp function, ArrayRef<unsigned> keep) {
  Operation *ret = function.front().getTerminator();
  SmallVector<Value> values;
  SmallVector<DictionaryAttr> attributes;
  for (unsigned index : keep) {
    values.push_back(ret->getOperand(index));
    attributes.push_back(function.getResultAttrDict(index));
  }
  ret->setOperands(values);
  // The old attributes may be more than the new type has results.
  function.removeResAttrsAttr();
  updateFunctionType(function);
  function.setAllResultAttrs(attributes);
}

unsigned nsa::eraseDeadOps(func::FuncOp function) {
  unsigned erased = 0;
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op)) {
      op.erase();
      ++erased;
    }
  return erased;
}
