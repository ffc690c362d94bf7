//===- NNOptimizers.cpp - optimizers of the nn dialect --------------------===//

#include "dialects/NN/NNOptimizers.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/Tile/TileBuilder.h"
#include "nsa/Artifact/TrainingContract.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;
using tile::Expr;
using tile::TileBuilder;

#define GET_OP_CLASSES
#include "dialects/NN/NNOptimizers.cpp.inc"

void NNDialect::registerOptimizers() {
  addOperations<
#define GET_OP_LIST
#include "dialects/NN/NNOptimizers.cpp.inc"
      >();
}

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

//===----------------------------------------------------------------------===//
// Muon
//===----------------------------------------------------------------------===//

bool MuonOp::canUpdate(RankedTensorType weight) {
  return weight.getRank() == 2 && weight.getNumElements() > 0;
}

StringRef MuonOp::getCompanion() { return "adamw"; }

SmallVector<OptimizerState> MuonOp::getStateSpecs(RankedTensorType weight) {
  return {{"momentum", weight}};
}

LogicalResult MuonOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  types.append(2, adaptor.getWeight().getType());
  return success();
}

LogicalResult MuonOp::verify() { return verifyHyper(*this); }

/// Coefficients of the polynomial that an iteration applies to all singular
/// values, and how often (Jordan et al.).
static constexpr double kLinear = 3.4445, kCubic = -4.775, kQuintic = 2.0315;
static constexpr int kIterations = 5;

/// One Newton-Schulz iteration: singular values come closer to 1.
static Value iterate(OpBuilder &builder, Location loc, Value x) {
  auto type = cast<RankedTensorType>(x.getType());
  bool isTall = type.getDimSize(0) > type.getDimSize(1);
  auto multiply = [&](Value lhs, Value rhs, bool transposeLhs = false,
                      bool transposeRhs = false) -> Value {
    return MatmulOp::create(builder, loc, lhs, rhs, /*accumulator=*/Value(),
                            transposeLhs, transposeRhs,
                            /*result_type=*/TypeAttr());
  };
  auto add = [&](Value lhs, Value rhs, double alpha, double beta) -> Value {
    return WeightedSumOp::create(builder, loc, lhs, rhs,
                                 builder.getF64FloatAttr(alpha),
                                 builder.getF64FloatAttr(beta));
  };
  Value a = multiply(x, x, isTall, !isTall);
  Value b = add(a, multiply(a, a), kCubic, kQuintic);
  return add(x, isTall ? multiply(x, b) : multiply(b, x), kLinear, 1.0);
}

/// All members of the group take one iteration after the other, so that
/// products of the same sizes are neighbours.
SmallVector<Value> MuonOp::buildUpdate(OpBuilder &builder,
                                       ArrayRef<OptimizerOpInterface> group) {
  Type full = builder.getF32Type(), element = getElementType().value_or(full);
  SmallVector<MomentumOp> momenta;
  SmallVector<Value> directions;
  for (OptimizerOpInterface member : group) {
    Location loc = member.getLoc();
    momenta.push_back(MomentumOp::create(builder, loc, member.getStates()[0],
                                         member.getGradient(), member.getNorm(),
                                         member.getLoss(), member.getHyper()));
    Value direction = momenta.back().getDirection();
    Value norm = GradientNormOp::create(builder, loc, direction,
                                        /*squared=*/false);
    Value unit = NormalizeOp::create(builder, loc, direction, norm);
    directions.push_back(builder.createOrFold<CastOp>(loc, unit, element));
  }
  for (int i = 0; i < kIterations; ++i)
    for (auto [member, direction] : llvm::zip_equal(group, directions))
      direction = iterate(builder, member->getLoc(), direction);
  ArrayRef<int64_t> shape = getShape(getWeight());
  double scale = 0.2 * std::sqrt(double(std::max(shape[0], shape[1])));
  SmallVector<Value> results;
  for (auto &&[member, momentum, direction] :
       llvm::zip_equal(group, momenta, directions)) {
    OptimizerOpInterface step = member;
    direction = builder.createOrFold<CastOp>(step.getLoc(), direction, full);
    results.push_back(TakeStepOp::create(
        builder, step.getLoc(), step.getWeight(), direction, step.getNorm(),
        step.getLoss(), step.getHyper(), APFloat(scale), step.getDecay()));
    results.push_back(momentum.getNewMomentum());
  }
  return results;
}

LogicalResult MomentumOp::inferReturnTypes(MLIRContext *,
                                           std::optional<Location>,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  types.append(2, adaptor.getMomentum().getType());
  return success();
}

LogicalResult MomentumOp::verify() {
  if (failed(checkShape(*this, "gradient", getGradient(),
                        getShape(getMomentum()))))
    return failure();
  return verifyHyper(*this);
}

unsigned MomentumOp::getNumElementOperands() { return 2; }
int64_t MomentumOp::getFlopsPerElement() { return 8; }

SmallVector<Value> MomentumOp::buildScalars(TileBuilder &b,
                                            ValueRange operands) {
  auto get = [&](int index) { return b.loadScalar(operands[2], {index}); };
  Expr norm = b.loadScalar(operands[0], {});
  return {get(training::beta1Slot),
          scaleGradient(norm, get(training::maxNormSlot),
                        get(training::gradScaleSlot)),
          isFiniteStep(b, norm, operands[1])};
}

SmallVector<Value> MomentumOp::buildElements(ImplicitLocOpBuilder &b,
                                             ValueRange elements,
                                             ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr beta1 = s[0], m = x[0], g = x[1] * s[1];
  Expr m1 = beta1 * m + (1 - beta1) * g;
  return {select(s[2], m1, m), beta1 * m1 + (1 - beta1) * g};
}

LogicalResult NormalizeOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location>,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getInput().getType());
  return success();
}

unsigned NormalizeOp::getNumElementOperands() { return 1; }
int64_t NormalizeOp::getFlopsPerElement() { return 1; }

SmallVector<Value> NormalizeOp::buildScalars(TileBuilder &b,
                                             ValueRange operands) {
  return {1 / (b.loadScalar(operands[0], {}) + 1e-7)};
}

SmallVector<Value> NormalizeOp::buildElements(ImplicitLocOpBuilder &b,
                                              ValueRange elements,
                                              ValueRange scalars) {
  return {Expr(b, elements[0]) * Expr(b, scalars[0])};
}

LogicalResult WeightedSumOp::inferReturnTypes(MLIRContext *,
                                              std::optional<Location>,
                                              Adaptor adaptor,
                                              SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getLhs().getType());
  return success();
}

SmallVector<Value> WeightedSumOp::buildElements(ImplicitLocOpBuilder &b,
                                                ValueRange x) {
  return {Expr(b, x[0]) * getAlpha().convertToDouble() +
          Expr(b, x[1]) * getBeta().convertToDouble()};
}

int64_t WeightedSumOp::getFlopsPerElement() { return 3; }

LogicalResult TakeStepOp::inferReturnTypes(MLIRContext *,
                                           std::optional<Location>,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  types.push_back(adaptor.getWeight().getType());
  return success();
}

LogicalResult TakeStepOp::verify() {
  if (failed(checkShape(*this, "direction", getDirection(),
                        getShape(getWeight()))))
    return failure();
  return verifyHyper(*this);
}

unsigned TakeStepOp::getNumElementOperands() { return 2; }
int64_t TakeStepOp::getFlopsPerElement() { return 4; }

SmallVector<Value> TakeStepOp::buildScalars(TileBuilder &b,
                                            ValueRange operands) {
  auto get = [&](int index) { return b.loadScalar(operands[2], {index}); };
  Expr norm = b.loadScalar(operands[0], {});
  return {get(training::learningRateSlot), get(training::weightDecaySlot),
          isFiniteStep(b, norm, operands[1])};
}

SmallVector<Value> TakeStepOp::buildElements(ImplicitLocOpBuilder &b,
                                             ValueRange elements,
                                             ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr w = x[0], lr = s[0];
  Expr base = getDecay() ? w - lr * s[1] * w : w;
  return {select(s[2], base - lr * getScale().convertToDouble() * x[1], w)};
}
