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
    With `x = logits[b, 0, :] + bias`, the probability of `v`, without a common
    factor, is `w[v] = exp((x[v] - x[best[b, 0]]) inverse[b])`, rounded down to 36
    binary digits: `inverse` is 1 over a temperature. Tokens rank by `x`, equal ones
    by their number. Left are the first `top_k[b]` ones, or all if that is 0; and
    of these as many of the first ones as have a part `top_p[b, :]` of their sum.
    `y[b, 0]` is the first `v` of those that are left with

    ```
    sum_{i <= v} w[i]  >  u sum_i w[i],  u = uniforms[b, (positions[b] + 1) mod R, :]
    ```

    Fractions are three digits of 12 bits, the first one highest; a part of
    4096, 0, 0 leaves all. `y[b, 0]` is `best[b, 0]` where that is negative, or
    `inverse[b]` is 0. A bias of -infinity excludes a token.

    Sums are those of integers, and every rounding is defined: all targets, and
    the sampler of the runtime, draw the same token.

    Example:

    ```mlir
    %y = nn.draw %logits, %bias, %best, %uniforms, %positions, %inverse, %top_k, %top_p
        : (tensor<2x1x256xf32>, tensor<256xf32>, tensor<2x1xi32>, tensor<2x32x3xi32>, tensor<2xi32>, tensor<2xf32>, tensor<2xi32>, tensor<2x3xi32>) -> tensor<2x1xi32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<3>:$logits,
                       NSA_F32TensorOfRank<1>:$bias,
                       NSA_I32TensorOfRank<2>:$best,
                       NSA_I32TensorOfRank<3>:$uniforms,
                       NSA_I32TensorOfRank<1>:$positions,
                       NSA_F32TensorOfRank<1>:$inverse,
                       NSA_I32TensorOfRank<1>:$top_k,
                       NSA_I32TensorOfRank<2>:$top_p);
  let results = (outs NSA_I32TensorOfRank<2>:$drawn);
  let resultTypes = [{adaptor.getBest().getType()}];
  let resultNames = [{"drawn"}];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of a fraction.
    static constexpr int64_t kDigits = training::fractionDigits,
                             kDigitBits = training::fractionDigitBits;
    /// Tokens whose probabilities have a sum of which the first digit is an i32.
    static constexpr int64_t kMostTokens = (int64_t(1) << (31 - kDigitBits)) - 1;
  }];
}

#endif // NSA_DIALECTS_NN_NNSAMPLING_TD
