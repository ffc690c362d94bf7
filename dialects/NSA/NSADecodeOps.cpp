//===- NSADecodeOps.cpp - constraints of decoding ops ---------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"

using namespace mlir;
using namespace nsa;

/// One number for each sequence of `value`.
static LogicalResult checkNumbers(Operation *op, StringRef name, Value numbers,
                                  Value value) {
  return checkShape(op, name, numbers, {getDim(value, 0)});
}

int64_t nsa::getCacheRows(Value cache, Value pages) {
  return getDim(cache, 1) * (pages ? getDim(pages, 1) : 1);
}

/// What has the sequences of a cache along its first dimension.
static Value getSequences(Value cache, Value pages) {
  return pages ? pages : cache;
}

static LogicalResult checkCache(Operation *op, StringRef name, Value cache,
                                Value pages) {
  if (failed(checkNotEmpty(op, name, cache)))
    return failure();
  return pages ? checkNotEmpty(op, "pages", pages) : success();
}

LogicalResult LastBlockOp::verify() { return success(); }

LogicalResult FirstBlockOp::verify() {
  return checkShape(*this, "at", getAt(), {getDim(getAt(), 0), 2});
}

LogicalResult CacheAppendOp::verify() {
  ArrayRef<int64_t> cache = getShape(getCache());
  Value sequences = getSequences(getCache(), getPages());
  if (failed(checkCache(*this, "cache", getCache(), getPages())) ||
      failed(checkShape(*this, "row", getRow(),
                        {getDim(sequences, 0), 1, cache[2], cache[3]})))
    return failure();
  return checkNumbers(*this, "index", getIndex(), sequences);
}

/// `at` has the place of each row of `value` in a sequence, if there is one.
static LogicalResult checkAt(Operation *op, Value at, Value value) {
  return at ? checkShape(op, "at", at, {getDim(value, 0), 2}) : success();
}

LogicalResult CacheFillOp::verify() {
  ArrayRef<int64_t> cache = getShape(getCache());
  int64_t batch =
      getDim(getAt() ? getRows() : getSequences(getCache(), getPages()), 0);
  if (failed(checkCache(*this, "cache", getCache(), getPages())) ||
      failed(checkShape(*this, "rows", getRows(),
                        {batch, getDim(getRows(), 1), cache[2], cache[3]})) ||
      failed(checkAt(*this, getAt(), getRows())))
    return failure();
  return checkNumbers(*this, "last", getLast(), getRows());
}

LogicalResult CacheSliceOp::verify() {
  if (failed(checkCache(*this, "cache", getCache(), getPages())))
    return failure();
  return checkAt(*this, getAt(), getAt());
}

LogicalResult CacheReadOp::verify() {
  if (failed(checkCache(*this, "cache", getCache(), getPages())) ||
      failed(checkAtMost(*this, "count", getCount(), "rows of the cache",
                         getCacheRows(getCache(), getPages()))))
    return failure();
  return checkNumbers(*this, "last", getLast(),
                      getSequences(getCache(), getPages()));
}

LogicalResult TakeRowOp::verify() {
  if (failed(checkAt(*this, getAt(), getInput())))
    return failure();
  return checkNumbers(*this, "index", getIndex(), getInput());
}

LogicalResult RotaryAtOp::verify() {
  int64_t width = getDim(getInput(), 3);
  if (failed(checkMultiple(*this, "head width", width, "pair size", 2)) ||
      failed(checkEqual(*this, "input rows", getDim(getInput(), 1),
                        "rows of a step", 1)) ||
      failed(checkShape(*this, "table", getTable(),
                        {getDim(getTable(), 0), width / 2, 2})))
    return failure();
  return checkNumbers(*this, "index", getIndex(), getInput());
}

LogicalResult AdvanceOp::verify() {
  int64_t batch = getDim(getPositions(), 0);
  if (failed(checkNotEmpty(*this, "ids", getIds())) ||
      failed(checkShape(*this, "token", getToken(), {batch, 1})) ||
      failed(checkShape(*this, "ids", getIds(), {batch, getDim(getIds(), 1)})))
    return failure();
  return checkShape(*this, "end", getEnd(), {1});
}

/// q [B, 1, Hq, dk] and k [B, R, Hkv, dk] with Hkv | Hq.
template <typename OpT>
static LogicalResult verifyQueryKey(OpT op, Value pages = {}) {
  Value q = op.getQuery(), k = op.getKey();
  if (failed(checkNotEmpty(op, "query", q)) ||
      failed(checkCache(op, "key", k, pages)) ||
      failed(checkEqual(op, "query rows", getDim(q, 1), "rows of a step", 1)) ||
      failed(checkEqual(op, "key batch", getDim(getSequences(k, pages), 0),
                        "query batch", getDim(q, 0))) ||
      failed(checkEqual(op, "key head width", getDim(k, 3), "query head width",
                        getDim(q, 3))) ||
      failed(checkMultiple(op, "query heads", getDim(q, 2), "key heads",
                           getDim(k, 2))))
    return failure();
  return checkNumbers(op, "positions", op.getPositions(), q);
}

LogicalResult DecodeAttentionOp::verify() {
  if (failed(verifyQueryKey(*this, getPages())))
    return failure();
  ArrayRef<int64_t> q = getShape(getQuery()), k = getShape(getKey());
  VisibilityAttrInterface visibility = getVisibility();
  Value indices = getIndices();
  if (bool(indices) != (visibility.getIndexBlock() != 0))
    return emitOpError("has ")
           << (indices ? "" : "no ") << "indices, but visibility " << visibility
           << (indices ? " takes none" : " takes some");
  if (indices && failed(checkShape(*this, "indices", indices,
                                   {q[0], k[2], 1, getDim(indices, 3)})))
    return failure();
  return checkShape(*this, "value", getValue(),
                    {k[0], k[1], k[2], getDim(getValue(), 3)});
}

LogicalResult DecodeSelectOp::verify() {
  ArrayRef<int64_t> q = getShape(getQuery());
  if (failed(verifyQueryKey(*this)) ||
      failed(checkMultiple(*this, "select_block", getSelected().getBlock(),
                           "stride", getStride())) ||
      failed(checkAtMost(*this, "block", getBlock(), "select_block",
                         getSelected().getBlock())) ||
      failed(checkEqual(*this, "key rows", getDim(getKey(), 1),
                        "compressed blocks of the context",
                        getCompressed().getNumKeys(getContext()))))
    return failure();
  return checkShape(*this, "lse", getLse(), {q[0], q[2], 1});
}
