//===- Compression.h - learned compression in fp64 --------------*- C++ -*-===//
//
// The kinds of compression that have parameters. One row for each block of
// tokens x [B,S,H,D], y [B,Nc,H,D].
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_KERNELS_COMPRESSION_H
#define NSA_LIB_REFERENCE_KERNELS_COMPRESSION_H

#include "lib/Reference/Kernels/Attention.h"

namespace nsa::reference {

/// The parameters of phi. A tensor without a shape is not there.
struct Projection {
  /// [H, block*D, D].
  Tensor weight;
  /// [H, D, D], behind SiLU; with it phi is the mlp.
  Tensor outputWeight;
  /// [H, block, D], added to the tokens of a block.
  Tensor positions;
};

/// Each block's rows plus the positions, concatenated, times the weight; for
/// the mlp then SiLU and the second weight. BF16 rounds results and what is an
/// operand of a second product. `order` is that of the terms of the first
/// product, as in `attention`.
Tensor compressProjected(const Tensor &x, const Projection &phi, int64_t block,
                         int64_t stride,
                         Arithmetic arithmetic = Arithmetic::F64,
                         unsigned order = 0);

/// Gradients of `compressProjected`; those of parameters that are not there
/// have no shape.
struct ProjectionGradients {
  Tensor input;
  Projection phi;
};
ProjectionGradients
compressProjectedBackward(const Tensor &outputGrad, const Tensor &x,
                          const Projection &phi, int64_t block, int64_t stride,
                          Arithmetic arithmetic = Arithmetic::F64,
                          unsigned order = 0);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_COMPRESSION_H
