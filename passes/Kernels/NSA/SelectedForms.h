//===- SelectedForms.h - lists or masks of the selected branch --*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H
#define NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/DenseAttentionKernels.h"
#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

namespace nsa {

/// The form of each kernel of a selected branch.
struct SelectedForms {
  SelectedForms() = default;
  /// What the schedules of an operation say. Kernels go through lists where
  /// there are none of another form.
  SelectedForms(mlir::Operation *op, const SelectedAttention &selected);

  SelectionForm forward = SelectionForm::Lists, queryGrad = forward,
                keyValueGrad = forward;
};

/// The form of the schedules `list`, or `otherwise` without them; lists where a
/// kernel has none of that form.
SelectionForm getForm(mlir::ArrayAttr list, SelectionForm otherwise,
                      AttentionKernel kernel,
                      const SelectedAttention &selected);

/// Whether the forward kernels of `op` gather queries: those of a sum that has
/// it as a branch are then no single one.
bool gathersQueries(AttentionOp op);

/// Causal attention whose queries see only the blocks that they selected.
DenseAttention makeMasked(const SelectedAttention &selected,
                          const KernelCut &cut);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_SELECTEDFORMS_H
