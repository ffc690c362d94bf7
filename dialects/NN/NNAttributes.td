//===- NNAttributes.td - attributes of the nn dialect -----------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NN_NNATTRIBUTES_TD
#define NSA_DIALECTS_NN_NNATTRIBUTES_TD

include "dialects/Interfaces/OpChecks.td"
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

def NN_RotaryScaling : NN_Enum<"RotaryScaling",
    "how angles are scaled for sequences longer than those of training", [
      I32EnumAttrCase<"None", 0, "none">,
      I32EnumAttrCase<"Linear", 1, "linear">,
      I32EnumAttrCase<"NTK", 2, "ntk">,
      I32EnumAttrCase<"YaRN", 3, "yarn">,
      I32EnumAttrCase<"Llama3", 4, "llama3">,
      I32EnumAttrCase<"LongRoPE", 5, "longrope">]>;

def NN_RotaryAttr : AttrDef<NN_Dialect, "Rotary"> {
  let mnemonic = "rotary";
  let summary = "channels and scaling of a rotary table";
  let description = [{
    A part of `#nn.init<rotary, ...>`. With `channels = C`, the first `C / 2`
    pairs of channels are rotated, by the angles of heads of `C` channels, and the
    others are not; `C = 0` rotates all. For sequences that are `factor` times as
    long as those of training, `linear` divides positions by it (Chen et al.,
    2023), `ntk` multiplies the base by `factor^(C / (C - 2))` (bloc97, 2023), and
    `yarn` (Peng et al., 2023, section 3.2 and 3.4, with alpha = 1 and beta = 32)
    divides the angles of the pairs that turn less than once in `length` tokens,
    leaves those that turn more than 32 times, and multiplies what is rotated by
    `1 + 0.1 * ln(factor)`. `llama3` (Grattafiori et al., 2024) divides the angles of
    the pairs that turn less than once in `length` tokens, leaves those that turn more
    than 4 times, and multiplies with nothing. `longrope` (Ding et al., 2024) divides
    the angle of pair `i` by `divisors[i]` and multiplies what is rotated by
    `sqrt(1 + ln(factor) / ln(length))`.
  }];
  let parameters = (ins
      DefaultValuedParameter<"int64_t", "0">:$channels,
      DefaultValuedParameter<"RotaryScaling", "RotaryScaling::None">:$scaling,
      OptionalParameter<"::mlir::FloatAttr">:$factor,
      DefaultValuedParameter<"int64_t", "0">:$length,
      OptionalParameter<"::mlir::DenseF64ArrayAttr">:$divisors);
  let extraClassDeclaration = [{
    double getFactorOrOne() const;
    /// The angle of each of `pairs` pairs from one position to the next.
    ::llvm::SmallVector<double> getFrequencies(double base,
                                               int64_t pairs) const;
    /// What cosines and sines are multiplied with.
    double getAmplitude() const;
  }];
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NN_InitAttr : AttrDef<NN_Dialect, "Init", [NSA_InitialValue]> {
  let mnemonic = "init";
  let summary = "the initial value of a tensor";
  let description = [{
    - `#nn.init<normal, s>`: normal with mean 0 and standard deviation `s >= 0`.
    - `#nn.init<constant, c>`: every element is `c`.
    - `#nn.init<rotary, base>`: a table `[L, D/2, 2]` of (cos, sin) of
      `t * base^(-2i/D)`, `base > 0`; with a `#nn.rotary` after it, those that it
      says.
  }];
  let parameters = (ins EnumParameter<NN_InitKind>:$kind,
                        "::mlir::FloatAttr":$number,
                        OptionalParameter<"RotaryAttr">:$rotary);
  let builders = [AttrBuilder<(ins "InitKind":$kind, "double":$value,
                                   CArg<"RotaryAttr", "{}">:$rotary), [{
    return $_get($_ctxt, kind,
        ::mlir::FloatAttr::get(::mlir::Float64Type::get($_ctxt), value), rotary);
  }]>];
  let extraClassDeclaration = [{
    /// The standard deviation, the constant or the base.
    double getValue() const { return getNumber().getValueAsDouble(); }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // NSA_DIALECTS_NN_NNATTRIBUTES_TD
