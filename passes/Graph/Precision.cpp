//===- Precision.cpp - mixed precision ------------------------------------===//

#include "dialects/NN/NNModuleOps.h"
#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSwitch.h"

#define DEBUG_TYPE "nsa-precision"

namespace nsa {
#define GEN_PASS_DEF_PRECISION
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

std::optional<ComputePrecision> nsa::parsePrecision(StringRef name) {
  return llvm::StringSwitch<std::optional<ComputePrecision>>(name)
      .Case("fp32", ComputePrecision::FP32)
      .Case("bf16", ComputePrecision::BF16)
      .Case("fp16", ComputePrecision::FP16)
      .Default(std::nullopt);
}

namespace {

/// Rewrites one function so that it computes in `compute`.
class Narrowing {
public:
  Narrowing(func::FuncOp function, Type compute)
      : function(function), builder(function.getContext()), compute(compute) {}

  LogicalResult run();
  unsigned getNumCasts() const { return numCasts; }

private:
  /// The element type that the operation takes at an operand, or null to leave
  /// the operand alone. `written` is the type before the pass.
  Type getOperandElement(Operation *op, unsigned index, Type written);
  LogicalResult rewrite(Operation *op);
  /// The value with another element type, made before `user` at first.
  Value castTo(Value value, Type element, Operation *user);

  func::FuncOp function;
  OpBuilder builder;
  Type compute;
  unsigned numCasts = 0;
  /// Casts made so far, and the types values had before the pass.
  DenseMap<std::pair<Value, Type>, Value> casts;
  DenseMap<Value, Type> writtenTypes;
};

struct PrecisionPass : nsa::impl::PrecisionBase<PrecisionPass> {
  using PrecisionBase::PrecisionBase;
  void runOnOperation() override;
};

} // namespace

Type Narrowing::getOperandElement(Operation *op, unsigned index, Type written) {
  auto precise = dyn_cast<PrecisionOpInterface>(op);
  if (!precise)
    return written;
  switch (precise.getOperandPrecision(index)) {
  case OperandPrecision::Compute:
    return compute;
  case OperandPrecision::Full:
    return builder.getF32Type();
  case OperandPrecision::Any:
    return {};
  }
  llvm_unreachable("unknown operand precision");
}

Value Narrowing::castTo(Value value, Type element, Operation *user) {
  if (getElementTypeOrSelf(value) == element)
    return value;
  Value &cast = casts[{value, element}];
  if (!cast) {
    builder.setInsertionPoint(user);
    cast = nn::CastOp::create(builder, user->getLoc(), value, element);
    ++numCasts;
  }
  return cast;
}

LogicalResult Narrowing::rewrite(Operation *op) {
  bool changed = false;
  for (OpOperand &operand : op->getOpOperands()) {
    Value value = operand.get();
    if (!isFloatTensor(value.getType()))
      continue;
    Type written = writtenTypes.lookup(value);
    Type now = value.getType();
    if (Type element = getOperandElement(op, operand.getOperandNumber(),
                                         getElementTypeOrSelf(written)))
      operand.set(castTo(value, element, op));
    changed |= now != written || operand.get().getType() != written;
  }
  return changed ? inferResultTypes(op) : success();
}

LogicalResult Narrowing::run() {
  FailureOr<func::ReturnOp> ret = getReturn(function);
  if (failed(ret))
    return failure();
  for (BlockArgument argument : function.getArguments())
    writtenTypes[argument] = argument.getType();
  for (Operation &op :
       llvm::make_early_inc_range(function.front().without_terminator())) {
    for (Value result : op.getResults())
      writtenTypes[result] = result.getType();
    if (failed(rewrite(&op)))
      return failure();
  }
  for (OpOperand &operand : (*ret)->getOpOperands()) {
    Type written = writtenTypes.lookup(operand.get());
    if (isFloatTensor(written))
      operand.set(castTo(operand.get(), getElementTypeOrSelf(written), *ret));
  }
  return success();
}

/// Makes the gradient of the loss a persistent scale.
static LogicalResult addLossScale(func::FuncOp function) {
  if (std::optional<unsigned> taken =
          nn::findArgument(function, training::lossScaleState))
    return function.emitError("argument ")
           << *taken << " has the name `" << training::lossScaleState
           << "`, which fp16 needs for the scale of the loss";
  // The largest of the usual first scales: what does not fit halves it.
  constexpr double firstScale = 65536;
  Builder builder(function.getContext());
  Signature signature(function);
  BlockArgument scale = signature.addState(
      training::lossScaleState, nn::ArgumentRole::State, firstScale,
      RankedTensorType::get({}, builder.getF32Type()), function.getLoc());
  signature.getArgument(scale.getArgNumber())
      .set(nn::kSeedAttr, builder.getUnitAttr());
  signature.update();
  return success();
}

void PrecisionPass::runOnOperation() {
  // The attribute of the model is only valid before this point.
  auto own = getOperation()->getAttrOfType<StringAttr>(nn::kPrecisionAttr);
  getOperation()->removeAttr(nn::kPrecisionAttr);
  ComputePrecision precision = this->precision;
  if (precision == ComputePrecision::Model)
    precision = own ? parsePrecision(own).value_or(ComputePrecision::FP32)
                    : ComputePrecision::FP32;
  bool isHalf = precision == ComputePrecision::FP16;
  Type compute = isHalf ? Type(Float16Type::get(&getContext()))
                        : BFloat16Type::get(&getContext());
  bool isFull = precision == ComputePrecision::FP32;
  StringRef name = isFull ? "fp32" : isHalf ? "fp16" : "bf16";
  if (own && own != name)
    remark::analysis(
        getOperation().getLoc(),
        remark::RemarkOpts::name("Overridden").category(DEBUG_TYPE))
        << remark::add("computes in {0}, as the option precision says; the "
                       "model says {1}",
                       name, own.getValue());
  if (isFull)
    return;
  bool found = false;
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (function.isExternal() || !nn::isTrainable(function))
      continue;
    found = true;
    Narrowing narrowing(function, compute);
    if (failed(narrowing.run()) || (isHalf && failed(addLossScale(function))))
      return signalPassFailure();
    numCasts += narrowing.getNumCasts();
    remark::passed(function.getLoc(), remark::RemarkOpts::name("Narrowed")
                                          .category(DEBUG_TYPE)
                                          .function(function.getName()))
        << remark::add("computes in {0} with {1} casts", name,
                       narrowing.getNumCasts());
  }
  if (found)
    return;
  getOperation().emitError("option precision (")
      << name
      << ") has no effect: no function is marked nn.train, and others keep the "
         "types they are written with";
  signalPassFailure();
}
