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
  let results = !con((outs NSA_F32Tensor:$new_weight), newStates);
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

#endif // NSA_DIALECTS_NN_NNOPTIMIZERS_TD
