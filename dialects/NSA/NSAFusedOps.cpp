//===- NSAFusedOps.cpp - constraints of fused nsa ops ---------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Constraints
//===----------------------------------------------------------------------===//

/// k [B, rows, Hkv, dk] and v [B, rows, Hkv, dv] of the branch `name`, where
/// Hkv is that of `firstKey`.
static LogicalResult verifyBranch(Operation *op, const Twine &name, Value query,
                                  Value firstKey, Value key, Value value,
                                  int64_t rows, int64_t valueWidth) {
  int64_t batch = getDim(query, 0), heads = getDim(firstKey, 2);
  if (failed(checkShape(op, (name + " key").str(), key,
                        {batch, rows, heads, getDim(query, 3)})))
    return failure();
  return checkShape(op, (name + " value").str(), value,
                    {batch, rows, heads, valueWidth});
}

/// A branch has a visibility that its kernels know how to treat.
static LogicalResult checkKind(Operation *op, VisibilityAttrInterface found,
                               bool takesIndices, bool attendsToTokens) {
  if ((found.getIndexBlock() != 0) == takesIndices &&
      found.attendsToTokens() == attendsToTokens)
    return success();
  return op->emitOpError("visibility ")
         << found << " of a branch "
         << (takesIndices ? "takes no indices"
                          : (attendsToTokens ? "is not one of tokens alone"
                                             : "is not one of blocks"));
}

/// Query heads in groups, one for each key head.
template <typename OpT>
static LogicalResult verifyGroups(OpT op, int64_t queryHeads,
                                  int64_t keyHeads) {
  if (keyHeads == 0)
    return op.emitOpError("key heads (0) must be at least 1");
  return checkMultiple(op, "query heads", queryHeads, "key heads", keyHeads);
}

/// Start [B, S] of sequences in the tokens of `x`, if there is one.
template <typename OpT>
static LogicalResult verifyStart(OpT op, Value x) {
  if (!op.getStart())
    return success();
  return checkShape(op, "start", op.getStart(), {getDim(x, 0), getDim(x, 1)});
}

/// Angles [L, D/2, 2] for the rows of `x` [B, rows, H, D].
static LogicalResult verifyTable(Operation *op, Value table, Value x,
                                 int64_t stride) {
  int64_t rows = getDim(x, 1), width = getDim(x, 3);
  if (failed(checkMultiple(op, "rotated head width", width, "pair", 2)) ||
      failed(checkShape(op, "rotary table", table,
                        {getDim(table, 0), width / 2, 2})))
    return failure();
  int64_t last = rows == 0 ? -1 : saturatingProduct(rows - 1, stride);
  if (last < getDim(table, 0))
    return success();
  return op->emitOpError("rotary table length (")
         << getDim(table, 0) << ") must be above the last position (" << last
         << ")";
}

LogicalResult RotaryAttentionOp::verify() {
  Value query = getQuery();
  if (failed(checkNotEmpty(*this, "query", query)) ||
      failed(checkKind(*this, getVisibility(), /*takesIndices=*/false,
                       getVisibility().attendsToTokens())))
    return failure();
  ArrayRef<int64_t> q = getShape(query);
  int64_t width = getDim(getValue(), 3);
  if (width == 0)
    return emitOpError("value head width (0) must be at least 1");
  int64_t blocks = getNumKeys(getVisibility(), q[1], getStart());
  if (failed(verifyGroups(*this, q[2], getDim(getKey(), 2))) ||
      failed(verifyBranch(*this, "compressed", query, getKey(), getKey(),
                          getValue(), blocks, width)) ||
      failed(verifyStart(*this, query)) ||
      failed(verifyTable(*this, getTable(), query, /*stride=*/1)))
    return failure();
  for (Value key : getKeys()) {
    int64_t heads = getDim(key, 2);
    if (failed(checkNotEmpty(*this, "rotated key", key)) ||
        failed(
            checkShape(*this, "rotated key", key, {q[0], q[1], heads, q[3]})))
      return failure();
    if (heads > q[2])
      return emitOpError("rotated key heads (")
             << heads << ") must be at most query heads (" << q[2] << ")";
    if (getElementType(key) != getElementType(query))
      return emitOpError("rotated key has element type ")
             << getElementType(key) << ", expected " << getElementType(query);
  }
  return success();
}

/// The parameters of `kind` for x [B, S, H, D], called `name` in errors.
template <typename OpT>
static LogicalResult verifyParameters(OpT op, const Twine &name, Value x,
                                      ValueRange parameters) {
  int64_t heads = getDim(x, 2), width = getDim(x, 3), block = op.getBlock();
  unsigned weights = getNumWeights(op.getKind());
  bool mayHavePositions = weights > 0;
  size_t found = parameters.size();
  if (found != weights && !(mayHavePositions && found == weights + 1))
    return op.emitOpError()
           << stringifyCompressionKind(op.getKind()) << " compression of "
           << name << " has " << found << " parameters, expected " << weights
           << (mayHavePositions ? " or " + std::to_string(weights + 1) : "");
  SmallVector<SmallVector<int64_t>> shapes = {
      {heads, saturatingProduct(block, width), width}, {heads, width, width}};
  shapes.resize(weights);
  shapes.push_back({heads, block, width});
  for (auto [index, parameter] : llvm::enumerate(parameters)) {
    std::string what = ("parameter " + Twine(index) + " of the " + name).str();
    if (getElementType(parameter) != getElementType(x))
      return op.emitOpError(what)
             << " has element type " << getElementType(parameter)
             << ", expected " << getElementType(x);
    if (failed(checkShape(op, what, parameter, shapes[index])))
      return failure();
  }
  return success();
}

template <typename OpT>
static LogicalResult verifyCompressKeyValue(OpT op) {
  Value key = op.getKey(), value = op.getValue();
  if (failed(checkMultiple(op, "block", op.getBlock(), "stride",
                           op.getStride())) ||
      failed(checkNotEmpty(op, "keys", key)) ||
      failed(checkNotEmpty(op, "values", value)))
    return failure();
  ArrayRef<int64_t> k = getShape(key);
  if (failed(checkShape(op, "values", value,
                        {k[0], k[1], k[2], getDim(value, 3)})) ||
      failed(verifyStart(op, key)) ||
      failed(verifyParameters(op, "keys", key, op.getKeyParameters())) ||
      failed(verifyParameters(op, "values", value, op.getValueParameters())))
    return failure();
  return checkEqual(op, "parameters of the values",
                    op.getValueParameters().size(), "parameters of the keys",
                    op.getKeyParameters().size());
}

LogicalResult CompressKeyValueOp::verify() {
  if (failed(verifyCompressKeyValue(*this)))
    return failure();
  return getTable()
             ? verifyTable(*this, getTable(), getCompressedKey(), getStride())
             : success();
}

LogicalResult CompressKeyValueBackwardOp::verify() {
  auto getExpected = [&](Value x) {
    return getCompressedType(getCompressed(), x, getStart()).getShape();
  };
  if (failed(verifyCompressKeyValue(*this)) ||
      failed(checkShape(*this, "gradient of the compressed keys", getKeyGrad(),
                        getExpected(getKey()))))
    return failure();
  return checkShape(*this, "gradient of the compressed values", getValueGrad(),
                    getExpected(getValue()));
}
