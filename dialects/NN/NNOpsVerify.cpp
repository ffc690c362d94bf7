//===- NNOpsVerify.cpp - constraints of nn ops ----------------------------===//
//
// Ranks, element types and positive attributes are ODS constraints; what
// relates two operands or attributes is here.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

LogicalResult EmbeddingOp::verify() {
  return checkNotEmpty(*this, "table", getTable());
}

LogicalResult EmbeddingBackwardOp::verify() {
  SmallVector<int64_t> expected(getShape(getIds()));
  expected.push_back(getShape(getOutputGrad()).back());
  return checkShape(*this, "output gradient", getOutputGrad(), expected);
}

LogicalResult MatmulOp::verify() {
  int64_t rhsRows = saturatingElements(getShape(getRhs()).drop_back());
  int64_t rhsLength = getTransposeRhs() ? getShape(getRhs()).back() : rhsRows;
  if (getAccumulator() && getAccumulator().getType() != getType())
    return emitOpError("adds ") << getAccumulator().getType()
                                << " to a matmul of type " << getType();
  return checkEqual(
      *this, getTransposeLhs() ? "rows of lhs" : "columns of lhs", getSizes().k,
      getTransposeRhs() ? "columns of rhs" : "rows of rhs", rhsLength);
}

LogicalResult FillOp::verify() {
  if (!getOutput().getType().getElementType().isInteger())
    return success();
  bool isExact = false;
  APSInt integer(/*BitWidth=*/32, /*isUnsigned=*/false);
  getValue().convertToInteger(integer, APFloat::rmTowardZero, &isExact);
  if (isExact)
    return success();
  return emitOpError("fills ")
         << getType() << " with " << getValue().convertToDouble()
         << ", which is no 32-bit integer";
}

template <typename OpT>
static LogicalResult verifyRMSNorm(OpT op) {
  if (failed(checkNotEmpty(op, "weight", op.getWeight())))
    return failure();
  return checkEqual(op, "length of weight", getDim(op.getWeight(), 0),
                    "width of input", getShape(op.getInput()).back());
}

LogicalResult RMSNormOp::verify() { return verifyRMSNorm(*this); }

/// A sum over rows of this shape has no more parts than there are rows.
template <typename OpT>
static LogicalResult verifyPartialSums(OpT op, ArrayRef<int64_t> rows) {
  return checkAtMost(op, "partial sums", op.getPartialSums().value_or(1),
                     "rows", std::max<int64_t>(saturatingElements(rows), 1));
}

LogicalResult RMSNormBackwardOp::verify() {
  ArrayRef<int64_t> rows = getShape(getInput()).drop_back();
  if (failed(verifyRMSNorm(*this)) ||
      failed(checkShape(*this, "rstd", getRstd(), rows)))
    return failure();
  return verifyPartialSums(*this, rows);
}

LogicalResult AddBiasOp::verify() {
  return checkEqual(*this, "length of bias", getDim(getBias(), 0),
                    "width of input", getShape(getInput()).back());
}

LogicalResult SumRowsOp::verify() {
  return verifyPartialSums(*this, getShape(getInput()).drop_back());
}

LogicalResult RotaryOp::verify() {
  int64_t rows = getDim(getInput(), 1), width = getDim(getInput(), 3);
  if (failed(checkMultiple(*this, "head width", width, "pair size", 2)))
    return failure();
  int64_t length = getDim(getTable(), 0);
  if (failed(checkShape(*this, "table", getTable(), {length, width / 2, 2})))
    return failure();
  if (getAt() &&
      failed(checkShape(*this, "at", getAt(), {getDim(getInput(), 0), 2})))
    return failure();
  if (Value start = getStart();
      start && !getAt() &&
      (failed(checkEqual(*this, "start rows", getDim(start, 0), "batch",
                         getDim(getInput(), 0))) ||
       failed(checkEqual(*this, "strides of the packed sequences",
                         getDim(start, 1) / getStride(), "rows", rows))))
    return failure();
  if (rows == 0)
    return success();
  int64_t last = saturatingProduct(rows - 1, getStride());
  if (last < length)
    return success();
  return emitOpError("table length (")
         << length << ") must be above the last position (" << last << ")";
}

LogicalResult SplitHeadsOp::verify() {
  return checkMultiple(*this, "width", getDim(getInput(), 2), "heads",
                       getHeads());
}

/// The extents of `parts` along `axis` add up to that of the whole.
static LogicalResult verifyParts(Operation *op, unsigned axis, ValueRange parts,
                                 Value whole) {
  int64_t sum = 0;
  for (Value part : parts) {
    SmallVector<int64_t> expected(getShape(whole));
    if (getShape(part).size() == expected.size())
      expected[axis] = getDim(part, axis);
    if (failed(checkShape(op, "part", part, expected)))
      return failure();
    sum += getDim(part, axis);
  }
  return checkEqual(op, "extent of all parts", sum, "extent of the whole",
                    getDim(whole, axis));
}

LogicalResult SplitOp::verify() {
  if (getParts().empty())
    return emitOpError("has 0 parts, but needs 1 at least");
  return verifyParts(*this, getAxis(), getParts(), getInput());
}

LogicalResult ConcatOp::verify() {
  return verifyParts(*this, getAxis(), getParts(), getOutput());
}

/// The softmax of one number would be 1, whatever it is.
template <typename OpT>
static LogicalResult verifyBranches(OpT op, int64_t branches) {
  int64_t fewest = op.getActivation() == GateActivation::Softmax ? 2 : 1;
  if (branches >= fewest)
    return success();
  return op.emitOpError("branches (")
         << branches << ") must be at least " << fewest << " for "
         << stringifyGateActivation(op.getActivation());
}

LogicalResult GateOp::verify() {
  int64_t width = getDim(getLogits(), 2), branches = getBranches();
  if (failed(verifyBranches(*this, branches)) ||
      failed(
          checkMultiple(*this, "width of logits", width, "branches", branches)))
    return failure();
  if (!getBias())
    return success();
  return checkShape(*this, "bias", getBias(), {width});
}

LogicalResult GateBackwardOp::verify() {
  if (failed(verifyBranches(*this, getDim(getGates(), 3))))
    return failure();
  return verifyPartialSums(*this, getShape(getGates()).take_front(2));
}

template <typename OpT>
static LogicalResult verifyCrossEntropy(OpT op) {
  if (failed(checkNotEmpty(op, "logits", op.getLogits())))
    return failure();
  return checkShape(op, "targets", op.getTargets(),
                    getShape(op.getLogits()).drop_back());
}

LogicalResult CrossEntropyOp::verify() { return verifyCrossEntropy(*this); }

LogicalResult CrossEntropyBackwardOp::verify() {
  if (failed(verifyCrossEntropy(*this)))
    return failure();
  return checkShape(*this, "lse", getLse(), getShape(getTargets()));
}

LogicalResult ArgmaxOp::verify() {
  if (failed(checkNotEmpty(*this, "logits", getLogits())))
    return failure();
  return checkShape(*this, "bias", getBias(), {getShape(getLogits()).back()});
}

LogicalResult AverageStepOp::verify() {
  return checkShape(*this, "hyper", getHyper(), {training::numHyper});
}

LogicalResult UpdateLossScaleOp::verify() {
  return checkShape(*this, "hyper", getHyper(), {training::numHyper});
}

/// Each rank has as many elements of the whole.
static LogicalResult verifyPart(Operation *op, Value part, Value whole) {
  int64_t own = saturatingElements(getShape(part));
  int64_t elements = saturatingElements(getShape(whole));
  if (own == 0 || elements % own != 0)
    return op->emitOpError("has a part of ")
           << own << " elements of " << elements;
  return success();
}

LogicalResult SliceShardOp::verify() {
  return verifyPart(*this, getPart(), getInput());
}

LogicalResult AllGatherOp::verify() {
  return verifyPart(*this, getPart(), getWhole());
}

LogicalResult GatherSequenceOp::verify() {
  return checkMultiple(*this, "chunks", getDim(getInput(), 0),
                       "chunks of a sequence on each rank", 2);
}

LogicalResult ReduceScatterSequenceOp::verify() {
  return checkMultiple(*this, "tokens", getDim(getInput(), 1),
                       "chunks of a sequence", 2 * int64_t(getRanks()));
}

LogicalResult GatherHaloOp::verify() {
  if (failed(checkMultiple(*this, "chunks", getDim(getInput(), 0),
                           "chunks of a sequence on each rank", 2)))
    return failure();
  return checkAtMost(*this, "tokens before a chunk", int64_t(getTokens()),
                     "its tokens", getDim(getInput(), 1));
}

LogicalResult ReduceScatterHaloOp::verify() {
  return checkAtMost(*this, "tokens before a chunk", int64_t(getTokens()),
                     "its tokens", getDim(getOwn(), 1));
}

//===----------------------------------------------------------------------===//
// Flat groups
//===----------------------------------------------------------------------===//

int64_t nn::getFlatLength(TypeRange parts) {
  int64_t length = 0;
  for (Type part : parts)
    length += llvm::alignTo(
        saturatingElements(cast<ShapedType>(part).getShape()), kFlatAlignment);
  return length;
}

static LogicalResult verifyFlatGroup(Operation *op, TypeRange parts,
                                     ArrayAttr tensors, Value whole) {
  if (parts.size() != tensors.size())
    return op->emitOpError("has ") << parts.size() << " parts, but names "
                                   << tensors.size() << " tensors";
  llvm::SmallDenseSet<Attribute> seen;
  for (Attribute tensor : tensors)
    if (!seen.insert(tensor).second)
      return op->emitOpError("names the tensor ") << tensor << " twice";
  int64_t length = nn::getFlatLength(parts);
  int64_t elements = saturatingElements(getShape(whole));
  if (length != elements)
    return op->emitOpError("has parts of ")
           << length << " elements together, but the whole has " << elements;
  return success();
}

LogicalResult FlattenOp::verify() {
  return verifyFlatGroup(*this, getParts().getTypes(), getTensors(),
                         getOutput());
}

LogicalResult UnflattenOp::verify() {
  return verifyFlatGroup(*this, getParts().getTypes(), getTensors(),
                         getInput());
}
