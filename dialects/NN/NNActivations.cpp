//===- NNActivations.cpp - activations of the nn dialect ------------------===//

#include "dialects/NN/NNActivations.h"
#include "dialects/Interfaces/Expr.h"
#include "dialects/Interfaces/ShapeChecks.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

#define GET_OP_CLASSES
#include "dialects/NN/NNActivations.cpp.inc"

void NNDialect::registerActivations() {
  addOperations<
#define GET_OP_LIST
#include "dialects/NN/NNActivations.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// GELU
//===----------------------------------------------------------------------===//

/// 2 * sqrt(2 / pi): (1 + tanh(u)) / 2 is the sigmoid of 2 u.
static constexpr double kSlope = 1.5957691216057308, kCubic = 0.044715;

static Expr geluShare(Expr x) {
  return sigmoid(kSlope * x * (1 + kCubic * x * x));
}

/// d/dx gelu(x), given s = geluShare(x).
static Expr geluSlope(Expr x, Expr s) {
  Expr slope = kSlope * (1 + 3 * kCubic * x * x);
  return s + x * s * (1 - s) * slope;
}

SmallVector<Value> GeluOp::buildElements(ImplicitLocOpBuilder &b,
                                         ValueRange operands) {
  Expr x(b, operands[0]);
  return {x * geluShare(x)};
}

SmallVector<Value> GeluBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                 ValueRange operands) {
  Expr dy(b, operands[0]), x(b, operands[1]);
  return {dy * geluSlope(x, geluShare(x))};
}

int64_t GeluOp::getFlopsPerElement() { return 9; }
int64_t GeluBackwardOp::getFlopsPerElement() { return 17; }

//===----------------------------------------------------------------------===//
// GeGLU
//===----------------------------------------------------------------------===//

SmallVector<Value> GeGLUOp::buildElements(ImplicitLocOpBuilder &b,
                                          ValueRange operands) {
  Expr gate(b, operands[0]), up(b, operands[1]);
  return {gate * geluShare(gate) * up};
}

SmallVector<Value> GeGLUBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                  ValueRange operands) {
  Expr dy(b, operands[0]), gate(b, operands[1]), up(b, operands[2]);
  Expr s = geluShare(gate);
  return {dy * up * geluSlope(gate, s), dy * gate * s};
}

int64_t GeGLUOp::getFlopsPerElement() { return 10; }
int64_t GeGLUBackwardOp::getFlopsPerElement() { return 20; }

//===----------------------------------------------------------------------===//
// Scale
//===----------------------------------------------------------------------===//

SmallVector<Value> ScaleOp::buildElements(ImplicitLocOpBuilder &b,
                                          ValueRange operands) {
  return {Expr(b, operands[0]) * getFactor().convertToDouble()};
}

int64_t ScaleOp::getFlopsPerElement() { return 1; }

//===----------------------------------------------------------------------===//
// Squared ReLU
//===----------------------------------------------------------------------===//

/// What is not a number stays so.
static Expr relu(Expr x) { return select(x < 0, 0, x); }

SmallVector<Value> SquaredReluOp::buildElements(ImplicitLocOpBuilder &b,
                                                ValueRange operands) {
  Expr y = relu(Expr(b, operands[0]));
  return {y * y};
}

SmallVector<Value> SquaredReluBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                        ValueRange operands) {
  return {Expr(b, operands[0]) * (2 * relu(Expr(b, operands[1])))};
}

int64_t SquaredReluOp::getFlopsPerElement() { return 2; }
int64_t SquaredReluBackwardOp::getFlopsPerElement() { return 3; }

//===----------------------------------------------------------------------===//
// Softcap
//===----------------------------------------------------------------------===//

/// tanh to a few ulp on every target. Near 0, where the exponential cancels, it
/// is the polynomial of the Cephes library (Moshier, tanhf).
static Expr accurateTanh(Expr x) {
  Expr size = abs(x), square = x * x;
  Expr tail = 1 - 2 / (exp(2 * size) + 1);
  Expr sum = square * -5.70498872745e-3 + 2.06390887954e-2;
  for (double coefficient :
       {-5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1})
    sum = sum * square + coefficient;
  return select(size < 0.625, x + x * square * sum, select(x < 0, -tail, tail));
}

SmallVector<Value> SoftcapOp::buildElements(ImplicitLocOpBuilder &b,
                                            ValueRange operands) {
  double cap = getCap().convertToDouble();
  return {accurateTanh(Expr(b, operands[0]) * (1 / cap)) * cap};
}

SmallVector<Value> SoftcapBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                    ValueRange operands) {
  Expr t = Expr(b, operands[1]) * (1 / getCap().convertToDouble());
  return {Expr(b, operands[0]) * (1 - t * t)};
}

int64_t SoftcapOp::getFlopsPerElement() { return 18; }
int64_t SoftcapBackwardOp::getFlopsPerElement() { return 4; }
