//===- NSAFusedOps.td - forms that passes make of nsa ops -------*- tablegen -*-===//
//
// Built by `nsa-fuse-attention` after differentiation: none has a gradient of
// its own, and each gives what the operations that it stands for give.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_NSAFUSEDOPS_TD
#define NSA_DIALECTS_NSA_NSAFUSEDOPS_TD

include "dialects/NSA/NSAOps.td"

//===----------------------------------------------------------------------===//
// Selected and window attention with the gated sum
//===----------------------------------------------------------------------===//

def NSA_GatedAttentionOp : NSA_GraphOp<"gated_attention", [
    AllElementTypesMatch<["query", "compressed", "selected_key",
                          "selected_value", "window_key", "window_value"]>]> {
  let summary = "selected and window attention and the gated sum of all branches";
  let description = [{
    `nsa.attention` of the same queries to the blocks of indices and to tokens,
    and their `nsa.combine` with the output of another branch:

    ```
    slc, lse_slc = attention(q, k_slc, v_slc, indices)
    win, lse_win = attention(q, k_win, v_win)
    o[b, t, h, :] = y[0] * compressed[b, t, h, :] + y[1] * slc[b, t, h, :] + y[2] * win[b, t, h, :]
    ```

    The outputs of the branches are rounded to the element type before they are
    summed. The gates `y` of a token and head follow from `gating`, in fp32:

    ```
    given:    y[c] = gates[b, t, h, c]
    sigmoid:  y[c] = 1 / (1 + exp(-z[c]))
    softmax:  y[c] = exp(z[c]) / sum_e exp(z[e])
    with      z[c] = gates[b, t, h*3 + c] + bias[h*3 + c]
    ```

    so that `gates` is `f32 [B, S, Hq, 3]` if given, else the logits
    `[B, S, 3*Hq]`; only logits may have a bias. With `keep` there are four more
    results, the outputs and lse of the two branches, for the gradient.

    Example:

    ```mlir
    %o, %slc, %lse_slc, %win, %lse_win = nsa.gated_attention sigmoid %q, %cmp, %ks, %vs, %i, %kw, %vw, %logits, %bias
          visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
        : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x3xi32>,
           tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
        -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
    ```
  }];
  let arguments = (ins NSA_GatingAttr:$gating, NSA_Activation:$query,
                       NSA_Activation:$compressed,
                       NSA_Activation:$selected_key,
                       NSA_Activation:$selected_value, NSA_Indices:$indices,
                       NSA_Activation:$window_key,
                       NSA_Activation:$window_value, NSA_FloatTensor:$gates,
                       Optional<NSA_F32TensorOfRank<1>>:$bias, UnitAttr:$keep,
                       NSA_VisibilityAttrInterface:$selected_visibility,
                       NSA_VisibilityAttrInterface:$window_visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale);
  let results = (outs NSA_Activation:$output,
                      Variadic<NSA_FloatTensor>:$kept);
  let resultNames = [{"o", "slc", "lse_slc", "win", "lse_win"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $gating $query `,` $compressed `,` $selected_key `,` $selected_value `,`
    $indices `,` $window_key `,` $window_value `,` $gates (`,` $bias^)?
    `visible` `(` $selected_visibility `,` $window_visibility `)` attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_GatedAttentionBackwardOp : NSA_GraphOp<"gated_attention_backward", [
    AllElementTypesMatch<["output_grad", "query", "compressed_key",
                          "compressed_value", "compressed", "selected_key",
                          "selected_value", "selected", "window_key",
                          "window_value", "window_output"]>,
    AttrSizedOperandSegments]> {
  let summary = "gradients of the three branches, of their sum and of the gates";
  let description = [{
    The gradients of `nsa.attention` to blocks of tokens and of
    `nsa.gated_attention` together. With the gates `y` of `nsa.gated_attention`, for branch `c` with
    output `o_c` and probabilities `p_c`, per token `t` and head:

    ```
    dy[c]    = do . o_c
    ds_c[i]  = p_c[i] * y[c] * (do . v_c[i] - dy[c])
    dq       = scale * sum_c sum_i ds_c[i] * k_c[i]
    dk_c[i]  = scale * sum_{t, heads of the group} ds_c[i] * q
    dv_c[i]  = sum_{t, heads of the group} p_c[i] * y[c] * do
    given:    dgates[c] = dy[c]
    sigmoid:  dgates[c] = dy[c] * y[c] * (1 - y[c])
    softmax:  dgates[c] = y[c] * (dy[c] - sum_e dy[e] * y[e])
    dbias[h*3 + c] = sum_{b, t} dgates[c]
    ```

    `dgates` has the type of `gates`, and `dbias` exists where there is a bias.
    The gradient of the queries is summed over the branches in fp32. With a
    `rotary` table, `dk_cmp` is the gradient of the compressed keys before they
    were rotated, as `nn.rotary` with `stride` does: row `i` is rotated back.
    With `rotate_tokens` as well, `dq`, `dk_slc` and `dk_win` are those before
    row `t` was rotated by the angles of position `t`.

    Example:

    ```mlir
    %dq, %dk_cmp, %dv_cmp, %dk_slc, %dv_slc, %dk_win, %dv_win, %dgates, %dbias = nsa.gated_attention_backward sigmoid
          %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %logits, %bias
          visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
        : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>,
           tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>,
           tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x2x64x3xi32>,
           tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>,
           tensor<1x64x12xf32>, tensor<12xf32>)
        -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
            tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
    ```
  }];
  let arguments =
      (ins NSA_GatingAttr:$gating, NSA_Activation:$output_grad,
           NSA_Activation:$query, NSA_Activation:$compressed_key,
           NSA_Activation:$compressed_value, NSA_Activation:$compressed,
           NSA_Lse:$compressed_lse, NSA_Activation:$selected_key,
           NSA_Activation:$selected_value, NSA_Activation:$selected,
           NSA_Lse:$selected_lse, NSA_Indices:$indices,
           NSA_Activation:$window_key, NSA_Activation:$window_value,
           NSA_Activation:$window_output, NSA_Lse:$window_lse,
           NSA_FloatTensor:$gates, Optional<NSA_F32TensorOfRank<1>>:$bias,
           Optional<NSA_F32TensorOfRank<3>>:$table,
           NSA_VisibilityAttrInterface:$compressed_visibility,
           NSA_VisibilityAttrInterface:$selected_visibility,
           NSA_VisibilityAttrInterface:$window_visibility,
           UnitAttr:$rotate_tokens, OptionalAttr<NSA_ScaleAttr>:$scale);
  let results = (outs NSA_Activation:$query_grad,
                      NSA_Activation:$compressed_key_grad,
                      NSA_Activation:$compressed_value_grad,
                      NSA_Activation:$selected_key_grad,
                      NSA_Activation:$selected_value_grad,
                      NSA_Activation:$window_key_grad,
                      NSA_Activation:$window_value_grad,
                      NSA_FloatTensor:$gates_grad,
                      Optional<NSA_F32TensorOfRank<1>>:$bias_grad);
  let resultNames = [{"dq", "dk_cmp", "dv_cmp", "dk_slc", "dv_slc", "dk_win",
                      "dv_win", "dgates", "dbias"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $gating $output_grad `,` $query `,` $compressed_key `,` $compressed_value
    `,` $compressed `,` $compressed_lse `,` $selected_key `,` $selected_value
    `,` $selected `,` $selected_lse `,` $indices `,` $window_key `,`
    $window_value `,` $window_output `,` $window_lse `,` $gates (`,` $bias^)?
    (`rotary` $table^)?
    `visible` `(` $compressed_visibility `,` $selected_visibility `,`
    $window_visibility `)` attr-dict `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// Attention that rotates what it loads
//===----------------------------------------------------------------------===//

def NSA_RotaryAttentionOp : NSA_GraphOp<"rotary_attention", [
    AllElementTypesMatch<["query", "key", "value"]>]> {
  let summary = "`nsa.attention` of queries that are not rotated yet";
  let description = [{
    ```
    q_rotated   = rotary(q, table)
    k_rotated_i = rotary(keys_i, table)
    o, lse      = attention(q_rotated, k, v)
    ```

    as `nn.rotary` of stride 1 and `nsa.attention` do. `keys` are
    those of other branches [B, S, H, dk], with no more heads than the queries
    have. Each query is read by one program only, so it is rotated once, and the
    program leaves it rotated for the other branches, with as many rows of the
    keys. On a GPU the launch of `nsa.compress_key_value` that gives `k` and `v`
    has programs that rotate, if there is one: each reads the table for several
    heads.

    Example:

    ```mlir
    %o, %lse, %qr, %ksr, %kwr = nsa.rotary_attention %q, %k, %v, %ks, %kw rotary %table visible(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>)
        -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
    ```
  }];
  let arguments = (ins NSA_Activation:$query, NSA_Activation:$key,
                       NSA_Activation:$value, Variadic<NSA_Activation>:$keys,
                       NSA_F32TensorOfRank<3>:$table,
                       NSA_VisibilityAttrInterface:$visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale);
  let results = (outs NSA_Activation:$output, NSA_Lse:$lse,
                      NSA_Activation:$rotated_query,
                      Variadic<NSA_Activation>:$rotated_keys);
  let resultNames = [{"o", "lse", "q_rotated", "k_rotated", "k_rotated"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $query `,` $key `,` $value (`,` $keys^)? `rotary` $table
    `visible` `(` $visibility `)` attr-dict `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// Compression of keys and values
//===----------------------------------------------------------------------===//

/// What compression of keys and values has in common: the parameters that
/// `kind` needs for each, see `nsa.compress`.
class NSA_KeyValueParameters {
  dag members = (ins Variadic<NSA_FloatTensorOfRank<3>>:$key_parameters,
                 Variadic<NSA_FloatTensorOfRank<3>>:$value_parameters);
}

def NSA_CompressKeyValueOp : NSA_GraphOp<"compress_key_value", [
    AllElementTypesMatch<["key", "value"]>, AttrSizedOperandSegments]> {
  let summary = "compressed keys and values";
  let description = [{
    ```
    k~ = compress(k, key_parameters)
    v~ = compress(v, value_parameters)
    ```

    as `nsa.compress` of one kind does. With a `rotary` table, row `i` of `k~` is
    then rotated as `nn.rotary` with `stride` does, by the angles of position
    `i * stride`.

    Example:

    ```mlir
    %kc, %vc = nsa.compress_key_value linear %k (%wk), %v (%wv) rotary %table {block = 8 : i64, stride = 4 : i64}
        : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x128x16xf32>, tensor<64x8x2xf32>)
        -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$key,
           NSA_Activation:$value),
      NSA_KeyValueParameters<>.members,
      (ins Optional<NSA_F32TensorOfRank<3>>:$table),
      NSA_CompressionParameters<>.members);
  let results = (outs NSA_Activation:$compressed_key,
                      NSA_Activation:$compressed_value);
  let resultNames = [{"kc", "vc"}];
  let assemblyFormat = [{
    $kind $key (`(` $key_parameters^ `)`)? `,`
    $value (`(` $value_parameters^ `)`)? (`rotary` $table^)? attr-dict
      `:` functional-type(operands, results)
  }];
}

def NSA_CompressKeyValueBackwardOp : NSA_GraphOp<"compress_key_value_backward", [
    AllElementTypesMatch<["key_grad", "value_grad", "key", "value"]>,
    AttrSizedOperandSegments]> {
  let summary = "gradients of compressed keys and values";
  let description = [{
    `nsa.compress_backward` of one kind for keys and for values. The gradients of
    the parameters are fp32, those of the keys first.

    Example:

    ```mlir
    %dk, %dv = nsa.compress_key_value_backward mean %dkc, %dvc, %k, %v {block = 8 : i64, stride = 4 : i64}
        : (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
        -> (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$key_grad,
           NSA_Activation:$value_grad, NSA_Activation:$key,
           NSA_Activation:$value),
      NSA_KeyValueParameters<>.members, NSA_CompressionParameters<>.members);
  let results = (outs NSA_Activation:$key_input_grad,
                      NSA_Activation:$value_input_grad,
                      Variadic<NSA_F32TensorOfRank<3>>:$parameter_grads);
  let resultNames = [{"dk", "dv", "dparameter", "dparameter", "dparameter",
                      "dparameter", "dparameter", "dparameter"}];
  let assemblyFormat = [{
    $kind $key_grad `,` $value_grad `,` $key (`(` $key_parameters^ `)`)? `,`
    $value (`(` $value_parameters^ `)`)? attr-dict
      `:` functional-type(operands, results)
  }];
}

#endif // NSA_DIALECTS_NSA_NSAFUSEDOPS_TD
