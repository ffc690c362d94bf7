//===- RowGates.h - gates of the rows of a program --------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_ROWGATES_H
#define NSA_PASSES_KERNELS_NSA_ROWGATES_H

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NSA/RowProgram.h"

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
  /// The sums of `grads` over the queries of a program, f32 [heads, branches].
  static mlir::Value sumOverQueries(const RowProgram &program,
                                    const BranchTiles &grads);

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

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_ROWGATES_H
