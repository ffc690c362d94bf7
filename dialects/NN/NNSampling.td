//===- NNSampling.td - tokens that are drawn --------------------*- tablegen -*-===//
//
// Apart from NNOps.td: only what knows them by name includes them.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNSAMPLING_TD
#define NSA_DIALECTS_NN_NNSAMPLING_TD

include "dialects/NN/NNOpBase.td"

def NN_DrawOp : NN_GraphOp<"draw"> {
  let opDocGroup = NSA_DocGroup<"Generation">;
  let summary = "a token of each sequence by its probability";
  let description = [{
    With `x = logits[b, 0, :] + bias`, the temperature `T`, of which
    `inverse[0] + inverse[1]` is `1 / T`, and `u`, which is the sum of the two
    `uniforms[b, (positions[b] + 1) mod R, :]`, `y[b, 0]` is the first `v` with

    ```
    sum_{i <= v} exp((x[i] - x[best[b, 0]]) / T)  >  u sum_i exp((x[i] - x[best[b, 0]]) / T)
    ```

    or -2 where a sum is so close to the right side that sums of doubles could
    decide otherwise. It is `best[b, 0]` where that is negative, or `inverse[0]` is
    0. A bias of -infinity excludes a token.

    Example:

    ```mlir
    %y = nn.draw %logits, %bias, %best, %uniforms, %positions, %inverse
        : (tensor<2x1x256xf32>, tensor<256xf32>, tensor<2x1xi32>, tensor<2x32x2xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<2x1xi32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<3>:$logits,
                       NSA_F32TensorOfRank<1>:$bias,
                       NSA_I32TensorOfRank<2>:$best,
                       NSA_F32TensorOfRank<3>:$uniforms,
                       NSA_I32TensorOfRank<1>:$positions,
                       NSA_F32TensorOfRank<1>:$inverse);
  let results = (outs NSA_I32TensorOfRank<2>:$drawn);
  let resultTypes = [{adaptor.getBest().getType()}];
  let resultNames = [{"drawn"}];
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_NN_NNSAMPLING_TD
