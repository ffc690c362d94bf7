//===- Attention.h - Native Sparse Attention in fp64 ------------*- C++ -*-===//
//
// The meaning of the nsa operations, arXiv 2502.11089 Eqs. 5-12, written as
// plainly as possible: every attention is a softmax over an explicit list of
// visible keys. Layouts: q [B,S,Hq,dk], k [B,N,Hkv,dk], v [B,N,Hkv,dv],
// o [B,S,Hq,dv], lse [B,Hq,S], indices [B,Hkv,S,n], gates [B,S,Hq,branches].
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_KERNELS_ATTENTION_H
#define NSA_LIB_REFERENCE_KERNELS_ATTENTION_H

#include "lib/Reference/Kernels/Arithmetic.h"
#include "lib/Reference/Kernels/Tensor.h"

#include <functional>

namespace nsa::reference {

/// Fills `keys` with the keys that query `t` of batch `b` and key head `h`
/// attends to.
using VisibleKeys = std::function<void(int64_t b, int64_t h, int64_t t,
                                       std::vector<int64_t> &keys)>;

struct AttentionResult {
  Tensor output;
  Tensor lse;
};

/// softmax(scale * q k^T) v over the visible keys. A row that sees nothing has
/// output 0 and lse -inf. `order` says in which order the terms of products of
/// rows are added: 0 is the plain one; any other number draws one for each
/// product, which gives other roundings of the same formula. Odd ones round P
/// before it is divided by its sum, and the gradient of the scores before it is
/// scaled. In 16 bits two of four take exponents of 2.
AttentionResult attention(const Tensor &q, const Tensor &k, const Tensor &v,
                          double scale, const VisibleKeys &visible,
                          Arithmetic arithmetic = Arithmetic::F64,
                          unsigned order = 0);

struct AttentionGradients {
  Tensor q, k, v;
};

/// Gradients of `attention` with the probabilities exp(s - lse), where its
/// output is multiplied by `gate` ([B, S, H]; empty: 1) and `outputGrad` is the
/// gradient of the product. A row that sees nothing contributes nothing.
/// do . o is always one sum, whatever `order`; in bf16 the product of gate and
/// probability is rounded, not each.
AttentionGradients attentionBackward(const Tensor &outputGrad, const Tensor &q,
                                     const Tensor &k, const Tensor &v,
                                     const Tensor &output, const Tensor &lse,
                                     double scale, const VisibleKeys &visible,
                                     Arithmetic arithmetic = Arithmetic::F64,
                                     unsigned order = 0,
                                     const Tensor &gate = {});

/// Which blocks a query selects.
struct SelectionRule {
  int64_t block, stride, selectBlock, count, initial, local;
  double scale;
};

/// Block scores [B,Hkv,S,ceil(S/selectBlock)]: the overlap-weighted sums of
/// the group's compressed probabilities (Eq. 9 and 10). Blocks that are not
/// candidates have score -1.
Tensor blockScores(const Tensor &q, const Tensor &k, const Tensor &lse,
                   const SelectionRule &rule);

/// The forced and the best blocks, ascending, padded with -1 (Eq. 11).
Tensor selectBlocks(const Tensor &scores, const SelectionRule &rule);

/// The forced blocks of a query in the order in which they enter.
std::vector<int64_t> forcedBlocks(int64_t lastBlock, const SelectionRule &rule);

/// Compressed rows: floor((sequence - block) / stride) + 1, or none.
int64_t compressedLength(int64_t sequence, int64_t block, int64_t stride);

/// Mean of each block of x [B,S,H,D].
Tensor compressMean(const Tensor &x, int64_t block, int64_t stride);
Tensor compressMeanBackward(const Tensor &outputGrad, const Tensor &x,
                            int64_t block, int64_t stride);

/// Sum over the branches, at least one, of gate times output (Eq. 5).
Tensor combine(const Tensor &gates,
               const std::vector<const Tensor *> &branches);
struct CombineGradients {
  Tensor gates;
  std::vector<Tensor> branches;
};
CombineGradients combineBackward(const Tensor &outputGrad, const Tensor &gates,
                                 const std::vector<const Tensor *> &branches);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_ATTENTION_H
