//===- AttentionBranches.h - branches that share rows -----------*- C++ -*-===//
//
// A kernel of attention has some rows, which are queries of a head or of a
// group, and goes through the keys of one branch or of several: those of
// nsa.attention, or the branches of a gated sum in nsa.fused.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NSA_ATTENTIONBRANCHES_H
#define NSA_PASSES_KERNELS_NSA_ATTENTIONBRANCHES_H

#include "dialects/NSA/FusedAttention.h"
#include "passes/Kernels/NSA/RowGates.h"
#include "passes/Kernels/NSA/SelectedForms.h"

namespace nsa {

/// What a kernel of attention, or of the gradient of queries, reads.
struct AttentionOperands {
  /// `indices` are numbers of blocks, or masks of them. A branch that another
  /// kernel computes has an output alone.
  struct Branch {
    mlir::Value key, value, output = {}, lse = {}, indices = {};
  };

  llvm::SmallVector<mlir::Value *> slots() {
    llvm::SmallVector<mlir::Value *> all = {&outputGrad, &query};
    for (Branch &own : branches)
      all.append({&own.key, &own.value, &own.output, &own.lse, &own.indices});
    all.append({&gates, &bias, &start, &at, &selection.counts,
                &selection.blocks, &table, &statistics, &queryGrad});
    return all;
  }

  mlir::Value outputGrad, query;
  llvm::SmallVector<Branch> branches;
  /// Gates, or their logits and the bias of these.
  mlir::Value gates, bias;
  /// Where packed sequences begin, and where rows of queries do.
  mlir::Value start, at;
  SelectionUnion selection;
  /// The angles by which the gradient of the queries is turned back.
  mlir::Value table;
  /// What a kernel adds to: the gradient of the queries so far, in fp32, and
  /// the RowStatistics of its rows.
  mlir::Value statistics, queryGrad;
};

/// The branches of an operation, as one of its kernels is cut. Rows are those
/// of the branch with indices, if there is one.
struct AttentionBranches {
  /// `sum` is a FusedSum or FusedGradients. With `hasMasks` programs have the
  /// rows of one head and masks of the blocks that these selected, else lists.
  template <typename SumT>
  AttentionBranches(const SumT &sum, const KernelCut &cut,
                    bool hasMasks = false, int64_t columnParts = 1)
      : shape(getShapeOf(getFirst(sum))), ranges(sum.branches.size()),
        isGated(bool(sum.combine)), isParallel(cut.isParallel()) {
    shape.fitTo(cut, columnParts);
    for (auto [branch, range] : llvm::zip_equal(sum.branches, ranges)) {
      auto own = branch;
      if (own && hasIndices(own)) {
        number = &range - ranges.begin();
        selected.emplace(own, cut);
        selected->shape.columnParts = columnParts;
        if (hasMasks)
          range = makeMasked(*selected, cut);
      } else if (own) {
        range.emplace(getShapeOf(own), own.getVisibility(), cut);
        range->isPacked = own.getStart() != nullptr;
        range->shape.columnParts = columnParts;
      }
    }
    if (nn::GateOp gate = sum.gate) {
      activation = gate.getActivation();
      hasBias = gate.getBias() != nullptr;
    }
  }

  /// One branch that goes through a range of keys.
  explicit AttentionBranches(const DenseAttention &range)
      : shape(range.shape), ranges({range}), isGated(false),
        isParallel(range.isParallel) {}

  /// The branch with indices, if there is one, else the only one.
  template <typename SumT>
  static auto getFirst(const SumT &sum) {
    auto *found = llvm::find_if(sum.branches,
                                [](auto op) { return op && hasIndices(op); });
    return found == sum.branches.end() ? sum.branches.front() : *found;
  }

  int64_t size() const { return static_cast<int64_t>(ranges.size()); }
  bool hasLists() const { return selected && !ranges[number]; }
  bool hasMasks() const { return selected && ranges[number]; }
  bool isPacked() const {
    return selected ? selected->isPacked : ranges.front()->isPacked;
  }
  /// The attention whose rows of one head a program has; null with lists.
  const DenseAttention *getRange() const {
    const auto &own = ranges[selected ? number : 0];
    return own ? &*own : nullptr;
  }
  /// The branches that go through ranges of keys without masks.
  llvm::SmallVector<int64_t> getDense() const;
  /// For kernel names: "sigmoid_b1s64h4x2d16_s16n3_w32".
  std::string name() const;
  /// Floating-point operations of `width` multiply-adds per visible pair: of
  /// the branches without indices, and of a branch.
  int64_t denseFlops(int64_t width) const;
  int64_t flops(int64_t branch, int64_t width) const;

  /// The operands of branches, their rows and gates; the branch with indices
  /// has `indices`.
  template <typename SumT>
  AttentionOperands getOperands(mlir::Operation *op, const SumT &sum,
                                mlir::Value indices) const {
    AttentionOperands in;
    auto first = getFirst(sum);
    in.query = getOutside(op, first.getQuery());
    in.start = getOutside(op, first.getStart());
    in.at = getOutside(op, first.getAt());
    for (auto branch : sum.branches) {
      AttentionOperands::Branch &own = in.branches.emplace_back();
      if (!branch)
        continue;
      own.key = getOutside(op, branch.getKey());
      own.value = getOutside(op, branch.getValue());
      if (hasIndices(branch))
        own.indices = indices;
    }
    if (nn::GateOp gate = sum.gate) {
      in.gates = getOutside(op, gate.getLogits());
      in.bias = getOutside(op, gate.getBias());
    } else if (auto combine = sum.combine) {
      in.gates = getOutside(op, combine.getGates());
    }
    return in;
  }
  /// Whether gates are factors of exponentials: activations are not negative,
  /// and with 16 bits the exponents have bits to spare.
  bool foldsGates() const {
    return activation.has_value() && shape.elementBits == 16;
  }
  RowGates getGates(const AttentionOperands &in) const {
    return {activation, size(), in.gates, in.bias};
  }
  /// Runs `body` on the tiles of keys of a branch; see SelectedAttention.cpp.
  llvm::SmallVector<mlir::Value>
  forEachKeyTile(const RowProgram &program, int64_t branch,
                 const AttentionOperands &in, llvm::ArrayRef<mlir::Value> inits,
                 KeyTileBody body) const;

  AttentionShape shape;
  /// The branch with indices, if there is one, and its number.
  std::optional<SelectedAttention> selected;
  int64_t number = -1;
  /// The branches that go through ranges of keys, by number.
  llvm::SmallVector<std::optional<DenseAttention>, 1> ranges;
  /// Whether they are those of a gated sum.
  bool isGated, isParallel;
  std::optional<nn::GateActivation> activation;
  bool hasBias = false;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_ATTENTIONBRANCHES_H
