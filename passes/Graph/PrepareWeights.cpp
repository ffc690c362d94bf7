//===- PrepareWeights.cpp - what follows from weights alone ---------------===//
//
// A step of generation reads each weight once: converting the weights in each
// step would take longer than the rest.
//
//===----------------------------------------------------------------------===//

#include "passes/Graph/PrepareWeights.h"
#include "dialects/Interfaces/RecomputeTraits.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace nsa;

/// The operations that need nothing but parameters and constants, in order.
static llvm::SetVector<Operation *> findOps(func::FuncOp function) {
  llvm::SetVector<Operation *> ops;
  auto isKnown = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument)
      return ops.contains(value.getDefiningOp());
    auto role = nn::getArgumentRole(function, argument.getArgNumber());
    return role == nn::ArgumentRole::Parameter ||
           role == nn::ArgumentRole::Constant;
  };
  for (Operation &op : function.front().without_terminator())
    if (op.getNumOperands() > 0 && isPure(&op) &&
        llvm::all_of(op.getOperands(), isKnown))
      ops.insert(&op);
  return ops;
}

/// The results that others need. Views are no work: others keep them.
static SmallVector<Value> findResults(const llvm::SetVector<Operation *> &ops) {
  auto isComputed = [&](Operation *op) {
    return ops.contains(op) && !op->hasTrait<ViewOfOperand>() &&
           !op->hasTrait<ViewOfArguments>();
  };
  SmallVector<Value> results;
  for (Operation *op : ops)
    for (Value result : op->getResults())
      if (isComputed(op) && !llvm::all_of(result.getUsers(), isComputed))
        results.push_back(result);
  return results;
}

void nsa::prepareWeights(func::FuncOp function) {
  llvm::SetVector<Operation *> ops = findOps(function);
  SmallVector<Value> results = findResults(ops);
  if (results.empty())
    return;
  OpBuilder builder(function);
  auto prepare =
      func::FuncOp::create(builder, function.getLoc(), training::prepareEntry,
                           builder.getFunctionType({}, {}));
  Block *body = prepare.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  func::ReturnOp::create(builder, function.getLoc());
  builder.setInsertionPointToStart(body);
  Signature own(prepare), signature(function);
  IRMapping mapping;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand);
          argument && !mapping.contains(argument))
        mapping.map(argument, own.addArgument(argument.getType(),
                                              function.getArgAttrDict(
                                                  argument.getArgNumber()),
                                              argument.getLoc()));
    builder.clone(*op, mapping);
  }
  for (auto [number, value] : llvm::enumerate(results)) {
    std::string name = training::preparedPrefix + std::to_string(number);
    own.addState(name, nn::ArgumentRole::State, /*initial=*/0.0,
                 value.getType(), value.getLoc());
    NamedAttrList attributes;
    attributes.set(nn::kAliasAttr, builder.getStringAttr(name));
    own.addResult(mapping.lookup(value), attributes);
    BlockArgument state =
        signature.addState(name, nn::ArgumentRole::State, /*initial=*/0.0,
                           value.getType(), value.getLoc());
    value.replaceAllUsesWith(state);
  }
  own.update();
  signature.update();
  eraseDeadOps(prepare);
  eraseDeadOps(function);
}
