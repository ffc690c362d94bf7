//===- NSAOpsVerify.cpp - constraints of nsa ops --------------------------===//
//
// Ranks, element types and positive attributes are ODS constraints; what
// relates two operands or attributes is here.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Shared checks
//===----------------------------------------------------------------------===//

/// `at` [B, 2] of the queries of `batch` rows, if there is one.
template <typename OpT>
static LogicalResult verifyAt(OpT op, int64_t batch) {
  return op.getAt() ? checkShape(op, "at", op.getAt(), {batch, 2}) : success();
}

/// What rows of keys are, in an error.
static StringRef getRowsName(VisibilityAttrInterface visibility, Value start,
                             Value at) {
  if (visibility.attendsToTokens())
    return at ? "tokens of start" : "query rows";
  return start ? "strides of the packed sequences"
               : "compressed blocks of the sequence";
}

/// k has a row for each key of a row of the batch: of as many tokens as there
/// are queries, or with `at` as `start` is for. There may be any number of
/// sequences then.
template <typename OpT>
static LogicalResult verifyKeyRows(OpT op, VisibilityAttrInterface visibility) {
  Value q = op.getQuery(), k = op.getKey(), start = op.getStart();
  int64_t batch = getDim(q, 0), tokens = getDim(q, 1);
  if (failed(verifyAt(op, batch)))
    return failure();
  if (op.getAt()) {
    batch = getDim(k, 0);
    if (batch == 0)
      return op.emitOpError("key batch (0) must be at least 1");
    if (start)
      tokens = getDim(start, 1);
  } else if (failed(checkEqual(op, "key batch", getDim(k, 0), "query batch",
                               batch))) {
    return failure();
  }
  if (start && failed(checkShape(op, "start", start, {batch, tokens})))
    return failure();
  if (op.getAt() && !start)
    return success();
  return checkEqual(op, "key rows", getDim(k, 1),
                    getRowsName(visibility, start, op.getAt()),
                    getNumKeys(visibility, tokens, start));
}

/// q [B, S, Hq, dk] and k [B, keys, Hkv, dk] with Hkv | Hq.
template <typename OpT>
static LogicalResult verifyQueryKey(OpT op,
                                    VisibilityAttrInterface visibility) {
  Value q = op.getQuery(), k = op.getKey();
  if (failed(checkNotEmpty(op, "query", q)) ||
      failed(verifyKeyRows(op, visibility)) ||
      failed(checkEqual(op, "key head width", getDim(k, 3), "query head width",
                        getDim(q, 3))))
    return failure();
  if (getDim(k, 2) == 0)
    return op.emitOpError("key heads (0) must be at least 1");
  return checkMultiple(op, "query heads", getDim(q, 2), "key heads",
                       getDim(k, 2));
}

/// Also v [B, keys, Hkv, dv].
template <typename OpT>
static LogicalResult verifyQueryKeyValue(OpT op) {
  if (failed(verifyQueryKey(op, op.getVisibility())))
    return failure();
  ArrayRef<int64_t> k = getShape(op.getKey());
  int64_t valueWidth = getDim(op.getValue(), 3);
  if (valueWidth == 0)
    return op.emitOpError("value head width (0) must be at least 1");
  return checkShape(op, "value", op.getValue(), {k[0], k[1], k[2], valueWidth});
}

/// do and o [B, S, Hq, dv], lse [B, Hq, S].
template <typename OpT>
static LogicalResult verifySavedValues(OpT op) {
  ArrayRef<int64_t> q = getShape(op.getQuery());
  SmallVector<int64_t> output = {q[0], q[1], q[2], getDim(op.getValue(), 3)};
  if (failed(checkShape(op, "output", op.getOutput(), output)) ||
      failed(checkShape(op, "output gradient", op.getOutputGrad(), output)))
    return failure();
  return checkShape(op, "lse", op.getLse(), {q[0], q[2], q[1]});
}

/// Start [B, S] of sequences in rows of `sequence` tokens, if there is one.
template <typename OpT>
static LogicalResult verifyStart(OpT op, Value tokens, int64_t sequence) {
  if (!op.getStart())
    return success();
  return checkShape(op, "start", op.getStart(), {getDim(tokens, 0), sequence});
}

/// Indices [B, Hkv, S, n], if the visibility takes some.
template <typename OpT>
static LogicalResult verifyIndices(OpT op) {
  VisibilityAttrInterface visibility = op.getVisibility();
  Value indices = op.getIndices();
  if (bool(indices) != (visibility.getIndexBlock() != 0))
    return op.emitOpError("has ")
           << (indices ? "" : "no ") << "indices, but visibility " << visibility
           << (indices ? " takes none" : " takes some");
  if (!indices)
    return success();
  ArrayRef<int64_t> q = getShape(op.getQuery());
  int64_t count = getDim(indices, 3), most = visibility.getMaxIndices();
  if (failed(checkNotEmpty(op, "indices", indices)) ||
      failed(checkShape(op, "indices", indices,
                        {q[0], getDim(op.getKey(), 2), q[1], count})))
    return failure();
  return most == 0
             ? success()
             : checkAtMost(op, "indices of a query", count, "count", most);
}

template <typename OpT>
static LogicalResult verifyAttention(OpT op) {
  if (failed(verifyQueryKeyValue(op)))
    return failure();
  return verifyIndices(op);
}

/// "no weight", "a weight" or "2 weights".
static std::string formatWeights(unsigned count) {
  if (count < 2)
    return count == 0 ? "no weight" : "a weight";
  return std::to_string(count) + " weights";
}

/// The weights that the kind takes, then positions if there are any.
template <typename OpT>
static LogicalResult verifyNumParameters(OpT op) {
  unsigned weights = getNumWeights(op.getKind());
  unsigned most = weights == 0 ? 0 : weights + 1;
  unsigned found = op.getParameters().size();
  if (found >= weights && found <= most)
    return success();
  InFlightDiagnostic diagnostic =
      op.emitOpError() << stringifyCompressionKind(op.getKind())
                       << " compression takes " << formatWeights(weights);
  if (most > weights)
    diagnostic << " and at most one tensor of positions";
  return diagnostic << ", found " << found
                    << (found == 1 ? " parameter" : " parameters");
}

template <typename OpT>
static LogicalResult verifyCompress(OpT op) {
  if (failed(checkNotEmpty(op, "input", op.getInput())) ||
      failed(verifyNumParameters(op)) ||
      failed(verifyStart(op, op.getInput(), getDim(op.getInput(), 1))))
    return failure();
  int64_t heads = getDim(op.getInput(), 2), width = getDim(op.getInput(), 3);
  int64_t block = op.getBlock();
  auto check = [&](StringRef name, Value parameter, int64_t rows) {
    if (!parameter)
      return success();
    if (getElementType(parameter) != getElementType(op.getInput()))
      return LogicalResult(op.emitOpError(name)
                           << " has element type " << getElementType(parameter)
                           << ", expected " << getElementType(op.getInput()));
    return checkShape(op, name, parameter, {heads, rows, width});
  };
  if (failed(
          check("weight", op.getWeight(), saturatingProduct(block, width))) ||
      failed(check("output weight", op.getOutputWeight(), width)))
    return failure();
  return check("positions", op.getPositions(), block);
}

/// Gates [B, S, Hq, n] of n branches of the type `expected`.
template <typename OpT>
static LogicalResult verifyBranches(OpT op, Type expected) {
  if (op.getBranches().empty())
    return op.emitOpError("branches (0) must be at least 1");
  for (auto [index, type] : llvm::enumerate(op.getBranches().getTypes()))
    if (type != expected)
      return op.emitOpError("branch ")
             << index << " has type " << type << ", expected " << expected;
  SmallVector<int64_t> shape(cast<ShapedType>(expected).getShape());
  shape.back() = op.getBranches().size();
  return checkShape(op, "gates", op.getGates(), shape);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

LogicalResult CompressOp::verify() { return verifyCompress(*this); }

LogicalResult CompressBackwardOp::verify() {
  if (failed(verifyCompress(*this)))
    return failure();
  if (getParameterGrads().size() != getParameters().size())
    return emitOpError("has ") << getNumResults() << " results, expected "
                               << 1 + getParameters().size();
  return checkShape(
      *this, "output gradient", getOutputGrad(),
      getCompressedType(getCompressed(), getInput(), getStart()).getShape());
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this); }

LogicalResult AttentionBackwardOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  return verifySavedValues(*this);
}

LogicalResult SelectOp::verify() {
  if (getCount() == 0)
    return emitOpError("count (0) must be at least 1");
  if (failed(checkMultiple(*this, "select_block", getSelectBlock(), "stride",
                           getStride())) ||
      failed(checkAtMost(*this, "block", getBlock(), "select_block",
                         getSelectBlock())))
    return failure();
  if (failed(verifyQueryKey(*this, getCompressed())))
    return failure();
  ArrayRef<int64_t> q = getShape(getQuery());
  return checkShape(*this, "lse", getLse(), {q[0], q[2], q[1]});
}

LogicalResult CombineOp::verify() {
  return verifyBranches(*this, getOutput().getType());
}

LogicalResult CombineBackwardOp::verify() {
  if (failed(verifyBranches(*this, getOutputGrad().getType())))
    return failure();
  return checkEqual(*this, "gradients of branches", getBranchGrads().size(),
                    "branches", getBranches().size());
}

LogicalResult GateStatisticsOp::verify() {
  return checkNotEmpty(*this, "gates", getGates());
}

LogicalResult SelectionStatisticsOp::verify() {
  if (failed(checkNotEmpty(*this, "indices", getIndices())))
    return failure();
  int64_t batch = getDim(getIndices(), 0);
  if (failed(verifyAt(*this, batch)))
    return failure();
  return getAt() ? success()
                 : verifyStart(*this, getIndices(), getDim(getIndices(), 2));
}
