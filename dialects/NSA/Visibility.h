//===- Visibility.h - which keys a query sees -------------------*- C++ -*-===//
//
// What the attributes of NSAVisibility.td compute with.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_VISIBILITY_H
#define NSA_DIALECTS_NSA_VISIBILITY_H

#include "dialects/Interfaces/Expr.h"
#include "mlir/IR/Attributes.h"

#include <optional>

namespace nsa {

/// Query `t` sees key `i` iff `i*stride + block - 1 <= t` and
/// `i*stride > t - window`.
struct Band {
  int64_t stride = 1;
  int64_t block = 1;
  /// No limit if not given.
  std::optional<int64_t> window;

  Scalar isVisible(Scalar query, Scalar key) const;
  Scalar getFirstKey(Scalar query) const;
  Scalar getEndKey(Scalar query) const;
  Scalar getFirstQuery(Scalar key) const;
  Scalar getEndQuery(Scalar key, Scalar sequence) const;
  /// Number of visible pairs of queries and keys; the largest number if there
  /// are more.
  int64_t countPairs(int64_t sequence, int64_t keys) const;
};

} // namespace nsa

#include "dialects/NSA/NSAVisibilityInterface.h.inc"

#endif // NSA_DIALECTS_NSA_VISIBILITY_H
