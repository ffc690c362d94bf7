//===- NNOptimizers.cpp - optimizers of the nn dialect --------------------===//

#include "dialects/NN/NNOptimizers.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/Tile/TileBuilder.h"
#include "nsa/Artifact/TrainingContract.h"

#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;
using tile::Expr;
using tile::TileBuilder;

#define GET_OP_CLASSES
#include "dialects/NN/NNOptimizers.cpp.inc"

//===----------------------------------------------------------------------===//
// What optimizers share
//===----------------------------------------------------------------------===//

template <typename OpT>
static LogicalResult verifyHyper(OpT op) {
  return checkShape(op, "hyper", op.getHyper(), {training::numHyper});
}

/// What a gradient is multiplied with: its scale and the clipping.
static Expr scaleGradient(Expr norm, Expr maxNorm, Expr scale) {
  Expr scaled = norm * scale;
  Expr clip = select((maxNorm > 0) & (scaled > maxNorm), maxNorm / scaled, 1);
  return scale * clip;
}

static Expr isFiniteStep(TileBuilder &b, Expr norm, Value loss) {
  double infinity = std::numeric_limits<double>::infinity();
  return (abs(norm) < infinity) & (abs(b.loadScalar(loss, {})) < infinity);
}

/// base^exponent for an exponent of 24 bits, by squaring: exact to a few ulp,
/// where the exponential of a logarithm is not for bases close to 1.
static Expr power(TileBuilder &b, Expr base, Expr exponent) {
  auto result =
      b.forLoop(0, 24, 1, {b.constantF32(1), base, exponent},
                [&](Expr, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Expr product = b.expr(carried[0]),
                       square = b.expr(carried[1]);
                  Expr rest = b.expr(carried[2]);
                  Expr next = select(rest % 2 == 1, product * square, product);
                  return {next, square * square, rest / 2};
                });
  return b.expr(result[0]);
}

/// Values as expressions of one builder.
static SmallVector<Expr> toExprs(ImplicitLocOpBuilder &b, ValueRange values) {
  return llvm::map_to_vector(values, [&](Value v) { return Expr(b, v); });
}

//===----------------------------------------------------------------------===//
// AdamW
//===----------------------------------------------------------------------===//

SmallVector<OptimizerState> AdamWOp::getStateSpecs(RankedTensorType weight) {
  return {{"m", weight}, {"v", weight}};
}

LogicalResult AdamWOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                        Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  types.append(3, adaptor.getWeight().getType());
  return success();
}

LogicalResult AdamWOp::verify() { return verifyHyper(*this); }

unsigned AdamWOp::getNumElementOperands() { return 4; }
int64_t AdamWOp::getFlopsPerElement() { return 16; }

SmallVector<Value> AdamWOp::buildScalars(TileBuilder &b, ValueRange operands) {
  Value hyper = operands[2];
  auto get = [&](int index) { return b.loadScalar(hyper, {index}); };
  Expr lr = get(training::learningRateSlot), beta1 = get(training::beta1Slot),
       beta2 = get(training::beta2Slot), eps = get(training::epsilonSlot);
  Expr weightDecay = get(training::weightDecaySlot),
       maxNorm = get(training::maxNormSlot),
       scale = get(training::gradScaleSlot);
  Expr step = convert(get(training::stepSlot), b.i32());
  Expr norm = b.loadScalar(operands[0], {});
  Expr gradScale = scaleGradient(norm, maxNorm, scale);
  Expr correction1 = 1 / (1 - power(b, beta1, step));
  Expr correction2 = 1 / (1 - power(b, beta2, step));
  Expr isFinite = isFiniteStep(b, norm, operands[1]);
  return {lr,        beta1,       beta2,       eps,     weightDecay,
          gradScale, correction1, correction2, isFinite};
}

SmallVector<Value> AdamWOp::buildElements(ImplicitLocOpBuilder &b,
                                          ValueRange elements,
                                          ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr lr = s[0], beta1 = s[1], beta2 = s[2], eps = s[3], weightDecay = s[4];
  Expr correction1 = s[6], correction2 = s[7], isFinite = s[8];
  Expr w = x[0], m = x[1], v = x[2], g = x[3] * s[5];
  Expr m1 = beta1 * m + (1 - beta1) * g;
  Expr v1 = beta2 * v + (1 - beta2) * g * g;
  Expr base = getDecay() ? w - lr * weightDecay * w : w;
  Expr w1 = base - lr * (m1 * correction1) / (sqrt(v1 * correction2) + eps);
  return {select(isFinite, w1, w), select(isFinite, m1, m),
          select(isFinite, v1, v)};
}

//===----------------------------------------------------------------------===//
// Lion
//===----------------------------------------------------------------------===//

SmallVector<OptimizerState> LionOp::getStateSpecs(RankedTensorType weight) {
  return {{"ema", weight}};
}

LogicalResult LionOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  types.append(2, adaptor.getWeight().getType());
  return success();
}

LogicalResult LionOp::verify() { return verifyHyper(*this); }

unsigned LionOp::getNumElementOperands() { return 3; }
int64_t LionOp::getFlopsPerElement() { return 12; }

SmallVector<Value> LionOp::buildScalars(TileBuilder &b, ValueRange operands) {
  auto get = [&](int index) { return b.loadScalar(operands[2], {index}); };
  Expr norm = b.loadScalar(operands[0], {});
  return {get(training::learningRateSlot),
          get(training::beta1Slot),
          get(training::beta2Slot),
          get(training::weightDecaySlot),
          scaleGradient(norm, get(training::maxNormSlot),
                        get(training::gradScaleSlot)),
          isFiniteStep(b, norm, operands[1])};
}

SmallVector<Value> LionOp::buildElements(ImplicitLocOpBuilder &b,
                                         ValueRange elements,
                                         ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr lr = s[0], beta1 = s[1], beta2 = s[2], weightDecay = s[3];
  Expr w = x[0], ema = x[1], g = x[2] * s[4], isFinite = s[5];
  Expr c = beta1 * ema + (1 - beta1) * g;
  Expr sign = select(c > 0, 1, select(c < 0, -1, c.constant(0)));
  Expr base = getDecay() ? w - lr * weightDecay * w : w;
  return {select(isFinite, base - lr * sign, w),
          select(isFinite, beta2 * ema + (1 - beta2) * g, ema)};
}
