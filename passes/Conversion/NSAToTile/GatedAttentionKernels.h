//===- GatedAttentionKernels.h - branches that share rows -------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_GATEDATTENTIONKERNELS_H
#define NSA_PASSES_CONVERSION_NSATOTILE_GATEDATTENTIONKERNELS_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/DenseAttentionKernels.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

namespace nsa {

/// The branches, in the order of their gates.
enum Branch { Compressed = 0, Selected = 1, Window = 2, NumBranches = 3 };

/// One f32 tile [rows, 1] for each branch.
using BranchTiles = std::array<mlir::Value, NumBranches>;

/// The gates of the rows of a program.
class RowGates {
public:
  /// `gates` and `bias` (or null) are arguments of the kernel.
  RowGates(Gating gating, mlir::Value gates, mlir::Value bias)
      : gating(gating), gates(gates), bias(bias) {}

  BranchTiles load(const GroupProgram &program) const;
  /// Gradients of what the gates come from, given those of the gates.
  BranchTiles differentiate(tile::TileBuilder &b, const BranchTiles &grads,
                            const BranchTiles &values) const;
  /// Writes what has the shape of `gates`.
  void store(const GroupProgram &program, const BranchTiles &values,
             mlir::Value ref) const;

private:
  /// Where rows of `query` and branch are in a tensor of the shape of `gates`.
  llvm::SmallVector<tile::Operand>
  place(const GroupProgram &program, mlir::Value query, int64_t branch) const;

  Gating gating;
  mlir::Value gates, bias;
};

/// The gated sum of the outputs of the branches, in fp32.
mlir::Value gatedSum(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> gates,
                     llvm::ArrayRef<mlir::Value> outputs);

/// What the kernels of `nsa.gated_attention` and of its gradient share. Rows
/// are those of the selected branch; on wide machines, where these are few,
/// other branches walk over keys in kernels of their own.
struct GatedAttention {
  template <typename OpT>
  GatedAttention(OpT op, const KernelSchedule &schedule)
      : shape(op.getQuery(), op.getSelectedKey(), op.getSelectedValue(),
              op.getScaleOrDefault()),
        selected(shape, op.getSelectedVisibility(), getDim(op.getIndices(), 3),
                 schedule),
        window(shape, op.getWindowVisibility(), schedule),
        gating(op.getGating()), hasBias(static_cast<bool>(op.getBias())) {}

  /// For kernel names: "sigmoid_b1s64h4x2d16_s16n3_w32".
  std::string name() const {
    return stringifyGating(gating).str() + "_" + selected.name() + "_" +
           window.visibility->getShapeName();
  }

  bool isSplit() const { return selected.isWide; }

  AttentionShape shape;
  SelectedAttention selected;
  DenseAttention window;
  Gating gating;
  bool hasBias;
};

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NSATOTILE_GATEDATTENTIONKERNELS_H
