//===- RecomputeTraits.td - what backward may compute again -*- tablegen -*-===//

#ifndef NSA_INTERFACES_RECOMPUTETRAITS_TD
#define NSA_INTERFACES_RECOMPUTETRAITS_TD

include "mlir/IR/OpBase.td"

class NSA_RecomputeTrait<string name> : NativeOpTrait<name> {
  let cppNamespace = "::nsa";
}

/// Costs about what reading its operands costs: elementwise operations, norms,
/// rotations, activations, casts.
def NSA_CheapToRecompute : NSA_RecomputeTrait<"CheapToRecompute">;

/// Is never computed again: its results cost more time than memory.
def NSA_KeptForBackward : NSA_RecomputeTrait<"KeptForBackward">;

/// The results have elements of the one operand, in the same order: no memory
/// of their own, nothing to compute. A single result has all of them.
def NSA_ViewOfOperand : NSA_RecomputeTrait<"ViewOfOperand">;

/// The result is memory of persistent tensors: none of its own, nothing to
/// compute.
def NSA_ViewOfArguments : NSA_RecomputeTrait<"ViewOfArguments">;

#endif // NSA_INTERFACES_RECOMPUTETRAITS_TD
