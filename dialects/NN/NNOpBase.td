//===- NNOpBase.td - base classes of nn operations --------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NN_NNOPBASE_TD
#define NSA_DIALECTS_NN_NNOPBASE_TD

include "dialects/Interfaces/DifferentiableOpInterface.td"
include "dialects/Interfaces/FusionInterfaces.td"
include "dialects/Interfaces/GraphOp.td"
include "dialects/Interfaces/PrecisionOpInterface.td"
include "dialects/Interfaces/RecomputeTraits.td"
include "dialects/Interfaces/TensorTypes.td"
include "dialects/NN/NNAttributes.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// An element type of tensors, as an attribute.
def NN_ElementTypeAttr : TypeAttrOf<AnyTypeOf<[F32, BF16, F16, I32]>>;
def NN_FloatElementTypeAttr : TypeAttrOf<NSA_FloatElement>;

/// An op without side effects whose results have names.
class NN_NamedOp<string mnemonic, list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat(traits, [
        Pure,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>])>,
      NSA_GraphMethods {
  let extraClassDefinition = graphMethods;
}

/// Such an op whose result types follow from its operands.
class NN_GraphOp<string mnemonic, list<Trait> traits = []>
    : NN_NamedOp<mnemonic, !listconcat(traits, [InferTypeOpAdaptor])> {
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

/// An op that may lie on the path from a parameter to the loss.
class NN_DifferentiableOp<string mnemonic, list<Trait> traits = [],
                          list<string> differentiableMethods = []>
    : NN_GraphOp<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<DifferentiableOpInterface,
                                  differentiableMethods>,
        DeclareOpInterfaceMethods<PrecisionOpInterface,
                                  ["getOperandPrecision"]>])> {
  let operandPrecision = [{OperandPrecision::Compute}];
}

/// One element of the results needs one element of the operands.
def NN_Elementwise : DeclareOpInterfaceMethods<ElementwiseOpInterface>;

/// An elementwise function of one tensor, whose gradient is `backwardOp`.
class NN_Activation<string mnemonic, string backwardOp,
                    list<Trait> traits = [NSA_CheapToRecompute]>
    : NN_DifferentiableOp<mnemonic, !listconcat(traits, [NN_Elementwise])> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let arguments = (ins NSA_FloatTensor:$input);
  let results = (outs NSA_FloatTensor:$output);
  let resultTypes = [{adaptor.getInput().getType()}];
  let backward = backwardOp # [{::create(builder, getLoc(), resultGrads[0], getInput())}];
}

/// The gradient of such a function, from its operand or its result.
class NN_ActivationBackward<string mnemonic, string saved = "input">
    : NN_GraphOp<mnemonic, [AllTypesMatch<["output_grad", saved]>,
                            NN_Elementwise]> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let arguments = (ins NSA_FloatTensor:$output_grad, NSA_FloatTensor:$input);
  let results = (outs NSA_FloatTensor:$input_grad);
  let resultTypes = [{adaptor.getOutputGrad().getType()}];
  let resultNames = [{"dx"}];
}

/// The product of a tensor with an activation of another one.
class NN_GatedActivation<string mnemonic, string backwardOp>
    : NN_DifferentiableOp<mnemonic, [
        AllTypesMatch<["gate", "up"]>, NSA_CheapToRecompute, NN_Elementwise]> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let arguments = (ins NSA_FloatTensor:$gate, NSA_FloatTensor:$up);
  let results = (outs NSA_FloatTensor:$output);
  let resultTypes = [{adaptor.getGate().getType()}];
  let resultNames = "\"" # mnemonic # "\"";
  let backward = backwardOp # [{::create(builder, getLoc(), resultGrads[0], getGate(), getUp())}];
}

class NN_GatedActivationBackward<string mnemonic>
    : NN_GraphOp<mnemonic, [
        AllTypesMatch<["output_grad", "gate", "up"]>, NN_Elementwise]> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let arguments = (ins NSA_FloatTensor:$output_grad, NSA_FloatTensor:$gate,
                       NSA_FloatTensor:$up);
  let results = (outs NSA_FloatTensor:$gate_grad, NSA_FloatTensor:$up_grad);
  let resultTypes = [{adaptor.getGate().getType(), adaptor.getUp().getType()}];
  let resultNames = [{"dgate", "dup"}];
}

/// A kernel that elementwise producers and consumers may be fused into.
def NN_FusionRoot : DeclareOpInterfaceMethods<FusibleOpInterface, [
    "isElementOperand", "isElementResult"]>;

#endif // NSA_DIALECTS_NN_NNOPBASE_TD
