//===- Visibility.h - which keys a query sees -------------------*- C++ -*-===//
//
// What the attributes of NSAVisibility.td compute with.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_VISIBILITY_H
#define NSA_DIALECTS_NSA_VISIBILITY_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Value.h"

#include <optional>

namespace mlir {
class ImplicitLocOpBuilder;
} // namespace mlir

namespace nsa {

/// A number, or an i32 or i1 value of a kernel, with operators. An operation on
/// numbers gives a number; one on a value inserts an op at its builder's
/// insertion point. Comparisons give 0 or 1, or an i1. The builder must outlive
/// the scalar.
class Scalar {
public:
  Scalar(int64_t number) : number(number) {}
  Scalar(mlir::ImplicitLocOpBuilder &builder, mlir::Value value)
      : builder(&builder), value(value) {}

  bool isNumber() const { return !value; }
  int64_t getNumber() const {
    assert(isNumber() && "a value of a kernel");
    return number;
  }
  /// The value, or null if it is a number.
  mlir::Value getValue() const { return value; }
  mlir::ImplicitLocOpBuilder &getBuilder() const { return *builder; }

private:
  mlir::ImplicitLocOpBuilder *builder = nullptr;
  mlir::Value value;
  int64_t number = 0;
};

Scalar operator+(Scalar lhs, Scalar rhs);
Scalar operator-(Scalar lhs, Scalar rhs);
Scalar operator*(Scalar lhs, Scalar rhs);
/// Of numbers that are not negative.
Scalar operator%(Scalar lhs, Scalar rhs);
Scalar operator<=(Scalar lhs, Scalar rhs);
Scalar operator>(Scalar lhs, Scalar rhs);
Scalar operator==(Scalar lhs, Scalar rhs);
Scalar operator&(Scalar lhs, Scalar rhs);
Scalar max(Scalar lhs, Scalar rhs);
Scalar min(Scalar lhs, Scalar rhs);
/// Rounds down; the divisor is positive.
Scalar floorDiv(Scalar lhs, Scalar rhs);

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
