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

/// The one result has the elements of the one operand, in the same order: no
/// memory of its own, nothing to compute.
def NSA_ViewOfOperand : NSA_RecomputeTrait<"ViewOfOperand">;

#endif // NSA_INTERFACES_RECOMPUTETRAITS_TD
