//===- NNElementwiseOps.td - gates and elementwise operations ---*- tablegen -*-===//
//
// Included by NNOps.td, whose base classes it uses.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNELEMENTWISEOPS_TD
#define NSA_DIALECTS_NN_NNELEMENTWISEOPS_TD

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

def NN_GateOp : NN_DifferentiableOp<"gate", [NSA_CheapToRecompute]> {
  let opDocGroup = NSA_DocGroup<"Gates">;
  let summary = "gates of the branches of attention";
  let description = [{
    With `z[b, t, h, c] = logits[b, t, h*n + c] + bias[h*n + c]` of `n` `branches`,
    in fp32, by `activation`:

    ```
    sigmoid:  y[b, t, h, c] = 1 / (1 + exp(-z[b, t, h, c]))
    softmax:  y[b, t, h, c] = exp(z[b, t, h, c]) / sum_e exp(z[b, t, h, e])
    ```

    Example:

    ```mlir
    %gates = nn.gate sigmoid %logits, %bias
        : (tensor<1x64x12xf32>, tensor<12xf32>) -> tensor<1x64x4x3xf32>
    ```
  }];
  let arguments = (ins NN_GateActivationAttr:$activation,
                       NSA_FloatTensorOfRank<3>:$logits,
                       Optional<NSA_F32TensorOfRank<1>>:$bias,
                       DefaultValuedAttr<NSA_PositiveI64, "3">:$branches);
  let results = (outs NSA_F32TensorOfRank<4>:$gates);
  let operandPrecision = [{
    index == 0 ? OperandPrecision::Any : OperandPrecision::Full
  }];
  let resultTypes = [{
    RankedTensorType::get({getDim(adaptor.getLogits(), 0), getDim(adaptor.getLogits(), 1),
                           getDim(adaptor.getLogits(), 2) / std::max<int64_t>(adaptor.getBranches(), 1), int64_t(adaptor.getBranches())},
                          Float32Type::get(context))
  }];
  let resultNames = [{"gates"}];
  let assemblyFormat = [{
    $activation $logits (`,` $bias^)? attr-dict
      `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_GateBackwardOp : NN_GraphOp<"gate_backward", [
    AllTypesMatch<["gates_grad", "gates"]>,
    DeclareOpInterfaceMethods<RowSumOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Gates">;
  let summary = "gradients of `nn.gate`";
  let description = [{
    With `y` the gates and `dy` their gradient, by `activation`:

    ```
    sigmoid:  dz[c] = dy[c] * y[c] * (1 - y[c])
    softmax:  dz[c] = y[c] * (dy[c] - sum_e dy[e] * y[e])
    dlogits[b, t, h*n + c] = dz[b, t, h, c]
    dbias[h*n + c]         = sum_{b, t} dz[b, t, h, c]
    ```

    `dlogits` has element type `logits_type`. With `partial_sums = P` the `B*S`
    tokens are cut into `P` ranges, the last ones maybe shorter or empty, and
    `dbias[p, h*n + c]` is the sum over range `p`.

    Example:

    ```mlir
    %dlogits, %dbias = nn.gate_backward sigmoid %dgates, %gates {logits_type = f32}
        : (tensor<1x64x4x3xf32>, tensor<1x64x4x3xf32>) -> (tensor<1x64x12xf32>, tensor<12xf32>)
    ```
  }];
  let arguments = (ins NN_GateActivationAttr:$activation,
                       NSA_F32TensorOfRank<4>:$gates_grad,
                       NSA_F32TensorOfRank<4>:$gates,
                       NN_FloatElementTypeAttr:$logits_type,
                       OptionalAttr<NSA_PositiveI64>:$partial_sums);
  let results = (outs NSA_FloatTensorOfRank<3>:$logits_grad,
                      NSA_F32Tensor:$bias_grad);
  let resultTypes = [{
    withLast(getShape(adaptor.getGates()).take_front(2), saturatingElements(getShape(adaptor.getGates()).drop_front(2)),
             adaptor.getLogitsType()),
    getRowSumType(context, saturatingElements(getShape(adaptor.getGates()).drop_front(2)), adaptor.getPartialSumsAttr())
  }];
  let resultNames = [{"dlogits", "dbias"}];
  let assemblyFormat = [{
    $activation $gates_grad `,` $gates attr-dict
      `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

def NN_SiluOp : NN_Activation<"silu", "SiluBackwardOp"> {
  let summary = "sigmoid-weighted linear unit";
  let description = [{
    `y = x / (1 + exp(-x))`.

    Example:

    ```mlir
    %y = nn.silu %x : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let resultNames = [{"silu"}];
}

def NN_SiluBackwardOp : NN_ActivationBackward<"silu_backward"> {
  let summary = "gradient of `nn.silu`";
  let description = [{
    With `s = 1 / (1 + exp(-x))`: `dx = dy * s * (1 + x * (1 - s))`.

    Example:

    ```mlir
    %dx = nn.silu_backward %dy, %x : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
}

def NN_SwiGLUOp : NN_GatedActivation<"swiglu", "SwiGLUBackwardOp"> {
  let summary = "product with a gate that went through SiLU";
  let description = [{
    `y = silu(gate) * up`.

    Example:

    ```mlir
    %y = nn.swiglu %gate, %up : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
}

def NN_SwiGLUBackwardOp : NN_GatedActivationBackward<"swiglu_backward"> {
  let summary = "gradients of `nn.swiglu`";
  let description = [{
    With `s = 1 / (1 + exp(-gate))`:

    ```
    dgate = dy * up * s * (1 + gate * (1 - s))
    dup   = dy * gate * s
    ```

    Example:

    ```mlir
    %dgate, %dup = nn.swiglu_backward %dy, %gate, %up
        : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>)
        -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>)
    ```
  }];
}

def NN_AddOp : NN_DifferentiableOp<"add", [
    AllTypesMatch<["lhs", "rhs"]>, Commutative, NSA_CheapToRecompute,
    NN_Elementwise]> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let summary = "elementwise sum";
  let description = [{
    `y = lhs + rhs`, in fp32, rounded once.

    Example:

    ```mlir
    %y = nn.add %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensor:$lhs, NSA_FloatTensor:$rhs);
  let results = (outs NSA_FloatTensor:$output);
  let resultTypes = [{adaptor.getLhs().getType()}];
  let resultNames = [{"sum"}];
  let hasFolder = 1;
}

def NN_CastOp : NN_DifferentiableOp<"cast", [NSA_CheapToRecompute,
                                             NN_Elementwise],
                                    ["takesWiderGradients"]> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let summary = "conversion to another floating-point type";
  let description = [{
    `y = x` rounded to the nearest value of `element_type`, ties to even. The adjoint is the cast back.

    Example:

    ```mlir
    %y = nn.cast %x to bf16 : (tensor<32x48xf32>) -> tensor<32x48xbf16>
    ```
  }];
  let arguments = (ins NSA_FloatTensor:$input,
                       NN_FloatElementTypeAttr:$element_type);
  let results = (outs NSA_FloatTensor:$output);
  let operandPrecision = [{OperandPrecision::Any}];
  let resultTypes = [{
    withElement(adaptor.getInput(), adaptor.getElementType())
  }];
  let resultNames = [{"cast"}];
  let assemblyFormat = [{
    $input `to` $element_type attr-dict
      `:` functional-type(operands, results)
  }];
  let hasFolder = 1;
}

def NN_FillOp : NN_GraphOp<"fill"> {
  let opDocGroup = NSA_DocGroup<"Elementwise">;
  let summary = "a tensor of one value";
  let description = [{
    Every element is `value`, converted to the element type of `result_type`.

    Example:

    ```mlir
    %zero = nn.fill 0.0 : tensor<32x48xf32>
    ```
  }];
  let arguments = (ins F64Attr:$value,
                       TypeAttrOf<NSA_StaticTensor<[NSA_FloatElement, I32]>>:$result_type);
  let results = (outs NSA_StaticTensor<[NSA_FloatElement, I32]>:$output);
  let resultNames = [{"fill"}];
  let assemblyFormat = "$value attr-dict `:` $result_type";
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_NN_NNELEMENTWISEOPS_TD
