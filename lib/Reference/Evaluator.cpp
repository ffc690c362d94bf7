//===- Evaluator.cpp - runs nsa and nn functions in fp64 ------------------===//

#include "lib/Reference/Evaluator.h"

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace nsa::reference;

double nsa::reference::roundTo(Type type, double value) {
  auto floatType = dyn_cast<FloatType>(type);
  if (!floatType)
    return value;
  llvm::APFloat rounded(value);
  bool losesInfo = false;
  rounded.convert(floatType.getFloatSemantics(),
                  llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  rounded.convert(llvm::APFloat::IEEEdouble(),
                  llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return rounded.convertToDouble();
}

std::vector<int64_t> nsa::reference::shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape().vec();
}

Evaluator::Evaluator(bool roundResults) : roundResults(roundResults) {
  addNSAHandlers(*this);
  addNNHandlers(*this);
}

template <typename OpT>
LogicalResult Evaluator::runFused(OpT op,
                                  llvm::DenseMap<Value, Tensor> &values) const {
  for (auto [argument, input] :
       llvm::zip_equal(op.getBody().getArguments(), op.getInputs())) {
    Tensor copy = values.find(input)->second;
    values[argument] = std::move(copy);
  }
  for (Operation &inner : op.getBody().front().without_terminator())
    if (failed(runOp(&inner, values)))
      return failure();
  for (auto [output, yielded] :
       llvm::zip_equal(op.getOutputs(), op.getYielded())) {
    Tensor copy = values.find(yielded)->second;
    values[output] = std::move(copy);
  }
  return success();
}

LogicalResult Evaluator::runOp(Operation *op,
                               llvm::DenseMap<Value, Tensor> &values) const {
  if (auto fused = dyn_cast<nn::FusedOp>(op))
    return runFused(fused, values);
  if (auto fused = dyn_cast<FusedOp>(op))
    return runFused(fused, values);
  auto handler = handlers.find(op->getName().getStringRef());
  if (handler == handlers.end())
    return op->emitOpError("has no meaning in the reference evaluator");
  SmallVector<const Tensor *> operands;
  for (Value operand : op->getOperands())
    operands.push_back(&values.find(operand)->second);
  SmallVector<Tensor> results;
  if (failed(handler->second(op, operands, results)))
    return failure();
  if (resultHook)
    resultHook(op, results);
  for (auto [value, tensor] : llvm::zip_equal(op->getResults(), results)) {
    if (tensor.shape != shapeOf(value))
      return op->emitOpError("evaluates to another shape than its type ")
             << value.getType();
    if (roundResults) {
      Type type = getElementTypeOrSelf(value.getType());
      for (double &x : tensor.data)
        x = roundTo(type, x);
    }
    values[value] = std::move(tensor);
  }
  return success();
}

LogicalResult Evaluator::run(func::FuncOp function, ArrayRef<Tensor> inputs,
                             SmallVectorImpl<Tensor> &results) const {
  if (inputs.size() != function.getNumArguments())
    return function.emitOpError("takes ")
           << function.getNumArguments() << " arguments but " << inputs.size()
           << " were given";
  llvm::DenseMap<Value, Tensor> values;
  for (auto [argument, input] :
       llvm::zip_equal(function.getArguments(), inputs)) {
    if (input.shape != shapeOf(argument))
      return function.emitOpError("argument ")
             << argument.getArgNumber() << " has another shape than "
             << argument.getType();
    values[argument] = input;
  }
  for (Operation &op : function.getBody().front().without_terminator())
    if (failed(runOp(&op, values)))
      return failure();
  Operation *terminator = function.getBody().front().getTerminator();
  for (Value value : terminator->getOperands())
    results.push_back(values[value]);
  return success();
}
