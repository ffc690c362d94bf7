//===- NNOptimizers.cpp - optimizers of the nn dialect --------------------===//

#include "dialects/NN/NNOptimizers.h"
#include "dialects/Interfaces/Expr.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "nsa/Artifact/TrainingContract.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

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

static Expr isFiniteStep(Expr norm, Value loss, ScalarLoader load) {
  double infinity = std::numeric_limits<double>::infinity();
  return (abs(norm) < infinity) & (abs(load(loss, {})) < infinity);
}

/// base^exponent for an exponent of 24 bits, by squaring: exact to a few ulp,
/// where the exponential of a logarithm is not for bases close to 1.
static Expr power(Expr base, Expr exponent) {
  ImplicitLocOpBuilder &b = base.getBuilder();
  auto multiply = [&](Expr, ArrayRef<Value> carried) -> SmallVector<Value> {
    Expr product(b, carried[0]), square(b, carried[1]), rest(b, carried[2]);
    Expr next = select(rest % 2 == 1, product * square, product);
    return {next, square * square, rest / 2};
  };
  Value one = base.constant(1), first = exponent.constant(0),
        end = exponent.constant(24), step = exponent.constant(1);
  auto powers = forLoop(b, first, end, step, {one, base, exponent}, multiply);
  return {b, powers[0]};
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

LogicalResult AdamWOp::verify() { return verifyHyper(*this); }

unsigned AdamWOp::getNumElementOperands() { return 4; }
int64_t AdamWOp::getFlopsPerElement() { return 16; }

SmallVector<Value> AdamWOp::buildScalars(ImplicitLocOpBuilder &b,
                                         ValueRange operands,
                                         ScalarLoader load) {
  Value hyper = operands[2];
  auto get = [&](int index) { return load(hyper, {index}); };
  Expr lr = get(training::learningRateSlot), beta1 = get(training::beta1Slot),
       beta2 = get(training::beta2Slot), eps = get(training::epsilonSlot);
  Expr weightDecay = get(training::weightDecaySlot),
       maxNorm = get(training::maxNormSlot),
       scale = get(training::gradScaleSlot);
  Expr step = convert(get(training::stepSlot), b.getI32Type());
  Expr norm = load(operands[0], {});
  Expr gradScale = scaleGradient(norm, maxNorm, scale);
  Expr correction1 = 1 / (1 - power(beta1, step));
  Expr correction2 = 1 / (1 - power(beta2, step));
  Expr isFinite = isFiniteStep(norm, operands[1], load);
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

LogicalResult LionOp::verify() { return verifyHyper(*this); }

unsigned LionOp::getNumElementOperands() { return 3; }
int64_t LionOp::getFlopsPerElement() { return 12; }

SmallVector<Value> LionOp::buildScalars(ImplicitLocOpBuilder &b,
                                        ValueRange operands,
                                        ScalarLoader load) {
  auto get = [&](int index) { return load(operands[2], {index}); };
  Expr norm = load(operands[0], {});
  return {get(training::learningRateSlot),
          get(training::beta1Slot),
          get(training::beta2Slot),
          get(training::weightDecaySlot),
          scaleGradient(norm, get(training::maxNormSlot),
                        get(training::gradScaleSlot)),
          isFiniteStep(norm, operands[1], load)};
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

LogicalResult MuonOp::verify() { return verifyHyper(*this); }

/// Coefficients of the polynomial that an iteration applies to all singular
/// values, and how often (Jordan et al.).
static constexpr double kLinear = 3.4445, kCubic = -4.775, kQuintic = 2.0315;
static constexpr int kIterations = 5;

/// Elements of matrices that are updated together: enough to fill a GPU, and no
/// more memory than that.
static constexpr int64_t kMostElements = int64_t(1) << 26;

/// One Newton-Schulz iteration of `batch` matrices: singular values come closer
/// to 1.
static Value iterate(OpBuilder &builder, Location loc, Value x, int64_t batch) {
  ArrayRef<int64_t> shape = getShape(x);
  bool isTall = shape[0] / batch > shape[1];
  auto multiply = [&](Value lhs, Value rhs, double alpha, Value addend,
                      double beta, bool transposeLhs = false,
                      bool transposeRhs = false) -> Value {
    return BatchMatmulOp::create(builder, loc, lhs, rhs, addend, transposeLhs,
                                 transposeRhs, APFloat(alpha), APFloat(beta),
                                 batch);
  };
  Value a = multiply(x, x, 1, Value(), 0, isTall, !isTall);
  Value b = multiply(a, a, kQuintic, a, kCubic);
  return isTall ? multiply(x, b, 1, x, kLinear) : multiply(b, x, 1, x, kLinear);
}

/// New weights and momenta of matrices that lie one below the other meanwhile.
static void updateTogether(OpBuilder &builder,
                           ArrayRef<OptimizerOpInterface> group, Type element,
                           SmallVectorImpl<Value> &results) {
  OptimizerOpInterface first = group.front();
  Location loc = first.getLoc();
  SmallVector<Value> directions, momenta;
  for (OptimizerOpInterface member : group) {
    auto momentum = MomentumOp::create(
        builder, member.getLoc(), member.getStates()[0], member.getGradient(),
        member.getNorm(), member.getLoss(), member.getHyper());
    momenta.push_back(momentum.getNewMomentum());
    directions.push_back(momentum.getDirection());
  }
  int64_t batch = group.size();
  Value x = builder.createOrFold<ConcatOp>(loc, directions, /*rows=*/true);
  bool isFull = element.isF32();
  x = NormalizeOp::create(builder, loc, x, batch,
                          isFull ? TypeAttr() : TypeAttr::get(element));
  for (int i = 0; i < kIterations; ++i)
    x = iterate(builder, loc, x, batch);
  ArrayRef<int64_t> shape = getShape(first.getWeight());
  SmallVector<Value> steps = {x};
  if (batch > 1)
    steps =
        SplitOp::create(builder, loc, x, SmallVector<int64_t>(batch, shape[0]),
                        /*rows=*/true)
            .getParts();
  double scale = 0.2 * std::sqrt(double(std::max(shape[0], shape[1])));
  for (auto &&[member, momentum, direction] :
       llvm::zip_equal(group, momenta, steps)) {
    OptimizerOpInterface step = member;
    results.push_back(TakeStepOp::create(
        builder, step.getLoc(), step.getWeight(), direction, step.getNorm(),
        step.getLoss(), step.getHyper(), APFloat(scale), step.getDecay()));
    results.push_back(momentum);
  }
}

SmallVector<Value> MuonOp::buildUpdate(OpBuilder &builder,
                                       ArrayRef<OptimizerOpInterface> group) {
  Type element = getElementType().value_or(builder.getF32Type());
  int64_t elements = getWeight().getType().getNumElements();
  size_t most = std::max<int64_t>(kMostElements / elements, 1);
  SmallVector<Value> results;
  for (; !group.empty(); group = group.drop_front(std::min(most, group.size())))
    updateTogether(builder, group.take_front(most), element, results);
  return results;
}

LogicalResult MomentumOp::verify() {
  if (failed(checkShape(*this, "gradient", getGradient(),
                        getShape(getMomentum()))))
    return failure();
  return verifyHyper(*this);
}

unsigned MomentumOp::getNumElementOperands() { return 2; }
int64_t MomentumOp::getFlopsPerElement() { return 8; }

SmallVector<Value> MomentumOp::buildScalars(ImplicitLocOpBuilder &b,
                                            ValueRange operands,
                                            ScalarLoader load) {
  auto get = [&](int index) { return load(operands[2], {index}); };
  Expr norm = load(operands[0], {});
  return {get(training::beta1Slot),
          scaleGradient(norm, get(training::maxNormSlot),
                        get(training::gradScaleSlot)),
          isFiniteStep(norm, operands[1], load)};
}

SmallVector<Value> MomentumOp::buildElements(ImplicitLocOpBuilder &b,
                                             ValueRange elements,
                                             ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr beta1 = s[0], m = x[0], g = x[1] * s[1];
  Expr m1 = beta1 * m + (1 - beta1) * g;
  return {select(s[2], m1, m), beta1 * m1 + (1 - beta1) * g};
}

/// Whether the rows of `value` are those of `batch` matrices with elements.
static LogicalResult checkBatch(Operation *op, StringRef name, Value value,
                                int64_t batch) {
  if (failed(checkNotEmpty(op, name, value)))
    return failure();
  return checkMultiple(op, ("rows of " + name).str(), getShape(value)[0],
                       "batch", batch);
}

LogicalResult NormalizeOp::verify() {
  return checkBatch(*this, "input", getInput(), getBatch());
}

LogicalResult BatchMatmulOp::inferReturnTypes(MLIRContext *,
                                              std::optional<Location>,
                                              Adaptor adaptor,
                                              SmallVectorImpl<Type> &types) {
  int64_t batch = std::max<int64_t>(adaptor.getBatch(), 1);
  auto lhs = cast<RankedTensorType>(adaptor.getLhs().getType());
  ArrayRef<int64_t> rhs = getShape(adaptor.getRhs());
  int64_t rows =
      adaptor.getTransposeLhs() ? lhs.getDimSize(1) * batch : lhs.getDimSize(0);
  int64_t columns = adaptor.getTransposeRhs() ? rhs[0] / batch : rhs[1];
  types.push_back(lhs.clone({rows, columns}));
  return success();
}

LogicalResult BatchMatmulOp::verify() {
  int64_t batch = getBatch();
  if (failed(checkBatch(*this, "lhs", getLhs(), batch)) ||
      failed(checkBatch(*this, "rhs", getRhs(), batch)))
    return failure();
  if (getElementTypeOrSelf(getLhs()) != getElementTypeOrSelf(getRhs()))
    return emitOpError("multiplies ")
           << getLhs().getType() << " by " << getRhs().getType();
  if (getAddend() && getAddend().getType() != getType())
    return emitOpError("adds ")
           << getAddend().getType() << " to a matmul of type " << getType();
  if (!getAddend() && !getBeta().isZero())
    return emitOpError("multiplies no addend by ")
           << getBeta().convertToDouble();
  ArrayRef<int64_t> lhs = getShape(getLhs()), rhs = getShape(getRhs());
  return checkEqual(*this, getTransposeLhs() ? "rows of lhs" : "columns of lhs",
                    getTransposeLhs() ? lhs[0] / batch : lhs[1],
                    getTransposeRhs() ? "columns of rhs" : "rows of rhs",
                    getTransposeRhs() ? rhs[1] : rhs[0] / batch);
}

LogicalResult TakeStepOp::verify() {
  if (failed(checkShape(*this, "direction", getDirection(),
                        getShape(getWeight()))))
    return failure();
  return verifyHyper(*this);
}

unsigned TakeStepOp::getNumElementOperands() { return 2; }
int64_t TakeStepOp::getFlopsPerElement() { return 4; }

SmallVector<Value> TakeStepOp::buildScalars(ImplicitLocOpBuilder &b,
                                            ValueRange operands,
                                            ScalarLoader load) {
  auto get = [&](int index) { return load(operands[2], {index}); };
  Expr norm = load(operands[0], {});
  return {get(training::learningRateSlot), get(training::weightDecaySlot),
          isFiniteStep(norm, operands[1], load)};
}

SmallVector<Value> TakeStepOp::buildElements(ImplicitLocOpBuilder &b,
                                             ValueRange elements,
                                             ValueRange scalars) {
  SmallVector<Expr> x = toExprs(b, elements), s = toExprs(b, scalars);
  Expr w = x[0], lr = s[0];
  Expr base = getDecay() ? w - lr * s[1] * w : w;
  return {select(s[2], base - lr * getScale().convertToDouble() * x[1], w)};
}
