//===- OpChecks.td - what every op of the project verifies --*- tablegen -*-===//

#ifndef NSA_INTERFACES_OPCHECKS_TD
#define NSA_INTERFACES_OPCHECKS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

class NSA_OpCheck<string name> : NativeOpTrait<name> {
  let cppNamespace = "::nsa";
}

/// Has no attributes besides its own and those of a dialect, so that a
/// misspelt name is an error.
def NSA_KnownAttributes : NSA_OpCheck<"KnownAttributes">;

/// Operands and results have no more elements than a machine can hold: sizes in
/// bytes are 64-bit numbers.
def NSA_LimitedSizes : NSA_OpCheck<"LimitedSizes">;

/// An attribute that says with what numbers a tensor starts.
def NSA_InitialValue : NativeAttrTrait<"InitialValue"> {
  let cppNamespace = "::nsa";
}
def NSA_InitialValueAttr
    : Attr<CPred<"$_self.hasTrait<::nsa::InitialValue>()">, "an initial value"> {
  let storageType = "::mlir::Attribute";
  let returnType = "::mlir::Attribute";
  let convertFromStorage = "$_self";
}

/// Operations under one heading of the generated documentation.
class NSA_DocGroup<string title> : OpDocGroup {
  let summary = title;
  let description = "";
}

#endif // NSA_INTERFACES_OPCHECKS_TD
