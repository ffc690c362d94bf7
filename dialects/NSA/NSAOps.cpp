//===- NSAOps.cpp - types, gradients and precision of nsa ops -------------===//

#include "dialects/NSA/NSAOps.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSASpellings.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace nsa;

int64_t nsa::getNumCompressedBlocks(int64_t sequence, int64_t block,
                                    int64_t stride) {
  if (ShapedType::isDynamic(sequence))
    return sequence;
  return sequence < block ? 0 : (sequence - block) / stride + 1;
}

Value nsa::getSequenceStart(Operation *op) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<AttentionOp, AttentionBackwardOp, CompressOp, CompressBackwardOp,
            SelectOp, SelectionStatisticsOp, RotaryAttentionOp,
            CompressKeyValueOp, CompressKeyValueBackwardOp, nn::RotaryOp>(
          [](auto own) { return own.getStart(); })
      .Default(Value());
}

int64_t nsa::getNumKeys(VisibilityAttrInterface visibility, int64_t sequence,
                        Value start) {
  if (!start || ShapedType::isDynamic(sequence))
    return visibility.getNumKeys(sequence);
  return sequence / visibility.getKeyStride();
}

unsigned nsa::getNumWeights(CompressionKind kind) {
  switch (kind) {
  case CompressionKind::Mean:
    return 0;
  case CompressionKind::Linear:
    return 1;
  case CompressionKind::Mlp:
    return 2;
  }
  llvm_unreachable("unknown compression");
}

//===----------------------------------------------------------------------===//
// Scale
//===----------------------------------------------------------------------===//

template <typename OpT>
static double scaleOrDefault(OpT op) {
  if (std::optional<APFloat> scale = op.getScale())
    return scale->convertToDouble();
  return 1.0 / std::sqrt(static_cast<double>(getDim(op.getQuery(), 3)));
}

double AttentionOp::getScaleOrDefault() { return scaleOrDefault(*this); }
double AttentionBackwardOp::getScaleOrDefault() {
  return scaleOrDefault(*this);
}
double SelectOp::getScaleOrDefault() { return scaleOrDefault(*this); }

//===----------------------------------------------------------------------===//
// Result types
//===----------------------------------------------------------------------===//

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static RankedTensorType withShape(ArrayRef<int64_t> shape, Type element) {
  return RankedTensorType::get(shape, element);
}

LogicalResult CompressOp::inferReturnTypes(MLIRContext *context,
                                           std::optional<Location> location,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  RankedTensorType x = typeOf(adaptor.getInput());
  SmallVector<int64_t> shape(x.getShape());
  shape[1] = getNumKeys(adaptor.getCompressed(), shape[1], adaptor.getStart());
  types.push_back(withShape(shape, x.getElementType()));
  return success();
}

LogicalResult CompressBackwardOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> location, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  for (Value parameter : adaptor.getParameters())
    types.push_back(withShape(getShape(parameter), Float32Type::get(context)));
  return success();
}

/// o [B, S, Hq, dv] and lse [B, Hq, S]. Text gives no types of results, so that
/// operands are not verified yet.
LogicalResult AttentionOp::inferReturnTypes(MLIRContext *context,
                                            std::optional<Location> location,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  auto q = dyn_cast<RankedTensorType>(adaptor.getQuery().getType());
  auto v = dyn_cast<RankedTensorType>(adaptor.getValue().getType());
  if (!q || !v || q.getRank() != 4 || v.getRank() != 4)
    return emitOptionalError(location,
                             "query and value must be tensors of rank 4");
  int64_t batch = q.getDimSize(0), sequence = q.getDimSize(1);
  int64_t heads = q.getDimSize(2), width = v.getDimSize(3);
  types.push_back(
      withShape({batch, sequence, heads, width}, q.getElementType()));
  types.push_back(
      withShape({batch, heads, sequence}, Float32Type::get(context)));
  return success();
}

/// dq, dk, dv have the types of q, k, v.
LogicalResult AttentionBackwardOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> location, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  llvm::append_range(types, TypeRange{adaptor.getQuery().getType(),
                                      adaptor.getKey().getType(),
                                      adaptor.getValue().getType()});
  return success();
}

LogicalResult SelectOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  ArrayRef<int64_t> q = getShape(adaptor.getQuery());
  types.push_back(withShape({q[0], getDim(adaptor.getKey(), 2), q[1],
                             adaptor.getSelected().getCount()},
                            IntegerType::get(context, 32)));
  return success();
}

LogicalResult CombineOp::inferReturnTypes(MLIRContext *context,
                                          std::optional<Location> location,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &types) {
  if (adaptor.getBranches().empty())
    return emitOptionalError(location, "branches (0) must be at least 1");
  types.push_back(adaptor.getBranches()[0].getType());
  return success();
}

LogicalResult CombineBackwardOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> location, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getGates().getType());
  types.append(adaptor.getBranches().size(), adaptor.getOutputGrad().getType());
  return success();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Checks that no gradient arrives at the lse of an attention op. Returns true
/// if there is nothing to do because none arrives at the output either.
static FailureOr<bool> hasNoGradient(Operation *op, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads.size() > 1 && resultGrads[1])
    return op->emitOpError("has no gradient with respect to lse");
  if (resultGrads[0])
    return false;
  operandGrads.append(op->getNumOperands(), Value());
  return true;
}

LogicalResult CompressOp::buildBackward(OpBuilder &builder,
                                        ValueRange resultGrads,
                                        SmallVectorImpl<Value> &operandGrads) {
  auto backward = CompressBackwardOp::create(
      builder, getLoc(), getKind(), resultGrads[0], getInput(), getParameters(),
      getStart(), getCompressed());
  llvm::append_range(operandGrads, backward.getResults());
  if (getStart())
    operandGrads.push_back(Value());
  return success();
}

LogicalResult AttentionOp::buildBackward(OpBuilder &builder,
                                         ValueRange resultGrads,
                                         SmallVectorImpl<Value> &operandGrads) {
  FailureOr<bool> none = hasNoGradient(*this, resultGrads, operandGrads);
  if (failed(none) || *none)
    return none;
  auto backward = AttentionBackwardOp::create(
      builder, getLoc(), resultGrads[0], getQuery(), getKey(), getValue(),
      getOutput(), getLse(), getIndices(), getStart(), getVisibility(),
      getScaleAttr(), getSoftcapAttr());
  llvm::append_range(operandGrads, backward.getResults());
  operandGrads.append(getNumOperands() - 3, Value());
  return success();
}

LogicalResult SelectOp::buildBackward(OpBuilder &builder,
                                      ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  operandGrads.append(getNumOperands(), Value());
  return success();
}

bool SelectOp::isDifferentiableOperand(unsigned index) { return false; }

LogicalResult CombineOp::buildBackward(OpBuilder &builder,
                                       ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  auto backward = CombineBackwardOp::create(builder, getLoc(), resultGrads[0],
                                            getGates(), getBranches());
  llvm::append_range(operandGrads, backward.getResults());
  return success();
}

#define GET_OP_CLASSES
#include "dialects/NSA/NSAOps.cpp.inc"
