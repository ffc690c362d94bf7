//===- OptimizerOpInterface.cpp - steps of optimizers ---------------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace nsa;

#include "dialects/Interfaces/OptimizerOpInterface.cpp.inc"

LogicalResult nsa::verifyOptimizerOp(Operation *op) {
  auto weight = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  if (!weight)
    return op->emitOpError("updates ")
           << op->getOperand(0).getType() << ", which is no ranked tensor";
  auto step = cast<OptimizerOpInterface>(op);
  if (!step.canUpdate(weight))
    return op->emitOpError("cannot update a weight of type ") << weight;
  SmallVector<OptimizerState> states = step.getStateSpecs(weight);
  size_t expected = states.size() + 5;
  if (op->getNumOperands() != expected ||
      op->getNumResults() != states.size() + 1)
    return op->emitOpError("has ")
           << op->getNumOperands() << " operands and " << op->getNumResults()
           << " results, expected " << expected << " and " << states.size() + 1;
  for (auto [state, value, result] :
       llvm::zip_equal(states, step.getStates(), step.getNewStates()))
    for (Type type : {value.getType(), result.getType()})
      if (type != state.type)
        return op->emitOpError("has the state `")
               << state.name << "` of type " << type << ", expected "
               << state.type;
  for (Type type :
       {step.getGradient().getType(), step.getNewWeight().getType()})
    if (type != weight)
      return op->emitOpError("has a gradient or a new weight of type ")
             << type << ", but a weight of type " << weight;
  return success();
}

OptimizerOpInterface OptimizerOpInterface::createFor(OpBuilder &builder,
                                                     Location loc,
                                                     ValueRange tensors) {
  SmallVector<Value> operands(tensors);
  llvm::append_range(operands,
                     (*this)->getOperands().drop_front(2 + getNumStates()));
  OperationState state(loc, (*this)->getName());
  state.addOperands(operands);
  state.addTypes(tensors.drop_back().getTypes());
  state.addAttributes((*this)->getAttrs());
  return cast<OptimizerOpInterface>(builder.create(state));
}

std::optional<OptimizerKind> OptimizerKind::find(MLIRContext *context,
                                                 StringRef kind) {
  auto name = RegisteredOperationName::lookup(("nn." + kind).str(), context);
  if (!name)
    return std::nullopt;
  auto *methods = name->getInterface<OptimizerOpInterface>();
  if (!methods)
    return std::nullopt;
  return OptimizerKind(*name, methods);
}

SmallVector<StringRef> OptimizerKind::list(MLIRContext *context) {
  SmallVector<StringRef> kinds;
  for (RegisteredOperationName name :
       context->getRegisteredOperationsByDialect("nn"))
    if (name.hasInterface<OptimizerOpInterface>())
      kinds.push_back(name.stripDialect());
  llvm::sort(kinds);
  return kinds;
}

OptimizerOpInterface OptimizerKind::create(OpBuilder &builder, Location loc,
                                           ValueRange operands, bool decay,
                                           Type compute) const {
  OperationState state(loc, name);
  state.addOperands(operands);
  auto weight = cast<RankedTensorType>(operands[0].getType());
  state.addTypes(weight);
  for (const OptimizerState &kept : getStateSpecs(weight))
    state.addTypes(kept.type);
  if (decay)
    state.addAttribute("decay", builder.getUnitAttr());
  constexpr StringLiteral elementType = "element_type";
  if (!compute.isF32() &&
      llvm::is_contained(name.getAttributeNames(), elementType))
    state.addAttribute(elementType, TypeAttr::get(compute));
  return cast<OptimizerOpInterface>(builder.create(state));
}
