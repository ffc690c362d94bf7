//===- FusedAttention.h - what an nsa.fused holds ---------------*- C++ -*-===//
//
// The operations that one kernel of attention may compute: what the verifier of
// `nsa.fused` holds against its region, and kernels are made from.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_FUSEDATTENTION_H
#define NSA_DIALECTS_NSA_FUSEDATTENTION_H

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"

namespace nsa {

/// A gated sum of branches.
struct FusedSum {
  /// Emits an error if that is not what `op` holds.
  static llvm::FailureOr<FusedSum> get(FusedOp op);
  /// One branch without a sum.
  static FusedSum of(AttentionOp op) { return {{}, {}, {op}}; }

  /// Null if there is no sum.
  CombineOp combine;
  /// Null where the gates are given.
  nn::GateOp gate;
  /// The attention of each branch; null where its output is given.
  llvm::SmallVector<AttentionOp> branches;
};

/// The gradients of all branches of a gated sum and of their gates.
struct FusedGradients {
  /// Emits an error if that is not what `op` holds.
  static llvm::FailureOr<FusedGradients> get(FusedOp op);
  /// Those of one branch without a sum.
  static FusedGradients of(AttentionBackwardOp op);

  /// The gradient of rows that is stored: turned back, if that is held too.
  static mlir::Value getStored(mlir::Value grad);

  /// Null if there is no sum.
  CombineBackwardOp combine;
  /// Null where the gates, or their own gradients, are given.
  nn::GateOp gate;
  nn::GateBackwardOp gateBackward;
  llvm::SmallVector<AttentionBackwardOp> branches;
  /// The sum of the gradients of the queries; null if it is unused.
  mlir::Value queryGrad;
  /// The angles by which gradients are turned back, or null.
  mlir::Value table;
  /// Where packed sequences begin; null if a row of the batch is one.
  mlir::Value start;
  /// Whether they turn queries and tokens, not only keys that are blocks.
  bool turnsTokens = false;
};

/// What a value inside of `op` is outside, if that is an `nsa.fused`; the value
/// itself of other operations, and of null.
mlir::Value getOutside(mlir::Operation *op, mlir::Value inside);

/// Whether attention, or its gradient, is to the blocks of indices.
template <typename OpT>
bool hasIndices(OpT op) {
  return static_cast<bool>(op.getIndices());
}

/// Why a kernel cannot compute these attentions, or gradients of them, for the
/// same rows; nothing if it can.
template <typename OpT>
llvm::StringRef findDifference(OpT first, OpT second) {
  auto numKeyHeads = [](OpT op) {
    return mlir::cast<mlir::ShapedType>(op.getKey().getType()).getDimSize(2);
  };
  if (first.getQuery() != second.getQuery())
    return "the branches have different queries";
  if (first.getScaleOrDefault() != second.getScaleOrDefault())
    return "the branches have different scales";
  if (first.getSoftcapOrZero() != second.getSoftcapOrZero())
    return "the branches have different soft caps";
  if (first.getStart() != second.getStart())
    return "the branches have different starts of sequences";
  if (first.getAt() != second.getAt())
    return "the branches have queries at different places in sequences";
  if (numKeyHeads(first) != numKeyHeads(second))
    return "the branches have different numbers of key heads";
  return "";
}

} // namespace nsa

#endif // NSA_DIALECTS_NSA_FUSEDATTENTION_H
