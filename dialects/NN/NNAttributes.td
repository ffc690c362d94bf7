//===- NNAttributes.td - attributes of the nn dialect -----------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NN_NNATTRIBUTES_TD
#define NSA_DIALECTS_NN_NNATTRIBUTES_TD

include "dialects/NN/NNDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class NN_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::nsa::nn";
  let genSpecializedAttr = 0;
}

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

def NN_GateActivation : NN_Enum<"GateActivation",
    "how gate logits become gates", [
      I32EnumAttrCase<"Sigmoid", 0, "sigmoid">,
      I32EnumAttrCase<"Softmax", 1, "softmax">]>;

def NN_GateActivationAttr
    : EnumAttr<NN_Dialect, NN_GateActivation, "activation">;

//===----------------------------------------------------------------------===//
// Roles and initial values of function arguments
//===----------------------------------------------------------------------===//

def NN_ArgumentRole : NN_Enum<"ArgumentRole",
    "what an argument of a program is", [
      I32EnumAttrCase<"Input", 0, "input">,
      I32EnumAttrCase<"Parameter", 1, "parameter">,
      I32EnumAttrCase<"Constant", 2, "constant">,
      I32EnumAttrCase<"Gradient", 3, "gradient">,
      I32EnumAttrCase<"State", 4, "state">]>;

def NN_InitKind : NN_Enum<"InitKind", "distribution of an initial value", [
      I32EnumAttrCase<"Normal", 0, "normal">,
      I32EnumAttrCase<"Constant", 1, "constant">,
      I32EnumAttrCase<"Rotary", 2, "rotary">]>;

def NN_InitAttr : AttrDef<NN_Dialect, "Init"> {
  let mnemonic = "init";
  let summary = "the initial value of a tensor";
  let description = [{
    - `#nn.init<normal, s>`: normal with mean 0 and standard deviation `s >= 0`.
    - `#nn.init<constant, c>`: every element is `c`.
    - `#nn.init<rotary, base>`: a table `[L, D/2, 2]` of (cos, sin) of
      `t * base^(-2i/D)`, `base > 0`.
  }];
  let parameters = (ins EnumParameter<NN_InitKind>:$kind,
                        "::mlir::FloatAttr":$number);
  let builders = [AttrBuilder<(ins "InitKind":$kind, "double":$value), [{
    return $_get($_ctxt, kind,
        ::mlir::FloatAttr::get(::mlir::Float64Type::get($_ctxt), value));
  }]>];
  let extraClassDeclaration = [{
    /// The standard deviation, the constant or the base.
    double getValue() const { return getNumber().getValueAsDouble(); }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // NSA_DIALECTS_NN_NNATTRIBUTES_TD
