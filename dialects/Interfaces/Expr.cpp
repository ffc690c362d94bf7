//===- Expr.cpp - scalars of kernels with operators -----------------------===//

#include "dialects/Interfaces/Expr.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

Expr nsa::makeConstant(ImplicitLocOpBuilder &b, Type type, double number) {
  if (isa<FloatType>(type))
    return Expr(b, arith::ConstantOp::create(b, b.getFloatAttr(type, number)));
  auto integer = static_cast<int64_t>(number);
  bool fits = !type.isInteger(32) || llvm::isInt<32>(integer);
  auto constant =
      arith::ConstantOp::create(b, b.getIntegerAttr(type, fits ? integer : 0));
  if (!fits)
    constant->setAttr(kTooLargeAttr, b.getI64IntegerAttr(integer));
  return Expr(b, constant);
}

Expr Expr::constant(double number) const {
  return makeConstant(*builder, getType(), number);
}

/// The float or the integer form of an operation, by the type of `lhs`.
template <typename FloatOp, typename IntOp>
static Expr binary(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  if (isa<FloatType>(lhs.getType()))
    return Expr(b, FloatOp::create(b, lhs, rhs));
  return Expr(b, IntOp::create(b, lhs, rhs));
}

static Expr compare(Expr lhs, Expr rhs, arith::CmpFPredicate floatPredicate,
                    arith::CmpIPredicate intPredicate) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  if (isa<FloatType>(lhs.getType()))
    return Expr(b, arith::CmpFOp::create(b, floatPredicate, lhs, rhs));
  return Expr(b, arith::CmpIOp::create(b, intPredicate, lhs, rhs));
}

namespace nsa {

Expr operator+(Expr lhs, Expr rhs) {
  return binary<arith::AddFOp, arith::AddIOp>(lhs, rhs);
}
Expr operator-(Expr lhs, Expr rhs) {
  return binary<arith::SubFOp, arith::SubIOp>(lhs, rhs);
}
Expr operator*(Expr lhs, Expr rhs) {
  return binary<arith::MulFOp, arith::MulIOp>(lhs, rhs);
}
Expr operator/(Expr lhs, Expr rhs) {
  return binary<arith::DivFOp, arith::DivSIOp>(lhs, rhs);
}
Expr operator%(Expr lhs, Expr rhs) {
  return binary<arith::RemFOp, arith::RemSIOp>(lhs, rhs);
}
Expr operator<(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OLT,
                 arith::CmpIPredicate::slt);
}
Expr operator<=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OLE,
                 arith::CmpIPredicate::sle);
}
Expr operator>(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OGT,
                 arith::CmpIPredicate::sgt);
}
Expr operator>=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OGE,
                 arith::CmpIPredicate::sge);
}
Expr operator==(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq);
}
Expr operator!=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::UNE, arith::CmpIPredicate::ne);
}

Expr operator&(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::AndIOp::create(b, lhs, rhs));
}
Expr operator|(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::OrIOp::create(b, lhs, rhs));
}
Expr operator<<(Expr value, Expr places) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  return Expr(b, arith::ShLIOp::create(b, value, places));
}
Expr operator>>(Expr value, Expr places) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  return Expr(b, arith::ShRUIOp::create(b, value, places));
}
Expr operator!(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  Value allOnes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  return Expr(b, arith::XOrIOp::create(b, value, allOnes));
}
Expr operator-(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  if (isa<FloatType>(value.getType()))
    return Expr(b, arith::NegFOp::create(b, value));
  return 0.0 - value;
}

Expr max(Expr lhs, Expr rhs) {
  return binary<arith::MaxNumFOp, arith::MaxSIOp>(lhs, rhs);
}
Expr min(Expr lhs, Expr rhs) {
  return binary<arith::MinNumFOp, arith::MinSIOp>(lhs, rhs);
}

Expr select(Expr condition, Expr ifTrue, Expr ifFalse) {
  ImplicitLocOpBuilder &b = condition.getBuilder();
  return Expr(b, arith::SelectOp::create(b, condition, ifTrue, ifFalse));
}

Expr fma(Expr x, Expr y, Expr z) {
  ImplicitLocOpBuilder &b = x.getBuilder();
  return Expr(b, math::FmaOp::create(b, x, y, z));
}

Expr floorDiv(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::FloorDivSIOp::create(b, lhs, rhs));
}
Expr ceilDiv(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::CeilDivSIOp::create(b, lhs, rhs));
}

#define NSA_EXPR_UNARY(NAME, OP)                                               \
  Expr NAME(Expr value) {                                                      \
    ImplicitLocOpBuilder &b = value.getBuilder();                              \
    return Expr(b, math::OP::create(b, value));                                \
  }
NSA_EXPR_UNARY(exp, ExpOp)
NSA_EXPR_UNARY(exp2, Exp2Op)
NSA_EXPR_UNARY(log, LogOp)
NSA_EXPR_UNARY(sqrt, SqrtOp)
#undef NSA_EXPR_UNARY

Expr sigmoid(Expr x) { return 1 / (1 + exp(-x)); }

Expr abs(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  if (isa<FloatType>(value.getType()))
    return Expr(b, math::AbsFOp::create(b, value));
  return Expr(b, math::AbsIOp::create(b, value));
}

Expr convert(Expr expr, Type type) {
  ImplicitLocOpBuilder &b = expr.getBuilder();
  Value value = expr;
  Type from = value.getType();
  if (from == type)
    return expr;
  if (from.isInteger(1) && type.isInteger())
    return Expr(b, arith::ExtUIOp::create(b, type, value));
  if (from.isInteger(1))
    return Expr(b, arith::UIToFPOp::create(b, type, value));
  if (isa<IntegerType>(from))
    return Expr(b, arith::SIToFPOp::create(b, type, value));
  if (isa<IntegerType>(type))
    return Expr(b, arith::FPToSIOp::create(b, type, value));
  if (from.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return Expr(b, arith::ExtFOp::create(b, type, value));
  return Expr(b, arith::TruncFOp::create(b, type, value));
}

} // namespace nsa

SmallVector<Value>
nsa::forLoop(ImplicitLocOpBuilder &b, Value lower, Value upper, Value step,
             ArrayRef<Value> inits,
             function_ref<SmallVector<Value>(Expr, ArrayRef<Value>)> body) {
  // The region is filled through this builder, so that every Expr follows.
  auto loop =
      scf::ForOp::create(b, lower, upper, step, inits,
                         [](OpBuilder &, Location, Value, ValueRange) {});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> carried(loop.getRegionIterArgs());
  scf::YieldOp::create(b, body({b, loop.getInductionVar()}, carried));
  return llvm::to_vector_of<Value>(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static Expr asExpr(Scalar scalar) {
  return {scalar.getBuilder(), scalar.getValue()};
}

/// `compute` of numbers, or of values where a number becomes a constant.
template <typename Compute>
static Scalar apply(Scalar lhs, Scalar rhs, Compute compute) {
  if (lhs.isNumber() && rhs.isNumber())
    return static_cast<int64_t>(compute(lhs.getNumber(), rhs.getNumber()));
  Expr result;
  if (rhs.isNumber())
    result = compute(asExpr(lhs), static_cast<double>(rhs.getNumber()));
  else if (lhs.isNumber())
    result = compute(static_cast<double>(lhs.getNumber()), asExpr(rhs));
  else
    result = compute(asExpr(lhs), asExpr(rhs));
  return {result.getBuilder(), result};
}

#define NSA_SCALAR_OPERATOR(OP)                                                \
  Scalar nsa::operator OP(Scalar lhs, Scalar rhs) {                            \
    return apply(lhs, rhs, [](auto x, auto y) { return x OP y; });             \
  }
NSA_SCALAR_OPERATOR(+)
NSA_SCALAR_OPERATOR(-)
NSA_SCALAR_OPERATOR(*)
NSA_SCALAR_OPERATOR(%)
NSA_SCALAR_OPERATOR(<=)
NSA_SCALAR_OPERATOR(>)
NSA_SCALAR_OPERATOR(==)
#undef NSA_SCALAR_OPERATOR

Scalar nsa::operator&(Scalar lhs, Scalar rhs) {
  if (lhs.isNumber() && rhs.isNumber())
    return lhs.getNumber() & rhs.getNumber();
  Expr both = asExpr(lhs) & asExpr(rhs);
  return {both.getBuilder(), both};
}

Scalar nsa::max(Scalar lhs, Scalar rhs) {
  if (lhs.isNumber() && rhs.isNumber())
    return std::max(lhs.getNumber(), rhs.getNumber());
  Expr most = max(asExpr(lhs), static_cast<double>(rhs.getNumber()));
  return {most.getBuilder(), most};
}

Scalar nsa::min(Scalar lhs, Scalar rhs) {
  if (lhs.isNumber() && rhs.isNumber())
    return std::min(lhs.getNumber(), rhs.getNumber());
  Expr least = rhs.isNumber()
                   ? min(asExpr(lhs), static_cast<double>(rhs.getNumber()))
                   : min(asExpr(lhs), asExpr(rhs));
  return {least.getBuilder(), least};
}

Scalar nsa::floorDiv(Scalar lhs, Scalar rhs) {
  if (lhs.isNumber())
    return llvm::divideFloorSigned(lhs.getNumber(), rhs.getNumber());
  Expr quotient = floorDiv(asExpr(lhs), static_cast<double>(rhs.getNumber()));
  return {quotient.getBuilder(), quotient};
}
