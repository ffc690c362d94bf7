//===- NN.cpp - the rest of a decoder in fp64 -----------------------------===//

#include "lib/Reference/Kernels/NN.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

using namespace nsa::reference;

static double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

Tensor nsa::reference::embedding(const Tensor &table, const Tensor &ids) {
  std::vector<int64_t> shape = ids.shape;
  shape.push_back(table.dim(1));
  Tensor out(shape);
  for (size_t i = 0; i < ids.elements(); ++i) {
    auto id = static_cast<int64_t>(ids.data[i]);
    if (id < 0 || id >= table.dim(0))
      continue;
    const double *row = table.row({id});
    std::copy(row, row + table.dim(1), out.data.begin() + i * table.dim(1));
  }
  return out;
}

Tensor nsa::reference::embeddingBackward(const Tensor &outputGrad,
                                         const Tensor &ids, int64_t vocab) {
  int64_t width = outputGrad.shape.back();
  Tensor grad({vocab, width});
  for (size_t i = 0; i < ids.elements(); ++i) {
    auto id = static_cast<int64_t>(ids.data[i]);
    if (id < 0 || id >= vocab)
      continue;
    for (int64_t c = 0; c < width; ++c)
      grad.at({id, c}) += outputGrad.data[i * width + c];
  }
  return grad;
}

Tensor nsa::reference::matmul(const Tensor &lhs, const Tensor &rhs,
                              bool transposeLhs, bool transposeRhs,
                              std::vector<int64_t> shape) {
  int64_t lhsRows = lhs.rows(), lhsColumns = lhs.shape.back();
  int64_t rhsRows = rhs.rows(), rhsColumns = rhs.shape.back();
  int64_t m = transposeLhs ? lhsColumns : lhsRows;
  int64_t depth = transposeLhs ? lhsRows : lhsColumns;
  int64_t n = transposeRhs ? rhsRows : rhsColumns;
  Tensor out(std::move(shape));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < depth; ++k) {
      double a =
          lhs.data[transposeLhs ? k * lhsColumns + i : i * lhsColumns + k];
      for (int64_t j = 0; j < n; ++j)
        out.data[i * n + j] +=
            a *
            rhs.data[transposeRhs ? j * rhsColumns + k : k * rhsColumns + j];
    }
  return out;
}

Tensor nsa::reference::addBias(const Tensor &x, const Tensor &bias) {
  Tensor out = x;
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] += bias.data[i % bias.data.size()];
  return out;
}

Tensor nsa::reference::sumRows(const Tensor &x) {
  Tensor sum({x.shape.back()}, 0.0);
  for (size_t i = 0; i < x.data.size(); ++i)
    sum.data[i % sum.data.size()] += x.data[i];
  return sum;
}

RmsNormResult nsa::reference::rmsNorm(const Tensor &x, const Tensor &weight,
                                      double eps) {
  int64_t width = x.shape.back();
  RmsNormResult result{Tensor(x.shape),
                       Tensor({x.shape.begin(), x.shape.end() - 1})};
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double *row = x.data.data() + r * width;
    double squares = 0.0;
    for (int64_t c = 0; c < width; ++c)
      squares += row[c] * row[c];
    double rstd = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
    result.rstd.data[r] = rstd;
    for (int64_t c = 0; c < width; ++c)
      result.output.data[r * width + c] = row[c] * rstd * weight.data[c];
  }
  return result;
}

RmsNormGradients nsa::reference::rmsNormBackward(const Tensor &outputGrad,
                                                 const Tensor &x,
                                                 const Tensor &weight,
                                                 const Tensor &rstd) {
  int64_t width = x.shape.back();
  RmsNormGradients grads{Tensor(x.shape), Tensor(weight.shape)};
  for (int64_t r = 0; r < x.rows(); ++r) {
    const double *row = x.data.data() + r * width;
    const double *dy = outputGrad.data.data() + r * width;
    double s = rstd.data[r], mean = 0.0;
    for (int64_t c = 0; c < width; ++c)
      mean += dy[c] * weight.data[c] * row[c] * s;
    mean /= static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c) {
      double normalised = row[c] * s;
      grads.input.data[r * width + c] =
          s * (dy[c] * weight.data[c] - normalised * mean);
      grads.weight.data[c] += dy[c] * normalised;
    }
  }
  return grads;
}

Tensor nsa::reference::rotaryTable(int64_t length, int64_t width, double base) {
  Tensor table({length, width / 2, 2});
  for (int64_t t = 0; t < length; ++t)
    for (int64_t i = 0; i < width / 2; ++i) {
      double frequency = std::pow(base, -2.0 * static_cast<double>(i) /
                                            static_cast<double>(width));
      double angle = static_cast<double>(t) * frequency;
      table.at({t, i, 0}) = std::cos(angle);
      table.at({t, i, 1}) = std::sin(angle);
    }
  return table;
}

Tensor nsa::reference::rotary(const Tensor &x, const Tensor &table,
                              int64_t stride, bool inverse,
                              const Tensor *start) {
  Tensor y(x.shape);
  int64_t half = x.dim(3) / 2;
  auto positionOf = [&](int64_t b, int64_t t) {
    if (!start)
      return t * stride;
    auto begin = static_cast<int64_t>(start->at({b, (t + 1) * stride - 1}));
    return (t - begin / stride) * stride;
  };
  for (int64_t b = 0; b < x.dim(0); ++b)
    for (int64_t t = 0; t < x.dim(1); ++t)
      for (int64_t h = 0; h < x.dim(2); ++h) {
        const double *row = x.row({b, t, h});
        double *out = y.row({b, t, h});
        for (int64_t i = 0; i < half; ++i) {
          int64_t position = positionOf(b, t);
          double cosine = table.at({position, i, 0});
          double sine = table.at({position, i, 1}) * (inverse ? -1.0 : 1.0);
          out[i] = row[i] * cosine - row[i + half] * sine;
          out[i + half] = row[i] * sine + row[i + half] * cosine;
        }
      }
  return y;
}

Tensor nsa::reference::gate(const Tensor &logits, const Tensor &bias,
                            bool softmax, int64_t branches) {
  int64_t heads = logits.dim(2) / branches;
  Tensor gates({logits.dim(0), logits.dim(1), heads, branches});
  std::vector<double> x(branches);
  for (int64_t r = 0; r < logits.rows(); ++r)
    for (int64_t h = 0; h < heads; ++h) {
      double sum = 0.0;
      for (int64_t c = 0; c < branches; ++c)
        x[c] = logits.data[(r * heads + h) * branches + c] +
               (bias.data.empty() ? 0.0 : bias.data[h * branches + c]);
      double top = *std::max_element(x.begin(), x.end());
      for (double value : x)
        sum += std::exp(value - top);
      for (int64_t c = 0; c < branches; ++c)
        gates.data[(r * heads + h) * branches + c] =
            softmax ? std::exp(x[c] - top) / sum : sigmoid(x[c]);
    }
  return gates;
}

GateGradients nsa::reference::gateBackward(const Tensor &gatesGrad,
                                           const Tensor &gates, bool softmax) {
  int64_t heads = gates.dim(2), branches = gates.dim(3);
  GateGradients grads{Tensor({gates.dim(0), gates.dim(1), heads * branches}),
                      Tensor({heads * branches})};
  for (int64_t r = 0; r < gates.dim(0) * gates.dim(1); ++r)
    for (int64_t h = 0; h < heads; ++h) {
      const double *g = gates.data.data() + (r * heads + h) * branches;
      const double *dg = gatesGrad.data.data() + (r * heads + h) * branches;
      double mean = std::inner_product(g, g + branches, dg, 0.0);
      for (int64_t c = 0; c < branches; ++c) {
        double d = softmax ? g[c] * (dg[c] - mean) : g[c] * (1 - g[c]) * dg[c];
        grads.logits.data[(r * heads + h) * branches + c] = d;
        grads.bias.data[h * branches + c] += d;
      }
    }
  return grads;
}

Tensor nsa::reference::add(const Tensor &a, const Tensor &b) {
  Tensor out = a;
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] += b.data[i];
  return out;
}

Tensor nsa::reference::silu(const Tensor &x) {
  Tensor out = x;
  for (double &value : out.data)
    value *= sigmoid(value);
  return out;
}

/// The derivative of x * sigmoid(x).
static double siluSlope(double x) {
  double s = sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

Tensor nsa::reference::siluBackward(const Tensor &outputGrad, const Tensor &x) {
  Tensor out = outputGrad;
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] *= siluSlope(x.data[i]);
  return out;
}

/// sqrt(2 / pi) and the coefficient of x^3 in the argument of tanh.
static constexpr double kGeluSlope = 0.79788456080286536, kGeluCubic = 0.044715;

Tensor nsa::reference::gelu(const Tensor &x) {
  Tensor out = x;
  for (double &v : out.data)
    v *= 0.5 * (1.0 + std::tanh(kGeluSlope * (v + kGeluCubic * v * v * v)));
  return out;
}

Tensor nsa::reference::geluBackward(const Tensor &outputGrad, const Tensor &x) {
  Tensor out = outputGrad;
  for (size_t i = 0; i < out.data.size(); ++i) {
    double v = x.data[i];
    double t = std::tanh(kGeluSlope * (v + kGeluCubic * v * v * v));
    double slope = kGeluSlope * (1.0 + 3.0 * kGeluCubic * v * v);
    out.data[i] *= 0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope;
  }
  return out;
}

Tensor nsa::reference::squaredRelu(const Tensor &x) {
  Tensor out = x;
  for (double &v : out.data)
    v = v < 0.0 ? 0.0 : v * v;
  return out;
}

Tensor nsa::reference::squaredReluBackward(const Tensor &outputGrad,
                                           const Tensor &x) {
  Tensor out = outputGrad;
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] *= x.data[i] < 0.0 ? 0.0 : 2.0 * x.data[i];
  return out;
}

Tensor nsa::reference::softcap(const Tensor &x, double cap) {
  Tensor out = x;
  for (double &v : out.data)
    v = cap * std::tanh(v / cap);
  return out;
}

Tensor nsa::reference::softcapBackward(const Tensor &outputGrad,
                                       const Tensor &output, double cap) {
  Tensor out = outputGrad;
  for (size_t i = 0; i < out.data.size(); ++i) {
    double t = output.data[i] / cap;
    out.data[i] *= 1.0 - t * t;
  }
  return out;
}

Tensor nsa::reference::swiglu(const Tensor &gate, const Tensor &up) {
  Tensor out = silu(gate);
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] *= up.data[i];
  return out;
}

SwigluGradients nsa::reference::swigluBackward(const Tensor &outputGrad,
                                               const Tensor &gate,
                                               const Tensor &up) {
  SwigluGradients grads{Tensor(gate.shape), Tensor(up.shape)};
  for (size_t i = 0; i < outputGrad.data.size(); ++i) {
    double dy = outputGrad.data[i], x = gate.data[i];
    grads.gate.data[i] = dy * up.data[i] * siluSlope(x);
    grads.up.data[i] = dy * x * sigmoid(x);
  }
  return grads;
}

Tensor nsa::reference::geglu(const Tensor &gate, const Tensor &up) {
  Tensor out = gelu(gate);
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] *= up.data[i];
  return out;
}

SwigluGradients nsa::reference::gegluBackward(const Tensor &outputGrad,
                                              const Tensor &gate,
                                              const Tensor &up) {
  SwigluGradients grads{geluBackward(outputGrad, gate), gelu(gate)};
  for (size_t i = 0; i < outputGrad.data.size(); ++i) {
    grads.gate.data[i] *= up.data[i];
    grads.up.data[i] *= outputGrad.data[i];
  }
  return grads;
}

Tensor nsa::reference::scale(const Tensor &x, double factor) {
  Tensor out = x;
  for (double &v : out.data)
    v *= factor;
  return out;
}

CrossEntropyResult nsa::reference::crossEntropy(const Tensor &logits,
                                                const Tensor &targets) {
  int64_t vocab = logits.shape.back();
  CrossEntropyResult result{Tensor(std::vector<int64_t>{}),
                            Tensor(targets.shape),
                            Tensor(std::vector<int64_t>{})};
  double sum = 0.0, count = 0.0;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const double *row = logits.data.data() + r * vocab;
    double top = *std::max_element(row, row + vocab), total = 0.0;
    for (int64_t c = 0; c < vocab; ++c)
      total += std::exp(row[c] - top);
    result.lse.data[r] = top + std::log(total);
    auto target = static_cast<int64_t>(targets.data[r]);
    if (target < 0)
      continue;
    sum += result.lse.data[r] - row[target];
    count += 1.0;
  }
  result.loss.data[0] = count > 0.0 ? sum / count : 0.0;
  result.count.data[0] = count;
  return result;
}

Tensor nsa::reference::crossEntropyBackward(const Tensor &lossGrad,
                                            const Tensor &logits,
                                            const Tensor &targets,
                                            const Tensor &lse,
                                            const Tensor &count) {
  int64_t vocab = logits.shape.back();
  Tensor grad(logits.shape);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    auto target = static_cast<int64_t>(targets.data[r]);
    if (target < 0)
      continue;
    double factor = lossGrad.data[0] / std::max(count.data[0], 1.0);
    for (int64_t c = 0; c < vocab; ++c)
      grad.data[r * vocab + c] =
          factor * (std::exp(logits.data[r * vocab + c] - lse.data[r]) -
                    (c == target ? 1.0 : 0.0));
  }
  return grad;
}

double
nsa::reference::gradientNorm(const std::vector<const Tensor *> &gradients) {
  double squares = 0.0;
  for (const Tensor *gradient : gradients)
    for (double value : gradient->data)
      squares += value * value;
  return std::sqrt(squares);
}

void nsa::reference::updateLossScale(LossScale &state, Tensor &hyper,
                                     double &norm, double loss,
                                     int64_t growthInterval) {
  bool finite = std::isfinite(norm) && std::isfinite(loss);
  hyper.data[training::gradScaleSlot] /= state.scale;
  hyper.data[training::stepSlot] -= state.skipped;
  norm /= state.scale;
  if (!finite) {
    state.scale /= 2.0;
    state.streak = 0.0;
    state.skipped += 1.0;
  } else if (state.streak += 1.0; state.streak >= double(growthInterval)) {
    state.scale = std::min(2.0 * state.scale, 0x1p24);
    state.streak = 0.0;
  }
}

/// What gradients of this norm are multiplied by: their scale, and what clips
/// them.
static double getGradientScale(const Tensor &hyper, double norm) {
  double maxNorm = hyper.data[nsa::training::maxNormSlot];
  double scale = hyper.data[nsa::training::gradScaleSlot];
  double scaledNorm = norm * scale;
  if (maxNorm > 0.0 && scaledNorm > maxNorm)
    scale *= maxNorm / scaledNorm;
  return scale;
}

void nsa::reference::adamw(Tensor &weight, Tensor &moment1, Tensor &moment2,
                           const Tensor &gradient, double norm, double loss,
                           const Tensor &hyper, bool decay) {
  if (!std::isfinite(norm) || !std::isfinite(loss))
    return;
  const auto &slots = hyper.data;
  double lr = slots[training::learningRateSlot];
  double beta1 = slots[training::beta1Slot], beta2 = slots[training::beta2Slot];
  double eps = slots[training::epsilonSlot];
  double weightDecay = slots[training::weightDecaySlot];
  double scale = getGradientScale(hyper, norm);
  double step = slots[training::stepSlot];
  for (size_t i = 0; i < weight.data.size(); ++i) {
    double g = gradient.data[i] * scale;
    double &w = weight.data[i], &m = moment1.data[i], &v = moment2.data[i];
    if (decay)
      w -= lr * weightDecay * w;
    m = beta1 * m + (1.0 - beta1) * g;
    v = beta2 * v + (1.0 - beta2) * g * g;
    double mHat = m / (1.0 - std::pow(beta1, step));
    double vHat = v / (1.0 - std::pow(beta2, step));
    w -= lr * mHat / (std::sqrt(vHat) + eps);
  }
}

void nsa::reference::lion(Tensor &weight, Tensor &ema, const Tensor &gradient,
                          double norm, double loss, const Tensor &hyper,
                          bool decay) {
  if (!std::isfinite(norm) || !std::isfinite(loss))
    return;
  const auto &slots = hyper.data;
  double lr = slots[training::learningRateSlot];
  double beta1 = slots[training::beta1Slot], beta2 = slots[training::beta2Slot];
  double weightDecay = slots[training::weightDecaySlot];
  double scale = getGradientScale(hyper, norm);
  for (size_t i = 0; i < weight.data.size(); ++i) {
    double g = gradient.data[i] * scale;
    double &w = weight.data[i], &m = ema.data[i];
    double c = beta1 * m + (1.0 - beta1) * g;
    if (decay)
      w -= lr * weightDecay * w;
    w -= lr * double((c > 0.0) - (c < 0.0));
    m = beta2 * m + (1.0 - beta2) * g;
  }
}

Tensor
nsa::reference::normalizeMatrices(const Tensor &x, int64_t batch,
                                  const std::function<double(double)> &round) {
  Tensor out = x;
  size_t size = x.data.size() / size_t(batch);
  for (size_t first = 0; size && first < x.data.size(); first += size) {
    double square = 0;
    for (size_t i = first; i < first + size; ++i)
      square += x.data[i] * x.data[i];
    for (size_t i = first; i < first + size; ++i)
      out.data[i] = round(x.data[i] / (std::sqrt(square) + 1e-7));
  }
  return out;
}

Tensor nsa::reference::batchMatmul(const Tensor &lhs, const Tensor &rhs,
                                   bool transposeLhs, bool transposeRhs,
                                   int64_t batch,
                                   const std::vector<int64_t> &shape) {
  auto take = [&](const Tensor &stack, int64_t i) {
    Tensor matrix({stack.dim(0) / batch, stack.dim(1)});
    auto first = stack.data.begin() + i * int64_t(matrix.data.size());
    std::copy(first, first + int64_t(matrix.data.size()), matrix.data.begin());
    return matrix;
  };
  Tensor out(shape);
  size_t at = 0;
  for (int64_t i = 0; i < batch; ++i) {
    Tensor product = matmul(take(lhs, i), take(rhs, i), transposeLhs,
                            transposeRhs, {shape[0] / batch, shape[1]});
    std::copy(product.data.begin(), product.data.end(), out.data.begin() + at);
    at += product.data.size();
  }
  return out;
}

void nsa::reference::muon(Tensor &weight, Tensor &momentum,
                          const Tensor &gradient, double norm, double loss,
                          const Tensor &hyper, bool decay,
                          const std::function<double(double)> &round) {
  if (!std::isfinite(norm) || !std::isfinite(loss))
    return;
  const auto &slots = hyper.data;
  double lr = slots[training::learningRateSlot];
  double beta1 = slots[training::beta1Slot];
  double weightDecay = slots[training::weightDecaySlot];
  double scale = getGradientScale(hyper, norm);
  Tensor x(weight.shape);
  for (size_t i = 0; i < x.data.size(); ++i) {
    double g = gradient.data[i] * scale;
    momentum.data[i] = beta1 * momentum.data[i] + (1.0 - beta1) * g;
    x.data[i] = beta1 * momentum.data[i] + (1.0 - beta1) * g;
  }
  x = normalizeMatrices(x, /*batch=*/1, round);
  auto sum = [&](double alpha, const Tensor &a, double beta, const Tensor &b) {
    Tensor out = a;
    for (size_t i = 0; i < out.data.size(); ++i)
      out.data[i] = round(alpha * a.data[i] + beta * b.data[i]);
    return out;
  };
  bool isTall = x.dim(0) > x.dim(1);
  int64_t side = std::min(x.dim(0), x.dim(1));
  for (int iteration = 0; iteration < 5; ++iteration) {
    Tensor a = matmul(x, x, isTall, !isTall, {side, side});
    for (double &value : a.data)
      value = round(value);
    Tensor square = matmul(a, a, false, false, {side, side});
    Tensor b = sum(-4.775, a, 2.0315, square);
    x = sum(3.4445, x, 1.0,
            isTall ? matmul(x, b, false, false, x.shape)
                   : matmul(b, x, false, false, x.shape));
  }
  double step = lr * 0.2 * std::sqrt(double(std::max(x.dim(0), x.dim(1))));
  for (size_t i = 0; i < x.data.size(); ++i) {
    double &w = weight.data[i];
    if (decay)
      w -= lr * weightDecay * w;
    w -= step * x.data[i];
  }
}
