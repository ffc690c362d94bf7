//===- Expr.h - scalars of kernels with operators ---------------*- C++ -*-===//
//
// Formulas that read like formulas: what dialects say about the elements of a
// kernel, and what kernels are built of. Nothing here verifies: the operations
// do. Every function inserts at the insertion point of its operands' builder.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_INTERFACES_EXPR_H
#define NSA_DIALECTS_INTERFACES_EXPR_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace nsa {

/// On a constant: the number that its 32 bits do not hold. Who builds a kernel
/// reports it.
inline constexpr llvm::StringLiteral kTooLargeAttr = "too_large";

/// A scalar with operators. It refers to the builder that it was made with,
/// which must outlive it. A number on one side of an operator becomes
/// a constant of the other side's type. Division and remainder of integers
/// round toward zero; comparisons of integers are signed, those of floats are
/// false on NaN except `!=`.
class Expr {
public:
  Expr() = default;
  Expr(mlir::ImplicitLocOpBuilder &builder, mlir::Value value)
      : builder(&builder), value(value) {}

  operator mlir::Value() const { return value; }
  mlir::Type getType() const { return value.getType(); }
  mlir::ImplicitLocOpBuilder &getBuilder() const { return *builder; }

  /// A constant of this expression's type.
  Expr constant(double number) const;

private:
  mlir::ImplicitLocOpBuilder *builder = nullptr;
  mlir::Value value;
};

/// A constant of a float or an integer type.
Expr makeConstant(mlir::ImplicitLocOpBuilder &builder, mlir::Type type,
                  double number);

#define NSA_EXPR_OPERATOR(OP)                                                  \
  Expr operator OP(Expr lhs, Expr rhs);                                        \
  inline Expr operator OP(Expr lhs, double rhs) {                              \
    return lhs OP lhs.constant(rhs);                                           \
  }                                                                            \
  inline Expr operator OP(double lhs, Expr rhs) {                              \
    return rhs.constant(lhs) OP rhs;                                           \
  }
NSA_EXPR_OPERATOR(+)
NSA_EXPR_OPERATOR(-)
NSA_EXPR_OPERATOR(*)
NSA_EXPR_OPERATOR(/)
NSA_EXPR_OPERATOR(%)
NSA_EXPR_OPERATOR(<)
NSA_EXPR_OPERATOR(<=)
NSA_EXPR_OPERATOR(>)
NSA_EXPR_OPERATOR(>=)
NSA_EXPR_OPERATOR(==)
NSA_EXPR_OPERATOR(!=)
#undef NSA_EXPR_OPERATOR

/// Bitwise, so logical on i1.
Expr operator&(Expr lhs, Expr rhs);
Expr operator|(Expr lhs, Expr rhs);
/// An i32 shifted left or right by 0 to 31 bits; zeros follow.
Expr operator<<(Expr value, Expr places);
Expr operator>>(Expr value, Expr places);
/// Not, of an i1.
Expr operator!(Expr value);
Expr operator-(Expr value);

/// A NaN operand gives the other one.
Expr max(Expr lhs, Expr rhs);
Expr min(Expr lhs, Expr rhs);
inline Expr max(Expr lhs, double rhs) { return max(lhs, lhs.constant(rhs)); }
inline Expr min(Expr lhs, double rhs) { return min(lhs, lhs.constant(rhs)); }

Expr select(Expr condition, Expr ifTrue, Expr ifFalse);
inline Expr select(Expr condition, Expr ifTrue, double ifFalse) {
  return select(condition, ifTrue, ifTrue.constant(ifFalse));
}
inline Expr select(Expr condition, double ifTrue, Expr ifFalse) {
  return select(condition, ifFalse.constant(ifTrue), ifFalse);
}

/// x * y + z of floats, rounded once, whatever code generators find around it.
Expr fma(Expr x, Expr y, Expr z);

/// Integer division that rounds down or up; the divisor is positive.
Expr floorDiv(Expr lhs, Expr rhs);
Expr ceilDiv(Expr lhs, Expr rhs);
inline Expr floorDiv(Expr lhs, double rhs) {
  return floorDiv(lhs, lhs.constant(rhs));
}
inline Expr ceilDiv(Expr lhs, double rhs) {
  return ceilDiv(lhs, lhs.constant(rhs));
}

Expr exp(Expr value);
Expr exp2(Expr value);
Expr log(Expr value);
Expr sqrt(Expr value);
Expr abs(Expr value);
/// 1 / (1 + exp(-x)); where exp overflows, 0.
Expr sigmoid(Expr x);

/// Converts between f32, a narrower float (round to nearest even), i32
/// (rounding toward zero from floats) and from i1 (0 or 1).
Expr convert(Expr value, mlir::Type type);

/// for (i = lower; i < upper; i += step). `body` receives i and the carried
/// values and returns their next values.
llvm::SmallVector<mlir::Value>
forLoop(mlir::ImplicitLocOpBuilder &builder, mlir::Value lower,
        mlir::Value upper, mlir::Value step, llvm::ArrayRef<mlir::Value> inits,
        llvm::function_ref<
            llvm::SmallVector<mlir::Value>(Expr, llvm::ArrayRef<mlir::Value>)>
            body);

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

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_EXPR_H
