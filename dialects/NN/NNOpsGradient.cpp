//===- NNOpsGradient.cpp - gradients and precision of nn ops --------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

/// Results after the first are statistics; no gradient may arrive there.
/// Returns true if none arrives at the first result either.
static FailureOr<bool> hasNoGradient(Operation *op, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  for (auto [index, gradient] : llvm::enumerate(resultGrads.drop_front()))
    if (gradient)
      return op->emitOpError("has no gradient with respect to result ")
             << index + 1;
  if (resultGrads[0])
    return false;
  operandGrads.append(op->getNumOperands(), Value());
  return true;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// `op(lhs) . op(rhs)` as the gradient of `primal`, with its shape.
static FailureOr<Value> buildProduct(OpBuilder &builder, MatmulOp op,
                                     Value primal, Value lhs, bool transposeLhs,
                                     Value rhs, bool transposeRhs,
                                     Type element) {
  auto product =
      MatmulOp::create(builder, op.getLoc(), lhs, rhs, Value(), transposeLhs,
                       transposeRhs, TypeAttr::get(element));
  if (product.getType().getShape() == getShape(primal))
    return product.getOutput();
  std::string found = formatShape(getShape(primal));
  std::string matrix = formatShape(product.getType().getShape());
  product.erase();
  return op.emitOpError("has an operand of shape ")
         << found << " whose gradient has the shape " << matrix;
}

LogicalResult
GatherHaloOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  auto parts = ReduceScatterHaloOp::create(builder, getLoc(), resultGrads[0],
                                           getRanks(), getTokens());
  operandGrads.push_back(
      AddOp::create(builder, getLoc(), parts.getOwn(), parts.getReceived()));
  return success();
}

LogicalResult MatmulOp::buildBackward(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  Value dy = resultGrads[0];
  bool tl = getTransposeLhs(), tr = getTransposeRhs();
  Type activation = nsa::getElementType(getLhs());
  // Both operands of a matmul have one type, whatever that of the result.
  Value factor = dy;
  if (nsa::getElementType(dy) != activation)
    factor = CastOp::create(builder, getLoc(), dy, activation);
  FailureOr<Value> lhsGrad =
      tl ? buildProduct(builder, *this, getLhs(), getRhs(), tr, factor, true,
                        activation)
         : buildProduct(builder, *this, getLhs(), factor, false, getRhs(), !tr,
                        activation);
  if (failed(lhsGrad))
    return failure();
  // The right-hand side is a weight; its gradient is accumulated in fp32.
  Type weight = builder.getF32Type();
  FailureOr<Value> rhsGrad =
      tr ? buildProduct(builder, *this, getRhs(), factor, true, getLhs(), tl,
                        weight)
         : buildProduct(builder, *this, getRhs(), getLhs(), !tl, factor, false,
                        weight);
  if (failed(rhsGrad))
    return failure();
  operandGrads.append({*lhsGrad, *rhsGrad});
  if (getAccumulator())
    operandGrads.push_back(dy);
  return success();
}

LogicalResult RMSNormOp::buildBackward(OpBuilder &builder,
                                       ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  FailureOr<bool> none = hasNoGradient(*this, resultGrads, operandGrads);
  if (failed(none) || *none)
    return none;
  auto backward =
      RMSNormBackwardOp::create(builder, getLoc(), resultGrads[0], getInput(),
                                getWeight(), getRstd(), getPlusOne(),
                                /*partial_sums=*/IntegerAttr());
  llvm::append_range(operandGrads, backward.getResults());
  return success();
}

LogicalResult AddBiasOp::buildBackward(OpBuilder &builder,
                                       ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  operandGrads.push_back(resultGrads[0]);
  operandGrads.push_back(SumRowsOp::create(builder, getLoc(), resultGrads[0],
                                           /*partial_sums=*/IntegerAttr()));
  return success();
}

bool RotaryOp::isDifferentiableOperand(unsigned index) { return index == 0; }

LogicalResult SplitOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  SmallVector<Value> gradients(resultGrads);
  for (auto [gradient, part] : llvm::zip_equal(gradients, getParts()))
    if (!gradient)
      gradient = FillOp::create(builder, getLoc(), builder.getF64FloatAttr(0.0),
                                TypeAttr::get(part.getType()));
  operandGrads.push_back(
      ConcatOp::create(builder, getLoc(), gradients, getRows()));
  return success();
}

/// The gradients of `parts` that follow each other along `axis`: the first
/// dimension, with `rows`, or the last. A part without elements has nothing to
/// be cut from the gradient of the whole.
static void splitGradient(OpBuilder &builder, Location loc, Value gradient,
                          ValueRange parts, unsigned axis, bool rows,
                          SmallVectorImpl<Value> &operandGrads) {
  SmallVector<int64_t> sizes;
  for (Value part : parts)
    if (int64_t size = getDim(part, axis))
      sizes.push_back(size);
  ValueRange cut;
  if (!sizes.empty())
    cut = SplitOp::create(builder, loc, gradient, sizes, rows).getParts();
  for (Value part : parts) {
    if (getDim(part, axis) == 0) {
      auto type =
          RankedTensorType::get(getShape(part), nsa::getElementType(gradient));
      operandGrads.push_back(FillOp::create(
          builder, loc, builder.getF64FloatAttr(0.0), TypeAttr::get(type)));
      continue;
    }
    operandGrads.push_back(cut.front());
    cut = cut.drop_front();
  }
}

LogicalResult ConcatOp::buildBackward(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  splitGradient(builder, getLoc(), resultGrads[0], getParts(), getAxis(),
                getRows(), operandGrads);
  return success();
}

/// A flat group of matrices with as many columns as the whole.
LogicalResult FlattenOp::buildBackward(OpBuilder &builder,
                                       ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  ArrayRef<int64_t> whole = getShape(getOutput());
  for (Value part : getParts()) {
    ArrayRef<int64_t> shape = getShape(part);
    if (whole.size() < 2 || shape.size() != whole.size() ||
        shape.drop_front() != whole.drop_front())
      return emitOpError("has a part of shape ")
             << formatShape(shape)
             << " and no gradient, as the whole has shape "
             << formatShape(whole);
  }
  splitGradient(builder, getLoc(), resultGrads[0], getParts(), /*axis=*/0,
                /*rows=*/true, operandGrads);
  return success();
}

LogicalResult GateOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  auto backward =
      GateBackwardOp::create(builder, getLoc(), getActivation(), resultGrads[0],
                             getGates(), nsa::getElementType(getLogits()),
                             /*partial_sums=*/IntegerAttr());
  operandGrads.push_back(backward.getLogitsGrad());
  if (getBias())
    operandGrads.push_back(backward.getBiasGrad());
  return success();
}

LogicalResult AddOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                                   SmallVectorImpl<Value> &operandGrads) {
  operandGrads.append(2, resultGrads[0]);
  return success();
}

LogicalResult CastOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  operandGrads.push_back(builder.createOrFold<CastOp>(
      getLoc(), resultGrads[0], nsa::getElementType(getInput())));
  return success();
}

/// The gradient of a cast weight is fp32 and must not be rounded on its way.
bool CastOp::takesWiderGradients() { return true; }

LogicalResult
CrossEntropyOp::buildBackward(OpBuilder &builder, ValueRange resultGrads,
                              SmallVectorImpl<Value> &operandGrads) {
  FailureOr<bool> none = hasNoGradient(*this, resultGrads, operandGrads);
  if (failed(none) || *none)
    return none;
  operandGrads.push_back(CrossEntropyBackwardOp::create(
      builder, getLoc(), resultGrads[0], getLogits(), getTargets(), getLse(),
      getDivisor(builder)));
  operandGrads.push_back(Value());
  return success();
}

int64_t CrossEntropyOp::getNumTargets() {
  return ShapedType::getNumElements(getShape(getTargets()));
}

Value CrossEntropyOp::getDivisor(OpBuilder &builder) {
  if (!getOverAll())
    return getCount();
  return FillOp::create(builder, getLoc(),
                        builder.getF64FloatAttr(double(getNumTargets())),
                        TypeAttr::get(getCount().getType()));
}
