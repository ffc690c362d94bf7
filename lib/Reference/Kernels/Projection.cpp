//===- Projection.cpp - learned compression in fp64 -----------------------===//

#include "lib/Reference/Kernels/Compression.h"
#include "lib/Reference/Kernels/Rounding.h"
#include "lib/Reference/Kernels/SummationOrder.h"

#include <cmath>

using namespace nsa::reference;

template <typename Real>
static Real sigmoid(Real z) {
  return 1 / (1 + std::exp(-z));
}

namespace {

/// phi at one row: block `i` of one head of one batch row. Sums and products in
/// `Real`.
template <typename Real>
struct Row {
  Row(const Tensor &x, const Projection &phi, int64_t block, int64_t stride,
      Arithmetic arithmetic, unsigned order)
      : x(x), phi(phi), block(block), stride(stride), width(x.dim(3)),
        rounding(getRounding(arithmetic)), order(order) {}

  Real round(Real value) const { return static_cast<Real>(rounding(value)); }

  /// The token at place `r` of the block, with its position.
  Real token(int64_t r, int64_t c) const {
    auto value = static_cast<Real>(x.at({b, i * stride + r, h, c}));
    if (phi.positions.shape.empty())
      return value;
    return value + static_cast<Real>(phi.positions.at({h, r, c}));
  }

  void moveTo(int64_t batchRow, int64_t row, int64_t head) {
    b = batchRow;
    i = row;
    h = head;
    hidden.assign(width, 0);
    auto [place, step] = order.next(block * width);
    for (int64_t term = 0; term < block * width; ++term) {
      Real u = token(place / width, place % width);
      const double *weights = phi.weight.row({h, place});
      for (int64_t e = 0; e < width; ++e)
        hidden[e] += u * static_cast<Real>(weights[e]);
      place = (place + step) % (block * width);
    }
  }

  const Tensor &x;
  const Projection &phi;
  int64_t block, stride, width;
  Round rounding;
  SummationOrder order;
  int64_t b = 0, i = 0, h = 0;
  /// What the weight makes of the row.
  std::vector<Real> hidden;
};

} // namespace

template <typename Real, typename Body>
static void forEachRow(Row<Real> &row, int64_t count, Body body) {
  for (int64_t b = 0; b < row.x.dim(0); ++b)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t h = 0; h < row.x.dim(2); ++h) {
        row.moveTo(b, i, h);
        body();
      }
}

/// Adds in `Real` to a number that is stored as a double.
template <typename Real>
static void addTo(double &sum, Real term) {
  sum = static_cast<Real>(sum) + term;
}

template <typename Real>
static Tensor project(const Tensor &x, const Projection &phi, int64_t block,
                      int64_t stride, Arithmetic arithmetic, unsigned order) {
  int64_t count = compressedLength(x.dim(1), block, stride);
  Tensor y({x.dim(0), count, x.dim(2), x.dim(3)});
  Row<Real> row(x, phi, block, stride, arithmetic, order);
  forEachRow(row, count, [&] {
    for (int64_t e = 0; e < row.width; ++e) {
      double &out = y.at({row.b, row.i, row.h, e});
      if (phi.outputWeight.shape.empty()) {
        out = row.round(row.hidden[e]);
        continue;
      }
      Real sum = 0;
      for (int64_t c = 0; c < row.width; ++c) {
        Real z = row.hidden[c];
        sum += row.round(z * sigmoid(z)) *
               static_cast<Real>(phi.outputWeight.at({row.h, c, e}));
      }
      out = row.round(sum);
    }
  });
  return y;
}

Tensor nsa::reference::compressProjected(const Tensor &x, const Projection &phi,
                                         int64_t block, int64_t stride,
                                         Arithmetic arithmetic,
                                         unsigned order) {
  if (arithmetic == Arithmetic::F64)
    return project<double>(x, phi, block, stride, arithmetic, order);
  return project<float>(x, phi, block, stride, arithmetic, order);
}

/// The gradient of the hidden row; adds to that of the output weight.
template <typename Real>
static std::vector<Real> hiddenGradient(const Row<Real> &row, const double *dy,
                                        Tensor &outputWeightGrad) {
  std::vector<Real> grad(row.width);
  for (int64_t c = 0; c < row.width; ++c)
    grad[c] = static_cast<Real>(dy[c]);
  if (row.phi.outputWeight.shape.empty())
    return grad;
  for (int64_t c = 0; c < row.width; ++c) {
    Real z = row.hidden[c], s = sigmoid(z), active = row.round(z * s);
    Real sum = 0;
    for (int64_t e = 0; e < row.width; ++e) {
      auto slope = static_cast<Real>(dy[e]);
      sum += slope * static_cast<Real>(row.phi.outputWeight.at({row.h, c, e}));
      addTo(outputWeightGrad.at({row.h, c, e}), active * slope);
    }
    grad[c] = row.round(sum * s * (1 + z * (1 - s)));
  }
  return grad;
}

template <typename Real>
static ProjectionGradients
projectBackward(const Tensor &outputGrad, const Tensor &x,
                const Projection &phi, int64_t block, int64_t stride,
                Arithmetic arithmetic, unsigned order) {
  auto like = [](const Tensor &t) {
    return t.shape.empty() ? Tensor() : Tensor(t.shape);
  };
  ProjectionGradients grads{
      Tensor(x.shape),
      {like(phi.weight), like(phi.outputWeight), like(phi.positions)}};
  Row<Real> row(x, phi, block, stride, arithmetic, order);
  forEachRow(row, outputGrad.dim(1), [&] {
    int64_t b = row.b, i = row.i, h = row.h, width = row.width;
    std::vector<Real> dz =
        hiddenGradient(row, outputGrad.row({b, i, h}), grads.phi.outputWeight);
    for (int64_t r = 0; r < block; ++r)
      for (int64_t c = 0; c < width; ++c) {
        Real sum = 0, u = row.token(r, c);
        const double *weights = phi.weight.row({h, r * width + c});
        double *weightGrads = grads.phi.weight.row({h, r * width + c});
        for (int64_t e = 0; e < width; ++e) {
          sum += dz[e] * static_cast<Real>(weights[e]);
          addTo(weightGrads[e], dz[e] * u);
        }
        addTo(grads.input.at({b, i * stride + r, h, c}), sum);
        if (!phi.positions.shape.empty())
          addTo(grads.phi.positions.at({h, r, c}), sum);
      }
  });
  for (double &value : grads.input.data)
    value = row.round(static_cast<Real>(value));
  return grads;
}

ProjectionGradients nsa::reference::compressProjectedBackward(
    const Tensor &outputGrad, const Tensor &x, const Projection &phi,
    int64_t block, int64_t stride, Arithmetic arithmetic, unsigned order) {
  if (arithmetic == Arithmetic::F64)
    return projectBackward<double>(outputGrad, x, phi, block, stride,
                                   arithmetic, order);
  return projectBackward<float>(outputGrad, x, phi, block, stride, arithmetic,
                                order);
}
