//===- SelectedForms.cpp - lists or masks of the selected branch ----------===//
//
// A kernel of the selected branch goes through the blocks that a few
// neighbouring queries selected together, from lists, or as causal attention
// through all blocks, with a mask of those that each query selected. The second
// form multiplies pairs that do not count, one in four where queries select 16
// of 32 blocks at most, and has large tiles of one head that neighbours share.
// Between them are unions of lists: a warpgroup multiplies the blocks of as
// many queries as fill its rows, twice as many as each selected, but at the
// rate of warpgroups, where lists have single warps that skip.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/SelectedForms.h"
#include "passes/Kernels/NSA/GatheredAttention.h"

using namespace mlir;
using namespace nsa;

SelectionForm nsa::getForm(ArrayAttr list, SelectionForm otherwise,
                           AttentionKernel kernel,
                           const SelectedAttention &selected) {
  SelectionForm form = list ? cast<ScheduleAttr>(list[0]).getForm() : otherwise;
  bool isOfQueries = kernel != AttentionKernel::SelectedKeyValueGrad;
  if (form == SelectionForm::Gathered)
    return isOfQueries && GatheredAttention::fits(selected)
               ? form
               : SelectionForm::Lists;
  if (form == SelectionForm::Unions)
    return isOfQueries && selected.fitsUnions() ? form : SelectionForm::Lists;
  return form;
}

static SelectionForm readForm(Operation *op, AttentionKernel kernel,
                              const SelectedAttention &selected) {
  ArrayAttr list = selected.isParallel ? getSchedules(op, kernel) : ArrayAttr();
  return getForm(list, SelectionForm::Lists, kernel, selected);
}

SelectedForms::SelectedForms(Operation *op, const SelectedAttention &selected)
    : forward(readForm(op, AttentionKernel::SelectedForward, selected)),
      queryGrad(readForm(op, AttentionKernel::SelectedQueryGrad, selected)),
      keyValueGrad(
          readForm(op, AttentionKernel::SelectedKeyValueGrad, selected)) {}

DenseAttention nsa::makeMasked(const SelectedAttention &selected,
                               const KernelCut &cut) {
  auto causal = CausalAttr::get(selected.visibility.getContext());
  DenseAttention attention(selected.shape, causal, cut, selected.selectBlock);
  attention.isPacked = selected.isPacked;
  attention.shape.columnParts = selected.shape.columnParts;
  // Heads so wide leave two programs too few registers: one has a producer.
  if (selected.shape.keyWidth + selected.shape.valueWidth > 128)
    attention.minBlocks = 0;
  // A tile of keys lies in one block.
  attention.keyTile = attention.forwardKeyTile = attention.ownKeyTile =
      selected.keyTile;
  return attention;
}
