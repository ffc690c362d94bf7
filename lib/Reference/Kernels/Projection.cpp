//===- Projection.cpp - learned compression in fp64 -----------------------===//

#include "lib/Reference/Kernels/Compression.h"

#include <cmath>
#include <cstring>

using namespace nsa::reference;

/// The nearest bfloat16 number, ties to even.
static double roundBf16(double x) {
  auto single = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  std::memcpy(&single, &bits, sizeof bits);
  return single;
}

static double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

namespace {

/// phi at one row: block `i` of one head of one batch row.
struct Row {
  Row(const Tensor &x, const Projection &phi, int64_t block, int64_t stride,
      Arithmetic arithmetic)
      : x(x), phi(phi), block(block), stride(stride), width(x.dim(3)),
        narrow(arithmetic == Arithmetic::BF16) {}

  double round(double value) const { return narrow ? roundBf16(value) : value; }

  /// The token at place `r` of the block, with its position.
  double token(int64_t r, int64_t c) const {
    double value = x.at({b, i * stride + r, h, c});
    return phi.positions.shape.empty() ? value
                                       : value + phi.positions.at({h, r, c});
  }

  void moveTo(int64_t batchRow, int64_t row, int64_t head) {
    b = batchRow;
    i = row;
    h = head;
    hidden.assign(width, 0.0);
    for (int64_t r = 0; r < block; ++r)
      for (int64_t c = 0; c < width; ++c) {
        double u = token(r, c);
        const double *weights = phi.weight.row({h, r * width + c});
        for (int64_t e = 0; e < width; ++e)
          hidden[e] += u * weights[e];
      }
  }

  const Tensor &x;
  const Projection &phi;
  int64_t block, stride, width;
  bool narrow;
  int64_t b = 0, i = 0, h = 0;
  /// What the weight makes of the row.
  std::vector<double> hidden;
};

} // namespace

template <typename Body>
static void forEachRow(Row &row, int64_t count, Body body) {
  for (int64_t b = 0; b < row.x.dim(0); ++b)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t h = 0; h < row.x.dim(2); ++h) {
        row.moveTo(b, i, h);
        body();
      }
}

Tensor nsa::reference::compressProjected(const Tensor &x, const Projection &phi,
                                         int64_t block, int64_t stride,
                                         Arithmetic arithmetic) {
  int64_t count = compressedLength(x.dim(1), block, stride);
  Tensor y({x.dim(0), count, x.dim(2), x.dim(3)});
  Row row(x, phi, block, stride, arithmetic);
  forEachRow(row, count, [&] {
    for (int64_t e = 0; e < row.width; ++e) {
      double &out = y.at({row.b, row.i, row.h, e});
      if (phi.outputWeight.shape.empty()) {
        out = row.round(row.hidden[e]);
        continue;
      }
      for (int64_t c = 0; c < row.width; ++c) {
        double z = row.hidden[c];
        out += row.round(z * sigmoid(z)) * phi.outputWeight.at({row.h, c, e});
      }
      out = row.round(out);
    }
  });
  return y;
}

/// The gradient of the hidden row; adds to that of the output weight.
static std::vector<double> hiddenGradient(const Row &row, const double *dy,
                                          Tensor &outputWeightGrad) {
  std::vector<double> grad(dy, dy + row.width);
  if (row.phi.outputWeight.shape.empty())
    return grad;
  for (int64_t c = 0; c < row.width; ++c) {
    double z = row.hidden[c], s = sigmoid(z), active = row.round(z * s);
    double sum = 0.0;
    for (int64_t e = 0; e < row.width; ++e) {
      sum += dy[e] * row.phi.outputWeight.at({row.h, c, e});
      outputWeightGrad.at({row.h, c, e}) += active * dy[e];
    }
    grad[c] = row.round(sum * s * (1.0 + z * (1.0 - s)));
  }
  return grad;
}

ProjectionGradients nsa::reference::compressProjectedBackward(
    const Tensor &outputGrad, const Tensor &x, const Projection &phi,
    int64_t block, int64_t stride, Arithmetic arithmetic) {
  auto like = [](const Tensor &t) {
    return t.shape.empty() ? Tensor() : Tensor(t.shape);
  };
  ProjectionGradients grads{
      Tensor(x.shape),
      {like(phi.weight), like(phi.outputWeight), like(phi.positions)}};
  Row row(x, phi, block, stride, arithmetic);
  forEachRow(row, outputGrad.dim(1), [&] {
    int64_t b = row.b, i = row.i, h = row.h, width = row.width;
    std::vector<double> dz =
        hiddenGradient(row, outputGrad.row({b, i, h}), grads.phi.outputWeight);
    for (int64_t r = 0; r < block; ++r)
      for (int64_t c = 0; c < width; ++c) {
        double sum = 0.0, u = row.token(r, c);
        const double *weights = phi.weight.row({h, r * width + c});
        double *weightGrads = grads.phi.weight.row({h, r * width + c});
        for (int64_t e = 0; e < width; ++e) {
          sum += dz[e] * weights[e];
          weightGrads[e] += dz[e] * u;
        }
        grads.input.at({b, i * stride + r, h, c}) += sum;
        if (!phi.positions.shape.empty())
          grads.phi.positions.at({h, r, c}) += sum;
      }
  });
  for (double &value : grads.input.data)
    value = row.round(value);
  return grads;
}
