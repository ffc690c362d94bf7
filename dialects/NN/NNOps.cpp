//===- NNOps.cpp - types and folders of nn ops ----------------------------===//

#include "dialects/NN/NNOps.h"
#include "dialects/Interfaces/ShapeChecks.h"

#include "mlir/IR/Builders.h"

#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

static RankedTensorType withElement(Value value, Type element) {
  return RankedTensorType::get(getShape(value), element);
}

static SmallVector<Type> withElement(ValueRange values, Type element) {
  return llvm::map_to_vector(
      values, [&](Value value) -> Type { return withElement(value, element); });
}

/// The chunks of `ranks` ranks together, two of each sequence.
static RankedTensorType getGatheredType(Value chunks, int64_t ranks) {
  SmallVector<int64_t> shape(getShape(chunks));
  shape[0] /= 2;
  shape[1] *= 2 * ranks;
  return RankedTensorType::get(shape, getElementType(chunks));
}

/// The opposite.
static RankedTensorType getScatteredType(Value whole, int64_t ranks) {
  SmallVector<int64_t> shape(getShape(whole));
  shape[0] *= 2;
  shape[1] /= 2 * ranks;
  return RankedTensorType::get(shape, getElementType(whole));
}

/// The same rows with so many more tokens.
static RankedTensorType getHaloType(Value chunks, int64_t tokens) {
  SmallVector<int64_t> shape(getShape(chunks));
  shape[1] = std::max<int64_t>(shape[1] + tokens, 0);
  return RankedTensorType::get(shape, getElementType(chunks));
}

/// All dimensions but the last.
static ArrayRef<int64_t> leadingShape(Value value) {
  return getShape(value).drop_back();
}

/// The leading dimensions followed by `last`.
static RankedTensorType withLast(ArrayRef<int64_t> leading, int64_t last,
                                 Type element) {
  SmallVector<int64_t> shape(leading);
  shape.push_back(last);
  return RankedTensorType::get(shape, element);
}

/// A sum over rows, or partial sums, as many as `partialSums` says.
static RankedTensorType getRowSumType(MLIRContext *context, int64_t width,
                                      IntegerAttr partialSums) {
  Type f32 = Float32Type::get(context);
  if (!partialSums)
    return RankedTensorType::get(width, f32);
  return RankedTensorType::get({partialSums.getInt(), width}, f32);
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

MatmulOp::Sizes MatmulOp::getSizes() {
  int64_t lhsRows = saturatingElements(leadingShape(getLhs()));
  int64_t lhsColumns = getShape(getLhs()).back();
  int64_t rhsRows = saturatingElements(leadingShape(getRhs()));
  int64_t rhsColumns = getShape(getRhs()).back();
  return {getTransposeLhs() ? lhsColumns : lhsRows,
          getTransposeRhs() ? rhsRows : rhsColumns,
          getTransposeLhs() ? lhsRows : lhsColumns};
}

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  Value lhs = adaptor.getLhs(), rhs = adaptor.getRhs();
  int64_t columns = adaptor.getTransposeRhs()
                        ? saturatingElements(leadingShape(rhs))
                        : getShape(rhs).back();
  Type element = adaptor.getResultType().value_or(getElementType(lhs));
  int64_t lhsColumns = getShape(lhs).back();
  ArrayRef<int64_t> leading =
      adaptor.getTransposeLhs() ? ArrayRef(lhsColumns) : leadingShape(lhs);
  types.push_back(withLast(leading, columns, element));
  return success();
}

//===----------------------------------------------------------------------===//
// Result types
//===----------------------------------------------------------------------===//

LogicalResult SplitOp::inferReturnTypes(MLIRContext *context,
                                        std::optional<Location> location,
                                        Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  ArrayRef<int64_t> whole = getShape(adaptor.getInput());
  for (int64_t size : adaptor.getSizes()) {
    SmallVector<int64_t> shape(whole);
    (adaptor.getRows() ? shape.front() : shape.back()) = size;
    // The constraint on sizes may not have been verified yet.
    if (size < 1)
      return emitOptionalError(location, "'nn.split' op has a part of size ",
                               size);
    types.push_back(
        RankedTensorType::get(shape, getElementType(adaptor.getInput())));
  }
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location> location,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  if (adaptor.getParts().empty())
    return emitOptionalError(
        location, "'nn.concat' op has 0 parts, but needs 1 at least");
  Value first = adaptor.getParts().front();
  SmallVector<int64_t> shape(getShape(first));
  int64_t &extent = adaptor.getRows() ? shape.front() : shape.back();
  for (Value part : adaptor.getParts().drop_front()) {
    ArrayRef<int64_t> other = getShape(part);
    if (llvm::AddOverflow(
            extent, adaptor.getRows() ? other.front() : other.back(), extent))
      return emitOptionalError(
          location, "'nn.concat' op has parts of more than ",
          std::numeric_limits<int64_t>::max(), " rows or columns together");
  }
  types.push_back(RankedTensorType::get(shape, getElementType(first)));
  return success();
}

LogicalResult FillOp::inferReturnTypes(MLIRContext *context,
                                       std::optional<Location> location,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  // The parser infers before anything is verified.
  auto type =
      dyn_cast<RankedTensorType>(adaptor.getResultTypeAttr().getValue());
  if (!type || !type.hasStaticShape())
    return emitOptionalError(location, "'nn.fill' op fills ",
                             adaptor.getResultTypeAttr().getValue(),
                             ", which is no tensor of static shape");
  types.push_back(type);
  return success();
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

OpFoldResult SplitHeadsOp::fold(FoldAdaptor) {
  auto merge = getInput().getDefiningOp<MergeHeadsOp>();
  if (merge && merge.getInput().getType() == getType())
    return merge.getInput();
  return {};
}

OpFoldResult MergeHeadsOp::fold(FoldAdaptor) {
  auto split = getInput().getDefiningOp<SplitHeadsOp>();
  return split ? split.getInput() : Value();
}

LogicalResult SplitOp::fold(FoldAdaptor,
                            SmallVectorImpl<OpFoldResult> &results) {
  if (getParts().size() == 1) {
    results.push_back(getInput());
    return success();
  }
  auto concat = getInput().getDefiningOp<ConcatOp>();
  if (!concat || concat.getRows() != getRows() ||
      concat.getParts().getTypes() != getParts().getTypes())
    return failure();
  results.append(concat.getParts().begin(), concat.getParts().end());
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getParts().size() == 1)
    return getParts().front();
  auto split = getParts().front().getDefiningOp<SplitOp>();
  if (split && split.getRows() == getRows() &&
      llvm::equal(split.getParts(), getParts()))
    return split.getInput();
  return {};
}

static bool isZero(Value value) {
  auto fill = value.getDefiningOp<FillOp>();
  return fill && fill.getValue().isZero();
}

OpFoldResult AddOp::fold(FoldAdaptor) {
  if (isZero(getRhs()))
    return getLhs();
  return isZero(getLhs()) ? getRhs() : Value();
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  // Widening and narrowing back loses nothing; the other order does.
  auto inner = getInput().getDefiningOp<CastOp>();
  if (inner && inner.getInput().getType() == getType() &&
      inner.getElementType().isF32())
    return inner.getInput();
  return {};
}

#define GET_OP_CLASSES
#include "dialects/NN/NNOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Names of results
//===----------------------------------------------------------------------===//

void UnflattenOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  for (Value part : getParts())
    setName(part, "part");
}
