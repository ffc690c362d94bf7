//===- SelectedForms.h - lists or masks of the selected branch --*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H
#define NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H

#include "passes/Kernels/NSA/DenseAttentionKernels.h"
#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

namespace nsa {

/// The form of each kernel of a selected branch: Lists or Masks.
struct SelectedForms {
  /// What the schedule says; where it leaves the choice, what is faster.
  SelectedForms(const SelectedAttention &selected, const KernelCut &cut);

  SelectedForm forward, queryGrad, keyValueGrad;
};

/// Causal attention whose queries see only the blocks that they selected.
DenseAttention makeMasked(const SelectedAttention &selected,
                          const KernelCut &cut);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H
