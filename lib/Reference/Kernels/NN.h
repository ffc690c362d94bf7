//===- NN.h - the rest of a decoder in fp64 ---------------------*- C++ -*-===//
//
// The meaning of the nn operations. Activations keep their leading dimensions
// and work on the last one.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_KERNELS_NN_H
#define NSA_LIB_REFERENCE_KERNELS_NN_H

#include "lib/Reference/Kernels/Tensor.h"

#include <functional>

namespace nsa::reference {

/// Rows of `table` [V,D] at `ids`, which have any shape; zeros for an id
/// outside of it.
Tensor embedding(const Tensor &table, const Tensor &ids);
Tensor embeddingBackward(const Tensor &outputGrad, const Tensor &ids,
                         int64_t vocab);

/// op(lhs) op(rhs) of the operands flattened to matrices; `shape` is the
/// result's.
Tensor matmul(const Tensor &lhs, const Tensor &rhs, bool transposeLhs,
              bool transposeRhs, std::vector<int64_t> shape);

/// x + bias in each row, and the sum of all rows.
Tensor addBias(const Tensor &x, const Tensor &bias);
Tensor sumRows(const Tensor &x);

struct RmsNormResult {
  Tensor output, rstd;
};
/// x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps).
RmsNormResult rmsNorm(const Tensor &x, const Tensor &weight, double eps);
struct RmsNormGradients {
  Tensor input, weight;
};
RmsNormGradients rmsNormBackward(const Tensor &outputGrad, const Tensor &x,
                                 const Tensor &weight, const Tensor &rstd);

/// table[t,i] = (cos, sin)(t * base^(-2i/D)) for a table [L,D/2,2].
Tensor rotaryTable(int64_t length, int64_t width, double base);
/// Rotates the pairs (i, i + D/2) of row t of x [B,S,H,D] by the angle of
/// position t*stride, backwards if `inverse`. With the starts [B,S] of packed
/// sequences, positions are counted from that of token (t + 1) * stride - 1.
Tensor rotary(const Tensor &x, const Tensor &table, int64_t stride,
              bool inverse, const Tensor *start = nullptr);

/// logits [B,S,H*branches] plus bias (may be empty) to gates [B,S,H,branches].
Tensor gate(const Tensor &logits, const Tensor &bias, bool softmax,
            int64_t branches = 3);
struct GateGradients {
  Tensor logits, bias;
};
GateGradients gateBackward(const Tensor &gatesGrad, const Tensor &gates,
                           bool softmax);

Tensor add(const Tensor &a, const Tensor &b);
Tensor silu(const Tensor &x);
Tensor siluBackward(const Tensor &outputGrad, const Tensor &x);
/// The approximation with tanh.
Tensor gelu(const Tensor &x);
Tensor geluBackward(const Tensor &outputGrad, const Tensor &x);
/// max(x, 0)^2.
Tensor squaredRelu(const Tensor &x);
Tensor squaredReluBackward(const Tensor &outputGrad, const Tensor &x);
/// cap * tanh(x / cap); its gradient is a function of its result.
Tensor softcap(const Tensor &x, double cap);
Tensor softcapBackward(const Tensor &outputGrad, const Tensor &output,
                       double cap);
/// silu(gate) * up.
Tensor swiglu(const Tensor &gate, const Tensor &up);
struct SwigluGradients {
  Tensor gate, up;
};
SwigluGradients swigluBackward(const Tensor &outputGrad, const Tensor &gate,
                               const Tensor &up);
/// gelu(gate) * up.
Tensor geglu(const Tensor &gate, const Tensor &up);
SwigluGradients gegluBackward(const Tensor &outputGrad, const Tensor &gate,
                              const Tensor &up);
Tensor scale(const Tensor &x, double factor);

struct CrossEntropyResult {
  /// Mean over the targets that are not negative; 0 if there are none.
  Tensor loss;
  Tensor lse;
  /// Number of targets that are not negative.
  Tensor count;
};
CrossEntropyResult crossEntropy(const Tensor &logits, const Tensor &targets);
Tensor crossEntropyBackward(const Tensor &lossGrad, const Tensor &logits,
                            const Tensor &targets, const Tensor &lse,
                            const Tensor &count);

/// sqrt of the sum of squares of all elements of all tensors.
double gradientNorm(const std::vector<const Tensor *> &gradients);

/// The scale of the loss, the finite steps since it changed, and the steps that
/// updated nothing.
struct LossScale {
  double scale, streak, skipped;
};

/// Divides `norm` and the gradient scale of `hyper` by the scale, takes the
/// skipped steps from its step, and lets the scale follow: twice, at most 2^24,
/// after `growthInterval` steps with finite norm and loss, half after one
/// without.
void updateLossScale(LossScale &state, Tensor &hyper, double &norm, double loss,
                     int64_t growthInterval);

/// One AdamW update in place. `hyper` is [lr, beta1, beta2, eps, weight_decay,
/// max_norm, grad_scale, step]. Nothing changes if norm or loss is not finite.
void adamw(Tensor &weight, Tensor &moment1, Tensor &moment2,
           const Tensor &gradient, double norm, double loss,
           const Tensor &hyper, bool decay);

/// One update of Lion in place, with the same `hyper`.
void lion(Tensor &weight, Tensor &ema, const Tensor &gradient, double norm,
          double loss, const Tensor &hyper, bool decay);

/// Each of `batch` matrices, one below the other, divided by its norm.
Tensor normalizeMatrices(const Tensor &x, int64_t batch,
                         const std::function<double(double)> &round);

/// Products of the matrices of a batch, one below the other.
Tensor batchMatmul(const Tensor &lhs, const Tensor &rhs, bool transposeLhs,
                   bool transposeRhs, int64_t batch,
                   const std::vector<int64_t> &shape);

/// One update of Muon in place, with the same `hyper`. `round` takes what the
/// products read and write to the type that they are made in.
void muon(Tensor &weight, Tensor &momentum, const Tensor &gradient, double norm,
          double loss, const Tensor &hyper, bool decay,
          const std::function<double(double)> &round);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_NN_H
