//===- SelectedForms.cpp - lists or masks of the selected branch ----------===//
//
// A kernel of the selected branch goes through the blocks that a few
// neighbouring queries selected together, from lists, or as causal attention
// through all blocks, with a mask of those that each query selected. The second
// form multiplies pairs that do not count, one in four where queries select 16
// of 32 blocks at most, and has large tiles of one head that neighbours share.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/SelectedForms.h"
#include "passes/Kernels/NSA/GatheredAttention.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

namespace {
/// Up to how many times as many pairs as count a kernel with masks is faster
/// than the one with lists.
struct Limits {
  double forward, queryGrad, keyValueGrad;
};
} // namespace

/// Measured on an H100 with bf16, blocks of 64 tokens of which 16 are selected
/// and groups of 6 and of 16 heads, from 2,048 tokens on; milliseconds with
/// lists / with masks, all kernels that only one form needs included. These
/// selections agree little more than chance. In training they agree more: at
/// 8,192 tokens, lists then take 0.43 and 0.62 ms forward and for dq:
///
///   width  tokens  pairs  forward        dq             dk and dv
///   64     2,048   1.36   0.270 / 0.172  0.448 / 0.277  0.314 / 0.201
///          4,096   2.35   0.449 / 0.287  0.633 / 0.408  0.389 / 0.376
///          8,192   4.38   0.565 / 0.518  0.768 / 0.666  0.457 / 0.730
///   128    2,048   1.36   0.366 / 0.389  0.803 / 0.596  0.870 / 0.656
///          4,096   2.35   0.567 / 0.623  0.998 / 0.887  0.912 / 1.27
///          8,192   4.38   1.36 / 2.13    2.24 / 2.84    1.41 / 3.33
static Limits getLimits(const AttentionShape &shape) {
  int64_t width = shape.keyWidth + shape.valueWidth;
  if (width <= 128)
    return {3.0, 2.7, 2.4};
  if (width <= 256)
    return {1.2, 2.4, 1.5};
  return {};
}

SelectedForms::SelectedForms(const SelectedAttention &selected,
                             const KernelCut &cut) {
  forward = queryGrad = keyValueGrad = cut.selectedForm == SelectedForm::Masks
                                           ? SelectedForm::Masks
                                           : SelectedForm::Lists;
  bool gathers = cut.selectedForm == SelectedForm::Gathered ||
                 (cut.selectedForm == SelectedForm::Auto &&
                  GatheredAttention::isFaster(selected));
  // The gradient of keys gathers queries where it has lists.
  if (gathers && GatheredAttention::fits(selected))
    forward = queryGrad = SelectedForm::Gathered;
  const AttentionShape &shape = selected.shape;
  constexpr int64_t shortest = 2048;
  bool isMeasured = cut.getWarpgroupRows() != 0 && shape.elementBits == 16 &&
                    shape.batch.isConstant() && shape.sequence.isConstant() &&
                    int64_t(shape.sequence) >= shortest &&
                    selected.keyTile == 64;
  if (cut.selectedForm != SelectedForm::Auto || !isMeasured)
    return;
  auto causal = CausalAttr::get(selected.visibility.getContext());
  auto count = [&](VisibilityAttrInterface visibility) {
    return static_cast<double>(visibility.countPairs(
        int64_t(shape.sequence), int64_t(shape.keys), selected.count));
  };
  double pairs = count(causal) / count(selected.visibility);
  auto choose = [&](SelectedForm &form, double limit) {
    if (pairs <= limit)
      form = SelectedForm::Masks;
  };
  Limits limits = getLimits(shape);
  choose(forward, limits.forward);
  choose(queryGrad, limits.queryGrad);
  choose(keyValueGrad, limits.keyValueGrad);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

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
