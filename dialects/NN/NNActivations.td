//===- NNActivations.td - activations of the nn dialect ---------*- tablegen -*-===//
//
// Activations with their gradients, apart from NNOps.td: only what knows them by
// name includes them. All are elementwise, so passes see interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNACTIVATIONS_TD
#define NSA_DIALECTS_NN_NNACTIVATIONS_TD

include "dialects/NN/NNOpBase.td"

def NN_GeluOp : NN_Activation<"gelu", "GeluBackwardOp"> {
  let summary = "Gaussian error linear unit, by its approximation with tanh";
  let description = [{
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2:
    `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, the form that
    GPT-2 was trained with.

    Example:

    ```mlir
    %y = nn.gelu %x : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let resultNames = [{"gelu"}];
}

def NN_GeluBackwardOp : NN_ActivationBackward<"gelu_backward"> {
  let summary = "gradient of `nn.gelu`";
  let description = [{
    With `z = 2 * sqrt(2 / pi) * (x + 0.044715 x^3)` and `s = 1 / (1 + exp(-z))`,
    by which `y = x * s`: `dx = dy * (s + x * s * (1 - s) * dz/dx)`.

    Example:

    ```mlir
    %dx = nn.gelu_backward %dy, %x : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
}

def NN_GeGLUOp : NN_GatedActivation<"geglu", "GeGLUBackwardOp"> {
  let summary = "product with a gate that went through GELU";
  let description = [{
    Shazeer, "GLU Variants Improve Transformer", 2020: `y = gelu(gate) * up`, with
    `nn.gelu`.

    Example:

    ```mlir
    %y = nn.geglu %gate, %up : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
}

def NN_GeGLUBackwardOp : NN_GatedActivationBackward<"geglu_backward"> {
  let summary = "gradients of `nn.geglu`";
  let description = [{
    `dgate = dy * up * dgelu(gate)/dgate` and `dup = dy * gelu(gate)`.

    Example:

    ```mlir
    %dgate, %dup = nn.geglu_backward %dy, %gate, %up
        : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>)
        -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>)
    ```
  }];
}

def NN_ScaleOp : NN_Activation<"scale", "ScaleOp"> {
  let summary = "product with a constant";
  let description = [{
    `y = factor * x`. The adjoint is the same operation.

    Example:

    ```mlir
    %y = nn.scale %x {factor = 25.0 : f64} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensor:$input, NSA_PositiveF64:$factor);
  let backward = [{ScaleOp::create(builder, getLoc(), resultGrads[0], getFactorAttr())}];
  let resultNames = [{"scaled"}];
}

def NN_SquaredReluOp
    : NN_Activation<"squared_relu", "SquaredReluBackwardOp"> {
  let summary = "square of the rectified linear unit";
  let description = [{
    So et al., "Primer: Searching for Efficient Transformers for Language
    Modeling", 2021, section 4: `y = max(x, 0)^2`.

    Example:

    ```mlir
    %y = nn.squared_relu %x : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let resultNames = [{"squared_relu"}];
}

def NN_SquaredReluBackwardOp
    : NN_ActivationBackward<"squared_relu_backward"> {
  let summary = "gradient of `nn.squared_relu`";
  let description = [{
    `dx = dy * 2 * max(x, 0)`.

    Example:

    ```mlir
    %dx = nn.squared_relu_backward %dy, %x : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
}

def NN_SoftcapOp : NN_Activation<"softcap", "SoftcapBackwardOp", []> {
  let summary = "soft clamp to two bounds by tanh";
  let description = [{
    `y = cap * tanh(x / cap)`, which lies between `-cap` and `cap`: Riviere et al.,
    "Gemma 2", 2024, section 2. It is not computed again by backward, which reads
    `y` alone.

    Example:

    ```mlir
    %y = nn.softcap %x {cap = 30.0 : f64} : (tensor<2x64x256xf32>) -> tensor<2x64x256xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensor:$input, NSA_PositiveF64:$cap);
  let backward = [{
    SoftcapBackwardOp::create(builder, getLoc(), resultGrads[0], getOutput(), getCapAttr())
  }];
  let resultNames = [{"capped"}];
}

def NN_SoftcapBackwardOp
    : NN_ActivationBackward<"softcap_backward", "output"> {
  let summary = "gradient of `nn.softcap`";
  let description = [{
    `dx = dy * (1 - (y / cap)^2)`, with `y` the result of `nn.softcap`.

    Example:

    ```mlir
    %dx = nn.softcap_backward %dy, %y {cap = 30.0 : f64}
        : (tensor<2x64x256xf32>, tensor<2x64x256xf32>) -> tensor<2x64x256xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensor:$output_grad, NSA_FloatTensor:$output,
                       NSA_PositiveF64:$cap);
}

#endif // NSA_DIALECTS_NN_NNACTIVATIONS_TD
