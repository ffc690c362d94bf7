//===- ExpandMath.cpp - math functions as arithmetic ----------------------===//
//
// Polynomials after Cephes (S. Moshier). Everything works on f32 scalars and
// vectors alike.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/TileToCPU/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_NSAEXPANDMATH
#include "passes/TileToCPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;

namespace {
/// Arithmetic on values of one shape.
class Formula {
public:
  Formula(PatternRewriter &rewriter, Operation *op)
      : b(op->getLoc(), rewriter), type(op->getResult(0).getType()) {}

  Value number(double x) { return constant(type, b.getF32FloatAttr(x)); }
  Value integer(int64_t x) {
    return constant(intType(), b.getI32IntegerAttr(x));
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, x, y); }
  /// x y + z, rounded once where the processor can.
  Value fma(Value x, Value y, Value z) {
    return LLVM::FMulAddOp::create(b, x, y, z);
  }
  Value sqrt(Value x) { return math::SqrtOp::create(b, x); }
  Value addInt(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value subInt(Value x, Value y) { return arith::SubIOp::create(b, x, y); }
  Value andInt(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value shiftLeft(Value x, int64_t n) {
    return arith::ShLIOp::create(b, x, integer(n));
  }
  Value shiftRight(Value x, int64_t n) {
    return arith::ShRSIOp::create(b, x, integer(n));
  }
  Value toInt(Value x) { return arith::SIToFPOp::create(b, type, x); }
  Value bits(Value x) { return arith::BitcastOp::create(b, intType(), x); }
  Value fromBits(Value x) { return arith::BitcastOp::create(b, type, x); }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::CmpFOp::create(b, predicate, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }
  /// c[0] x^(n-1) + ... + c[n-1].
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value sum = number(coefficients.front());
    for (double coefficient : coefficients.drop_front())
      sum = fma(sum, x, number(coefficient));
    return sum;
  }
  /// exp(r) 2^n for |r| <= ln(2) / 2, where `shifted` is n + roundingShift. The
  /// power is applied as 2 exp(r) times 2^(n - 1), which reaches infinity;
  /// below the normal numbers, where x < limit, the result is 0.
  Value scaledExp(Value r, Value shifted, Value x, double limit) {
    Value twice = polynomial(r, {2.786782575e-3, 1.67387332646e-2,
                                 8.3332970472e-2, 3.3333042898e-1, 1, 2, 2});
    // The shift drops all bits of the sum but those of n.
    Value power =
        fromBits(addInt(shiftLeft(bits(shifted), 23), bits(number(0.5))));
    return select(compare(arith::CmpFPredicate::OLT, x, number(limit)),
                  number(0), mul(twice, power));
  }

private:
  Value constant(Type type, Attribute attr) {
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, attr);
    return arith::ConstantOp::create(b, cast<TypedAttr>(attr));
  }
  Type intType() {
    if (auto vector = dyn_cast<VectorType>(type))
      return vector.clone(b.getI32Type());
    return b.getI32Type();
  }

  ImplicitLocOpBuilder b;
  Type type;
};
} // namespace

/// Adding and subtracting it rounds a float below 2^22 to an integer, which
/// then stands in the low bits of the sum.
static constexpr double roundingShift = 12582912.0; // 1.5 * 2^23

/// n = round(x / ln 2), exp(x) = exp(x - n ln 2) 2^n. Beyond the limits the
/// result is 0 or inf.
static Value expandExp(Formula &f, Value x) {
  Value limited = f.select(
      f.compare(arith::CmpFPredicate::OGT, x, f.number(89)), f.number(89), x);
  Value shifted =
      f.fma(limited, f.number(1.44269504088896341), f.number(roundingShift));
  Value n = f.sub(shifted, f.number(roundingShift));
  // ln 2 in two parts, the first exact in few bits.
  Value r = f.fma(n, f.number(-0.693359375), limited);
  r = f.fma(n, f.number(2.12194440e-4), r);
  return f.scaledExp(r, shifted, x, -87);
}

static Value expandExp2(Formula &f, Value x) {
  Value limited = f.select(
      f.compare(arith::CmpFPredicate::OGT, x, f.number(129)), f.number(129), x);
  Value shifted = f.add(limited, f.number(roundingShift));
  Value n = f.sub(shifted, f.number(roundingShift));
  Value r = f.mul(f.sub(limited, n), f.number(0.693147180559945309));
  return f.scaledExp(r, shifted, x, -125.5);
}

/// x = 2^e m with sqrt(1/2) <= m < sqrt(2), log(x) = e ln 2 + log(m).
static Value expandLog(Formula &f, Value x) {
  // Subnormal numbers are scaled into the normal range first.
  Value isTiny =
      f.compare(arith::CmpFPredicate::OLT, x, f.number(1.17549435e-38));
  Value scaled = f.select(isTiny, f.mul(x, f.number(8388608.0)), x);
  Value bits = f.subInt(f.bits(scaled), f.integer(0x3f3504f3));
  Value e = f.toInt(f.shiftRight(bits, 23));
  e = f.select(isTiny, f.sub(e, f.number(23)), e);
  Value m = f.fromBits(
      f.addInt(f.andInt(bits, f.integer(0x7fffff)), f.integer(0x3f3504f3)));
  m = f.sub(m, f.number(1));
  Value square = f.mul(m, m);
  Value p =
      f.polynomial(m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1,
                       -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
                       2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  p = f.mul(f.mul(p, m), square);
  p = f.fma(e, f.number(-2.12194440e-4), p);
  p = f.fma(square, f.number(-0.5), p);
  Value result = f.fma(e, f.number(0.693359375), f.add(m, p));

  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  Value zero = f.number(0);
  auto is = [&](arith::CmpFPredicate predicate, Value limit) {
    return f.compare(predicate, x, limit);
  };
  result =
      f.select(is(arith::CmpFPredicate::OLT, f.number(infinity)), result, x);
  result = f.select(is(arith::CmpFPredicate::OLT, zero), f.number(nan), result);
  return f.select(is(arith::CmpFPredicate::OEQ, zero), f.number(-infinity),
                  result);
}

static Value expandRsqrt(Formula &f, Value x) {
  return f.div(f.number(1), f.sqrt(x));
}

namespace {
template <typename OpT, Value (*expand)(Formula &, Value)>
struct Expand : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;

  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not f32");
    Formula formula(rewriter, op);
    rewriter.replaceOp(op, expand(formula, op.getOperand()));
    return success();
  }
};

/// Without such an instruction, `math.fma` would be a call of libm.
struct ExpandFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::FmaOp op,
                                PatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::FMulAddOp>(op, op.getA(), op.getB(),
                                                 op.getC());
    return success();
  }
};

struct ExpandMathPass : nsa::impl::NSAExpandMathBase<ExpandMathPass> {
  using NSAExpandMathBase::NSAExpandMathBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns
        .add<Expand<math::ExpOp, expandExp>, Expand<math::Exp2Op, expandExp2>,
             Expand<math::LogOp, expandLog>, Expand<math::RsqrtOp, expandRsqrt>,
             ExpandFma>(&getContext(),
                        /*benefit=*/10);
    populateMathPolynomialApproximationPatterns(
        patterns, [](StringRef name) { return name != "math.exp"; });
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa_and_present<math::MathDialect>(op->getDialect()))
        ops.push_back(op);
    });
    GreedyRewriteConfig config;
    config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
    if (failed(applyOpPatternsGreedily(ops, std::move(patterns), config)))
      return signalPassFailure();
    auto result = getOperation()->walk([](Operation *op) {
      bool isCall =
          isa<arith::RemFOp>(op) ||
          (isa_and_present<math::MathDialect>(op->getDialect()) &&
           !isa<math::SqrtOp, math::AbsFOp, math::AbsIOp, math::FloorOp,
                math::CeilOp, math::TruncOp, math::RoundEvenOp,
                math::CopySignOp, math::CtPopOp, math::CountLeadingZerosOp,
                math::CountTrailingZerosOp>(op));
      if (!isCall)
        return WalkResult::advance();
      op->emitOpError("has no lowering to the CPU");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
