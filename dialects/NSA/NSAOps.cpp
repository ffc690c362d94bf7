//===- NSAOps.cpp - types, gradients and precision of nsa ops -------------===//

#include "dialects/NSA/NSAOps.h"
#include "dialects/Interfaces/AttributeNames.h"
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

/// The shape of `value` with `rows` rows.
static RankedTensorType withRows(Value value, int64_t rows) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[1] = rows;
  return type.clone(shape);
}

Value nsa::getSequenceStart(Operation *op) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<AttentionOp, AttentionBackwardOp, CompressOp, CompressBackwardOp,
            SelectOp, SelectionStatisticsOp, RotaryAttentionOp,
            CompressKeyValueOp, CompressKeyValueBackwardOp, nn::RotaryOp>(
          [](auto own) { return own.getStart(); })
      .Default(Value());
}

Value nsa::getQueryPlace(Operation *op) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<AttentionOp, AttentionBackwardOp, SelectOp, SelectionStatisticsOp,
            nn::RotaryOp>([](auto own) { return own.getAt(); })
      .Default(Value());
}

int64_t nsa::getNumKeys(VisibilityAttrInterface visibility, int64_t sequence,
                        Value start) {
  if (!start || ShapedType::isDynamic(sequence))
    return visibility.getNumKeys(sequence);
  return sequence / visibility.getKeyStride();
}

RankedTensorType nsa::getCompressedType(CompressedAttr compressed, Value x,
                                        Value start) {
  return withRows(x, getNumKeys(compressed, getDim(x, 1), start));
}

double nsa::getScoreScale(std::optional<APFloat> scale, Value query) {
  if (scale)
    return scale->convertToDouble();
  return 1.0 / std::sqrt(static_cast<double>(getDim(query, 3)));
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
// Result types
//===----------------------------------------------------------------------===//

static RankedTensorType withShape(ArrayRef<int64_t> shape, Type element) {
  return RankedTensorType::get(shape, element);
}

/// `rows` rows [B, rows, Hkv, D] of a cache, as many sequences as `numbers`
/// has.
static RankedTensorType getRowsType(Value cache, Value numbers, int64_t rows) {
  return withShape(
      {getDim(numbers, 0), rows, getDim(cache, 2), getDim(cache, 3)},
      getElementType(cache));
}

/// o [B, S, Hq, dv] for q [B, S, Hq, dk] and v [.., dv].
static RankedTensorType getOutputType(Value query, Value value) {
  ArrayRef<int64_t> q = getShape(query);
  return withShape({q[0], q[1], q[2], getDim(value, 3)}, getElementType(query));
}

/// f32 [B, Hq, S] for q [B, S, Hq, dk].
static RankedTensorType getLseType(Value query) {
  ArrayRef<int64_t> q = getShape(query);
  return withShape({q[0], q[2], q[1]}, Float32Type::get(query.getContext()));
}

/// The types of the gradients of parameters.
static SmallVector<Type> toF32(ValueRange parameters) {
  return llvm::map_to_vector(parameters, [](Value parameter) -> Type {
    return withShape(getShape(parameter),
                     Float32Type::get(parameter.getContext()));
  });
}

/// i32 [B, Hkv, queries, count].
template <typename AdaptorT>
static RankedTensorType getIndicesType(AdaptorT adaptor, int64_t queries) {
  Value query = adaptor.getQuery();
  return withShape({getDim(query, 0), getDim(adaptor.getKey(), 2), queries,
                    adaptor.getSelected().getCount()},
                   IntegerType::get(query.getContext(), 32));
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
  types.push_back(getOutputType(adaptor.getQuery(), adaptor.getValue()));
  types.push_back(getLseType(adaptor.getQuery()));
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

LogicalResult AttentionOp::buildBackward(OpBuilder &builder,
                                         ValueRange resultGrads,
                                         SmallVectorImpl<Value> &operandGrads) {
  FailureOr<bool> none = hasNoGradient(*this, resultGrads, operandGrads);
  if (failed(none) || *none)
    return none;
  auto backward = AttentionBackwardOp::create(
      builder, getLoc(), resultGrads[0], getQuery(), getKey(), getValue(),
      getOutput(), getLse(), getIndices(), getStart(), getAt(), getVisibility(),
      getScaleAttr(), getSoftcapAttr());
  NamedAttrList schedules(
      (*this)->getAttrOfType<DictionaryAttr>(kSchedulesAttr));
  for (auto own : {AttentionKernel::Forward, AttentionKernel::SelectedForward})
    schedules.erase(stringifyAttentionKernel(own));
  if (!schedules.empty())
    backward->setAttr(kSchedulesAttr, schedules.getDictionary(getContext()));
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

#define GET_OP_CLASSES
#include "dialects/NSA/NSAOps.cpp.inc"
