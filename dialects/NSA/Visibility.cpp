//===- Visibility.cpp - which keys a query sees ---------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;
using namespace nsa;

#include "dialects/NSA/NSAVisibilityInterface.cpp.inc"

//===----------------------------------------------------------------------===//
// Bands
//===----------------------------------------------------------------------===//

Scalar Band::isVisible(Scalar query, Scalar key) const {
  Scalar start = stride == 1 ? key : key * stride;
  Scalar complete = block == 1 ? start <= query : start + (block - 1) <= query;
  return window ? complete & (start > query - *window) : complete;
}

Scalar Band::getFirstKey(Scalar query) const {
  if (!window)
    return 0;
  return max(floorDiv(query - *window, stride) + 1, 0);
}

Scalar Band::getEndKey(Scalar query) const {
  return floorDiv(query - (block - 1), stride) + 1;
}

Scalar Band::getFirstQuery(Scalar key) const {
  return key * stride + (block - 1);
}

Scalar Band::getEndQuery(Scalar key, Scalar sequence) const {
  if (!window)
    return sequence;
  return min(key * stride + *window, sequence);
}

/// Key `i` is seen by the queries from i*stride + block-1 on: by all up to the
/// end of the sequence, or by `window` - (block-1) of them. What depends on `i`
/// is an arithmetic series.
int64_t Band::countPairs(int64_t sequence, int64_t keys) const {
  using Int128 = __int128;
  auto keysBefore = [&](int64_t end) {
    return end < 0 ? 0 : std::min(end / stride + 1, keys);
  };
  int64_t visible = keysBefore(sequence - block), limited = 0;
  Int128 pairs = 0;
  if (window) {
    int64_t most = *window - (block - 1);
    if (most <= 0)
      return 0;
    limited = keysBefore(sequence - *window);
    pairs = Int128(limited) * most;
  }
  Int128 others = visible - limited;
  pairs += others * (sequence - block + 1) -
           stride * (others * (Int128(limited) + visible - 1) / 2);
  return int64_t(std::min<Int128>(pairs, std::numeric_limits<int64_t>::max()));
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

/// Kernels count with 32 bits.
static LogicalResult
checkParameter(llvm::function_ref<InFlightDiagnostic()> emitError,
               StringRef name, int64_t value, int64_t least) {
  if (value >= least && value <= INT32_MAX)
    return success();
  return emitError() << name << " (" << value << ") must be at least " << least
                     << " and at most " << INT32_MAX;
}

LogicalResult
CompressedAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                       int64_t block, int64_t stride) {
  if (failed(checkParameter(emitError, "block", block, 1)) ||
      failed(checkParameter(emitError, "stride", stride, 1)))
    return failure();
  if (block % stride == 0)
    return success();
  return emitError() << "block (" << block << ") must be a multiple of stride ("
                     << stride << ")";
}

std::string CompressedAttr::getShapeName() const {
  return "l" + std::to_string(getBlock()) + "d" + std::to_string(getStride());
}
Band CompressedAttr::getBand() const {
  return {getStride(), getBlock(), std::nullopt};
}
bool CompressedAttr::attendsToTokens() const { return false; }
int64_t CompressedAttr::getKeyStride() const { return getStride(); }
int64_t CompressedAttr::getNumKeys(int64_t sequence) const {
  return getNumCompressedBlocks(sequence, getBlock(), getStride());
}
/// Blocks that are longer than the sequence are never complete.
VisibilityAttrInterface CompressedAttr::limitTo(int64_t sequence) const {
  if (getBlock() <= sequence)
    return *this;
  return get(getContext(), sequence + 1, sequence + 1);
}
int64_t CompressedAttr::getMaxKeys(int64_t sequence) const {
  return getNumKeys(sequence);
}
int64_t CompressedAttr::countPairs(int64_t sequence, int64_t keys,
                                   int64_t) const {
  return getBand().countPairs(sequence, keys);
}

LogicalResult
SelectedAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                     int64_t block, int64_t count, int64_t initial,
                     int64_t local) {
  return success(succeeded(checkParameter(emitError, "block", block, 1)) &&
                 succeeded(checkParameter(emitError, "count", count, 0)) &&
                 succeeded(checkParameter(emitError, "initial", initial, 0)) &&
                 succeeded(checkParameter(emitError, "local", local, 1)));
}

std::string SelectedAttr::getShapeName() const {
  return "s" + std::to_string(getBlock());
}
Band SelectedAttr::getBand() const { return {}; }
int64_t SelectedAttr::getIndexBlock() const { return getBlock(); }
int64_t SelectedAttr::getMaxIndices() const { return getCount(); }
int64_t SelectedAttr::getMaxKeys(int64_t sequence) const {
  if (getCount() == 0)
    return sequence;
  return std::min(saturatingProduct(getCount(), getBlock()), sequence);
}
/// Query t sees min(t + 1, indices * block) keys, as many as in a window.
int64_t SelectedAttr::countPairs(int64_t sequence, int64_t keys,
                                 int64_t indices) const {
  int64_t most = std::min(saturatingProduct(indices, getBlock()), sequence);
  return Band{1, 1, most}.countPairs(sequence, keys);
}

LogicalResult
WindowAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   int64_t window) {
  return checkParameter(emitError, "window", window, 1);
}

std::string WindowAttr::getShapeName() const {
  return "w" + std::to_string(getWindow());
}
Band WindowAttr::getBand() const { return {1, 1, getWindow()}; }
/// One that is longer than the sequence hides nothing.
VisibilityAttrInterface WindowAttr::limitTo(int64_t sequence) const {
  return get(getContext(), std::min(getWindow(), sequence));
}
int64_t WindowAttr::getMaxKeys(int64_t sequence) const {
  return std::min(getWindow(), sequence);
}
int64_t WindowAttr::countPairs(int64_t sequence, int64_t keys, int64_t) const {
  return getBand().countPairs(sequence, keys);
}

std::string CausalAttr::getShapeName() const { return "c"; }
Band CausalAttr::getBand() const { return {}; }
int64_t CausalAttr::getMaxKeys(int64_t sequence) const { return sequence; }
int64_t CausalAttr::countPairs(int64_t sequence, int64_t keys, int64_t) const {
  return getBand().countPairs(sequence, keys);
}

LogicalResult
StridedAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    int64_t block, int64_t stride) {
  return success(succeeded(checkParameter(emitError, "block", block, 1)) &&
                 succeeded(checkParameter(emitError, "stride", stride, 1)));
}

std::string StridedAttr::getShapeName() const {
  return "b" + std::to_string(getBlock()) + "e" + std::to_string(getStride());
}
VisibilityAttrInterface StridedAttr::limitTo(int64_t sequence) const {
  return get(getContext(), std::min(getBlock(), sequence),
             std::min(getStride(), sequence));
}
Scalar StridedAttr::isVisible(Scalar query, Scalar key) const {
  Scalar distance = floorDiv(query, getBlock()) - floorDiv(key, getBlock());
  return (key <= query) & (distance % getStride() == 0);
}
/// Blocks between these are masked.
Scalar StridedAttr::getFirstKey(Scalar) const { return 0; }
Scalar StridedAttr::getEndKey(Scalar query) const { return query + 1; }
Scalar StridedAttr::getFirstQuery(Scalar key) const { return key; }
Scalar StridedAttr::getEndQuery(Scalar, Scalar sequence) const {
  return sequence;
}
int64_t StridedAttr::getMaxKeys(int64_t sequence) const {
  int64_t block = getBlock();
  auto countKeys = [&](int64_t query) {
    return query % block + 1 + query / block / getStride() * block;
  };
  // The last query, or that of the block before.
  int64_t last = sequence - 1, before = last / block * block - 1;
  return std::max(countKeys(last), before < 0 ? 0 : countKeys(before));
}
/// Of full blocks, then of the partial one at the end: triangles on the
/// diagonal, and squares beside it.
int64_t StridedAttr::countPairs(int64_t sequence, int64_t, int64_t) const {
  using Int128 = __int128;
  Int128 block = getBlock(), stride = getStride();
  Int128 full = sequence / block, rest = sequence % block;
  Int128 rounds = full / stride;
  Int128 squares =
      stride * (rounds * (rounds - 1) / 2) + rounds * (full - rounds * stride);
  Int128 pairs = full * (block * (block + 1) / 2) + squares * block * block +
                 rest * (rest + 1) / 2 + rest * block * rounds;
  return int64_t(std::min<Int128>(pairs, std::numeric_limits<int64_t>::max()));
}
