//===- Passes.h - from tensors to a planned host program --------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TENSORTORT_PASSES_H
#define NSA_PASSES_CONVERSION_TENSORTORT_PASSES_H

#include "mlir/Pass/Pass.h"

namespace nsa {

/// MiB of gradients that are averaged over ranks as one, unless an option says
/// otherwise: large enough for the bandwidth of a network, small enough to
/// start during backward.
inline constexpr int64_t kDefaultBucketMiB = 25;

#define GEN_PASS_DECL
#include "passes/Conversion/TensorToRT/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Conversion/TensorToRT/Passes.h.inc"
} // namespace nsa

#endif // NSA_PASSES_CONVERSION_TENSORTORT_PASSES_H
