//===- GatedAttentionKernels.h - branches that share rows -------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_GATEDATTENTIONKERNELS_H
#define NSA_PASSES_KERNELS_NSA_GATEDATTENTIONKERNELS_H

#include "dialects/NSA/FusedAttention.h"
#include "passes/Kernels/NSA/SelectedForms.h"

namespace nsa {

/// One f32 tile [rows, 1] for each branch, in the order of their gates.
using BranchTiles = llvm::SmallVector<mlir::Value>;

/// The gates of the rows of a program.
class RowGates {
public:
  /// What activates logits, nothing if gates are given, and the number of
  /// branches. `gates` and `bias` (or null) are arguments of the kernel.
  RowGates(std::optional<nn::GateActivation> activation, int64_t branches,
           mlir::Value gates, mlir::Value bias)
      : activation(activation), branches(branches), gates(gates), bias(bias) {}

  BranchTiles load(const RowProgram &program) const;
  /// Gradients of what the gates come from, given those of the gates.
  BranchTiles differentiate(tile::TileBuilder &b, const BranchTiles &grads,
                            const BranchTiles &values) const;
  /// Writes what has the shape of `gates`.
  void store(const RowProgram &program, const BranchTiles &values,
             mlir::Value ref) const;

private:
  /// Where rows of `query` and branch are in a tensor of the shape of `gates`.
  llvm::SmallVector<tile::Operand>
  place(const RowProgram &program, mlir::Value query, int64_t branch) const;

  std::optional<nn::GateActivation> activation;
  int64_t branches;
  mlir::Value gates, bias;
};

/// The gated sum of the outputs of the branches, in fp32.
mlir::Value gatedSum(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> gates,
                     llvm::ArrayRef<mlir::Value> outputs);

/// What the kernels of a gated sum and of its gradients share. Rows are those
/// of the branch with indices.
struct GatedAttention {
  /// A branch that goes through ranges of keys, and its number.
  struct Dense {
    int64_t branch;
    DenseAttention attention;
  };

  /// `branches` are attentions or gradients of them, null where a kernel is
  /// given the output. `gate` is null where it is given the gates.
  template <typename OpT>
  GatedAttention(llvm::ArrayRef<OpT> branches, nn::GateOp gate,
                 const KernelSchedule &schedule)
      : branches(branches.size()),
        branch(llvm::find_if(branches,
                             [](OpT op) { return op && hasIndices(op); }) -
               branches.begin()),
        selected(branches[branch], schedule), shape(selected.shape) {
    for (size_t number = 0; number < branches.size(); ++number)
      if (OpT op = branches[number]; op && !hasIndices(op)) {
        dense.push_back({static_cast<int64_t>(number),
                         {getShapeOf(op), op.getVisibility(), schedule}});
        dense.back().attention.isPacked = selected.isPacked;
      }
    if (!gate)
      return;
    activation = gate.getActivation();
    hasBias = static_cast<bool>(gate.getBias());
  }

  void setColumnParts(int64_t parts) {
    shape.columnParts = selected.shape.columnParts = parts;
    for (Dense &own : dense)
      own.attention.shape.columnParts = parts;
  }

  /// For kernel names: "sigmoid_b1s64h4x2d16_s16n3_w32".
  std::string name() const;
  /// Of the branches that are not selected.
  int64_t denseFlops(int64_t width) const;
  RowGates getGates(mlir::Value gates, mlir::Value bias) const {
    return {activation, branches, gates, bias};
  }

  /// How many branches there are, and the number of the selected one.
  int64_t branches, branch;
  SelectedAttention selected;
  AttentionShape shape;
  llvm::SmallVector<Dense> dense;
  std::optional<nn::GateActivation> activation;
  bool hasBias = false;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_GATEDATTENTIONKERNELS_H
