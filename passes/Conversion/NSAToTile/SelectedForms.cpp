//===- SelectedForms.cpp - lists or masks of the selected branch ----------===//
//
// A kernel of the selected branch goes through the blocks that a few
// neighbouring queries selected together, from lists, or as causal attention
// through all blocks, with a mask of those that each query selected. The second
// form multiplies pairs that do not count, one in four where queries select 16
// of 32 blocks at most, and has large tiles of one head that neighbours share.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NSAToTile/SelectedForms.h"

using namespace mlir;
using namespace nsa;

SelectedForms::SelectedForms(const SelectedAttention &selected,
                             const KernelSchedule &schedule) {
  bool isForced = schedule.selectedForm != SelectedForm::Auto;
  forward = queryGrad = keyValueGrad =
      isForced ? schedule.selectedForm : SelectedForm::Lists;
}

DenseAttention nsa::makeMasked(const SelectedAttention &selected,
                               const KernelSchedule &schedule) {
  auto causal = CausalAttr::get(selected.visibility.getContext());
  DenseAttention attention(selected.shape, causal, schedule);
  attention.selectBlock = selected.selectBlock;
  // A tile of keys lies in one block.
  attention.keyTile = attention.forwardKeyTile = attention.ownKeyTile =
      selected.keyTile;
  return attention;
}
