//===- Compression.cpp - compression and combination in fp64 --------------===//

#include "lib/Reference/Kernels/Attention.h"

using namespace nsa::reference;

int64_t nsa::reference::compressedLength(int64_t sequence, int64_t block,
                                         int64_t stride) {
  return sequence >= block ? (sequence - block) / stride + 1 : 0;
}

/// Calls `body(b, i, h)` for every compressed row of x.
template <typename Body>
static void forEachRow(const Tensor &x, int64_t count, Body body) {
  for (int64_t b = 0; b < x.dim(0); ++b)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t h = 0; h < x.dim(2); ++h)
        body(b, i, h);
}

Tensor nsa::reference::compressMean(const Tensor &x, int64_t block,
                                    int64_t stride) {
  int64_t count = compressedLength(x.dim(1), block, stride);
  Tensor y({x.dim(0), count, x.dim(2), x.dim(3)});
  forEachRow(x, count, [&](int64_t b, int64_t i, int64_t h) {
    for (int64_t r = 0; r < block; ++r)
      for (int64_t c = 0; c < x.dim(3); ++c)
        y.at({b, i, h, c}) +=
            x.at({b, i * stride + r, h, c}) / static_cast<double>(block);
  });
  return y;
}

Tensor nsa::reference::compressMeanBackward(const Tensor &outputGrad,
                                            const Tensor &x, int64_t block,
                                            int64_t stride) {
  Tensor dx(x.shape);
  forEachRow(x, outputGrad.dim(1), [&](int64_t b, int64_t i, int64_t h) {
    for (int64_t r = 0; r < block; ++r)
      for (int64_t c = 0; c < x.dim(3); ++c)
        dx.at({b, i * stride + r, h, c}) +=
            outputGrad.at({b, i, h, c}) / static_cast<double>(block);
  });
  return dx;
}

Tensor nsa::reference::combine(const Tensor &gates,
                               const std::vector<const Tensor *> &branches) {
  Tensor out(branches[0]->shape);
  int64_t width = out.dim(3), count = gates.dim(3);
  for (int64_t r = 0; r < out.rows(); ++r)
    for (int64_t branch = 0; branch < count; ++branch)
      for (int64_t c = 0; c < width; ++c)
        out.data[r * width + c] += gates.data[r * count + branch] *
                                   branches[branch]->data[r * width + c];
  return out;
}

CombineGradients
nsa::reference::combineBackward(const Tensor &outputGrad, const Tensor &gates,
                                const std::vector<const Tensor *> &branches) {
  CombineGradients grads{Tensor(gates.shape), {}};
  int64_t width = outputGrad.dim(3), count = gates.dim(3);
  grads.branches.assign(count, Tensor(outputGrad.shape));
  for (int64_t r = 0; r < outputGrad.rows(); ++r)
    for (int64_t branch = 0; branch < count; ++branch)
      for (int64_t c = 0; c < width; ++c) {
        double dout = outputGrad.data[r * width + c];
        grads.gates.data[r * count + branch] +=
            dout * branches[branch]->data[r * width + c];
        grads.branches[branch].data[r * width + c] =
            gates.data[r * count + branch] * dout;
      }
  return grads;
}
