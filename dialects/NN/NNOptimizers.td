//===- NNOptimizers.td - optimizers of the nn dialect -----------*- tablegen -*-===//
//
// Optimizers and what their updates are made of, apart from NNOps.td: only what
// knows them by name includes them. docs/add-an-optimizer.md says how to add one.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNOPTIMIZERS_TD
#define NSA_DIALECTS_NN_NNOPTIMIZERS_TD

include "dialects/Interfaces/OptimizerOpInterface.td"
include "dialects/NN/NNOpBase.td"

def NN_ElementwiseUpdate
    : DeclareOpInterfaceMethods<ElementwiseUpdateOpInterface>;

/// One step of an optimizer that keeps `states` for a weight.
class NN_OptimizerOp<string mnemonic, dag states, dag newStates,
                     list<Trait> traits = [], list<string> methods = []>
    : NN_GraphOp<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<OptimizerOpInterface, methods>])> {
  let arguments = !con(
      (ins NSA_F32Tensor:$weight), states,
      (ins NSA_F32Tensor:$gradient, NSA_F32Scalar:$norm, NSA_F32Scalar:$loss,
           NSA_F32TensorOfRank<1>:$hyper, UnitAttr:$decay));
  let opDocGroup = NSA_DocGroup<"Optimizers">;
  let results = !con((outs NSA_F32Tensor:$new_weight), newStates);
  let resultTypes = !interleave(
      !listsplat("adaptor.getWeight().getType()", !size(results)), ", ");
  let hasVerifier = 1;
}

def NN_AdamWOp : NN_OptimizerOp<"adamw",
    (ins NSA_F32Tensor:$moment1, NSA_F32Tensor:$moment2),
    (outs NSA_F32Tensor:$new_moment1, NSA_F32Tensor:$new_moment2),
    [NN_ElementwiseUpdate]> {
  let summary = "one step of AdamW on one tensor";
  let description = [{
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019,
    algorithm 2. The states are the moments `m` and `v`.

    `hyper` holds `lr, beta1, beta2, eps, weight_decay, max_norm, grad_scale,
    step`, with `step` counted from 1 and no clipping if `max_norm <= 0`. With
    `n = norm * grad_scale`:

    ```
    c  = (max_norm > 0 and n > max_norm) ? max_norm / n : 1
    g  = gradient * grad_scale * c
    w  = weight - lr * weight_decay * weight     with `decay`, else weight
    m' = beta1 * m + (1 - beta1) * g
    v' = beta2 * v + (1 - beta2) * g^2
    w' = w - lr * (m' / (1 - beta1^step)) / (sqrt(v' / (1 - beta2^step)) + eps)
    ```

    If `norm` or `loss` is not finite, weight and moments stay as they are.

    Example:

    ```mlir
    %w1, %m1, %v1 = nn.adamw %w, %m, %v, %g, %norm, %loss, %hyper {decay}
        : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>,
           tensor<f32>, tensor<f32>, tensor<8xf32>)
        -> (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>)
    ```
  }];
  let resultNames = [{"weight", "moment1", "moment2"}];
}

def NN_LionOp : NN_OptimizerOp<"lion", (ins NSA_F32Tensor:$ema),
    (outs NSA_F32Tensor:$new_ema), [NN_ElementwiseUpdate]> {
  let summary = "one step of Lion on one tensor";
  let description = [{
    Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
    algorithm 2. The state is `ema`, an average of gradients. With `hyper`, `g`
    and what happens if `norm` or `loss` is not finite as for `nn.adamw`, and
    `sign(0) = 0`:

    ```
    w    = weight - lr * weight_decay * weight   with `decay`, else weight
    w'   = w - lr * sign(beta1 * ema + (1 - beta1) * g)
    ema' = beta2 * ema + (1 - beta2) * g
    ```

    Example:

    ```mlir
    %w1, %e1 = nn.lion %w, %e, %g, %norm, %loss, %hyper {decay}
        : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
        -> (tensor<32x48xf32>, tensor<32x48xf32>)
    ```
  }];
  let resultNames = [{"weight", "ema"}];
}

//===----------------------------------------------------------------------===//
// Muon
//===----------------------------------------------------------------------===//

def NN_MuonOp : NN_OptimizerOp<"muon", (ins NSA_F32Tensor:$momentum),
    (outs NSA_F32Tensor:$new_momentum), [],
    ["canUpdate", "getCompanion", "buildUpdate"]> {
  let summary = "one step of Muon on one matrix";
  let description = [{
    Jordan et al., "Muon: An optimizer for hidden layers in neural networks",
    2024, with the scale of Liu et al., "Muon is Scalable for LLM Training",
    2025, equation 4, by which learning rate and weight decay are those of
    AdamW. The state is `momentum`. With `hyper`, `g` and what happens if `norm`
    or `loss` is not finite as for `nn.adamw`:

    ```
    momentum' = beta1 * momentum + (1 - beta1) * g
    u  = beta1 * momentum' + (1 - beta1) * g
    x  = u / (|u| + 1e-7)                        the Frobenius norm
    five times: a = x . x^T, b = -4.775 * a + 2.0315 * a . a, x = 3.4445 * x + b . x
    w  = weight - lr * weight_decay * weight     with `decay`, else weight
    w' = w - lr * 0.2 * sqrt(max(rows, columns)) * x
    ```

    Where there are more rows than columns, `a = x^T . x` and `x . b` take the
    place of `x . x^T` and `b . x`. With an `element_type`, `x`, `a` and `b` are
    rounded to it. `nsa-expand-updates` makes these operations of it.

    It is for matrices between hidden states; embeddings, norms, gates and the
    head are for AdamW.

    Example:

    ```mlir
    %w1, %m1 = nn.muon %w, %m, %g, %norm, %loss, %hyper {decay}
        : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
        -> (tensor<32x48xf32>, tensor<32x48xf32>)
    ```
  }];
  let arguments = (ins
      NSA_F32Tensor:$weight, NSA_F32Tensor:$momentum, NSA_F32Tensor:$gradient,
      NSA_F32Scalar:$norm, NSA_F32Scalar:$loss, NSA_F32TensorOfRank<1>:$hyper,
      UnitAttr:$decay, OptionalAttr<NN_FloatElementTypeAttr>:$element_type);
  let resultNames = [{"weight", "momentum"}];
}

def NN_MomentumOp : NN_GraphOp<"momentum", [NN_ElementwiseUpdate]> {
  let opDocGroup = NSA_DocGroup<"Optimizers">;
  let summary = "momentum and the Nesterov direction of a step";
  let description = [{
    With `hyper`, `g` and what happens if `norm` or `loss` is not finite as for
    `nn.adamw`:

    ```
    momentum' = beta1 * momentum + (1 - beta1) * g
    direction = beta1 * momentum' + (1 - beta1) * g
    ```

    Example:

    ```mlir
    %m1, %u = nn.momentum %m, %g, %norm, %loss, %hyper
        : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
        -> (tensor<32x48xf32>, tensor<32x48xf32>)
    ```
  }];
  let arguments = (ins NSA_F32Tensor:$momentum, NSA_F32Tensor:$gradient,
                       NSA_F32Scalar:$norm, NSA_F32Scalar:$loss,
                       NSA_F32TensorOfRank<1>:$hyper);
  let results = (outs NSA_F32Tensor:$new_momentum, NSA_F32Tensor:$direction);
  let resultTypes = [{adaptor.getMomentum().getType(), adaptor.getMomentum().getType()}];
  let resultNames = [{"momentum", "direction"}];
  let hasVerifier = 1;
}

/// Matrices of one shape, one below the other.
class NN_StackedOp<string mnemonic> : NN_GraphOp<mnemonic> {
  let opDocGroup = NSA_DocGroup<"Optimizers">;
  let hasVerifier = 1;
}

def NN_NormalizeOp : NN_StackedOp<"normalize"> {
  let summary = "matrices divided by their norms";
  let description = [{
    The rows of `x` are those of `batch` matrices, one below the other. Each is
    divided by its Frobenius norm in fp32, and rounded to `result_type` if given:
    `y = x / (|x| + 1e-7)`.

    Example:

    ```mlir
    %y = nn.normalize %x {batch = 2 : i64, result_type = bf16} : (tensor<64x48xf32>) -> tensor<64x48xbf16>
    ```
  }];
  let arguments = (ins NSA_F32TensorOfRank<2>:$input, NSA_PositiveI64:$batch,
                       OptionalAttr<NN_FloatElementTypeAttr>:$result_type);
  let results = (outs NSA_FloatTensorOfRank<2>:$output);
  let resultTypes = [{
    RankedTensorType::get(getShape(adaptor.getInput()), adaptor.getResultType().value_or(getElementType(adaptor.getInput())))
  }];
  let resultNames = [{"unit"}];
}

def NN_BatchMatmulOp : NN_StackedOp<"batch_matmul"> {
  let summary = "matmuls of equal sizes";
  let description = [{
    The rows of each operand and of the result are those of `batch` matrices, one
    below the other. For each of them, with `op` the transposition asked for,

    ```
    y = alpha * op(lhs) . op(rhs) + beta * addend
    ```

    accumulated in fp32 and rounded once; without an `addend` that term is missing.

    Example:

    ```mlir
    %a = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 2 : i64, beta = 0.0 : f64, transpose_rhs}
        : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x4xf32>
    %b = nn.batch_matmul %a, %a, %a {alpha = 2.0 : f64, batch = 2 : i64, beta = -4.0 : f64}
        : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<2>:$lhs,
                       NSA_FloatTensorOfRank<2>:$rhs,
                       Optional<NSA_FloatTensorOfRank<2>>:$addend,
                       UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       NSA_ScaleAttr:$alpha, NSA_ScaleAttr:$beta,
                       NSA_PositiveI64:$batch);
  let results = (outs NSA_FloatTensorOfRank<2>:$output);
  let resultNames = [{"product"}];
}

def NN_TakeStepOp : NN_GraphOp<"take_step", [NN_ElementwiseUpdate]> {
  let opDocGroup = NSA_DocGroup<"Optimizers">;
  let summary = "a weight updated by a direction";
  let description = [{
    With `hyper` as for `nn.adamw`:

    ```
    w  = weight - lr * weight_decay * weight     with `decay`, else weight
    w' = w - lr * scale * direction
    ```

    in fp32, whatever the type of `direction`. If `norm` or `loss` is not finite, the weight stays as it is.

    Example:

    ```mlir
    %w1 = nn.take_step %w, %x, %norm, %loss, %hyper {scale = 0.5 : f64, decay}
        : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> tensor<32x48xf32>
    ```
  }];
  let arguments = (ins NSA_F32Tensor:$weight, NSA_FloatTensor:$direction,
                       NSA_F32Scalar:$norm, NSA_F32Scalar:$loss,
                       NSA_F32TensorOfRank<1>:$hyper, NSA_ScaleAttr:$scale,
                       UnitAttr:$decay);
  let results = (outs NSA_F32Tensor:$new_weight);
  let resultTypes = [{adaptor.getWeight().getType()}];
  let resultNames = [{"weight"}];
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_NN_NNOPTIMIZERS_TD
