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
// Branches, their gates and their sum
//===----------------------------------------------------------------------===//

def NSA_YieldOp : NSA_Op<"yield", [Pure, Terminator, HasParent<"FusedOp">]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "the results of an `nsa.fused`";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def NSA_FusedOp : NSA_Op<"fused", [
    Pure, IsolatedFromAbove, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "branches of attention, their gates and their sum, in kernels that share rows";
  let description = [{
    The results are the operands of `nsa.yield`, which the operations inside
    compute from the inputs. Of a sum these are

    - `nsa.combine`, whose result is the first one;
    - for any of its branches `nsa.attention`, one of them with indices, the
      others to tokens. Outputs of other branches are inputs;
    - `nn.gate`, if the gates are not an input.

    Of the gradients they are

    - `nsa.combine_backward`, and for each branch `nsa.attention_backward`, one
      of them with indices;
    - `nn.add` of the gradients of the queries, unless they are unused;
    - `nn.gate` and `nn.gate_backward`, if the gates are not an input;
    - `nn.rotary` of the gradients of keys that are blocks, and of those of the
      queries and of all keys that are tokens, by one table.

    All attention inside is of the same queries, with one scale, one number of
    key heads and one `start` of packed sequences, if there is one, which all
    `nn.rotary` inside have, too. The outputs of branches are rounded to their element type before
    they are summed; other values that stay inside are f32.

    Example:

    ```mlir
    %o:3 = nsa.fused %q, %cmp, %ks, %vs, %i, %logits
        : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x3xi32>,
           tensor<1x64x8xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>) {
    ^bb0(%x: tensor<1x64x4x16xf32>, %c: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>,
         %b: tensor<1x2x64x3xi32>, %z: tensor<1x64x8xf32>):
      %slc, %lse = nsa.attention %x, %k, %v visible(#nsa.selected<block = 16>, %b : tensor<1x2x64x3xi32>)
          : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
      %g = nn.gate sigmoid %z {branches = 2 : i64} : (tensor<1x64x8xf32>) -> tensor<1x64x4x2xf32>
      %sum = nsa.combine %g, %c, %slc
          : (tensor<1x64x4x2xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>) -> tensor<1x64x4x16xf32>
      nsa.yield %sum, %slc, %lse : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $inputs attr-dict `:` functional-type($inputs, $outputs) $body
  }];
  let extraClassDeclaration = [{
    /// The values inside that are the results.
    ::mlir::OperandRange getYielded();
    /// The input that an argument of the body is.
    ::mlir::Value getOutside(::mlir::Value argument);
    /// Whether gradients are inside.
    bool isBackward();
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Attention that rotates what it loads
//===----------------------------------------------------------------------===//

def NSA_RotaryAttentionOp : NSA_GraphOp<"rotary_attention", [
    AllElementTypesMatch<["query", "key", "value"]>, AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "`nsa.attention` of queries that are not rotated yet";
  let description = [{
    ```
    q_rotated   = rotary(q, table)
    k_rotated_i = rotary(keys_i, table)
    o, lse      = attention(q_rotated, k, v)
    ```

    as `nn.rotary` of stride 1 and `nsa.attention` of this `visibility`, `start`,
    `scale` and `softcap` do. `keys` are those of other branches [B, S, H, dk], with no more heads than the queries
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
                       Optional<NSA_Start>:$start,
                       NSA_VisibilityAttrInterface:$visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Activation:$output, NSA_Lse:$lse,
                      NSA_Activation:$rotated_query,
                      Variadic<NSA_Activation>:$rotated_keys);
  let resultTypes = [{
    getOutputType(adaptor.getQuery(), adaptor.getValue()),
    getLseType(adaptor.getQuery()), adaptor.getQuery().getType()
  }];
  let lastResultTypes = [{adaptor.getKeys().getTypes()}];
  let resultNames = [{"o", "lse", "q_rotated", "k_rotated", "k_rotated"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $query `,` $key `,` $value (`,` $keys^)? `rotary` $table
    (`start` `(` $start^ `)`)? `visible` `(` $visibility `)` attr-dict `:` functional-type(operands, results)
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
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "compressed keys and values";
  let description = [{
    ```
    k~ = compress(k, key_parameters)
    v~ = compress(v, value_parameters)
    ```

    as `nsa.compress` of one kind and `start` does. With a `rotary` table, row `i` of `k~` is
    then rotated as `nn.rotary` with `stride` and `start` does, without `start` by the
    angles of position `i * stride`.

    Example:

    ```mlir
    %kc, %vc = nsa.compress_key_value linear %k (%wk), %v (%wv) rotary %table by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x128x16xf32>, tensor<64x8x2xf32>)
        -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$key,
           NSA_Activation:$value),
      NSA_KeyValueParameters<>.members,
      (ins Optional<NSA_F32TensorOfRank<3>>:$table,
           Optional<NSA_Start>:$start, NSA_CompressedAttr:$compressed));
  let results = (outs NSA_Activation:$compressed_key,
                      NSA_Activation:$compressed_value);
  let resultTypes = [{
    getCompressedType(adaptor.getCompressed(), adaptor.getKey(), adaptor.getStart()),
    getCompressedType(adaptor.getCompressed(), adaptor.getValue(), adaptor.getStart())
  }];
  let resultNames = [{"kc", "vc"}];
  let declarations = NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $kind $key (`(` $key_parameters^ `)`)? `,`
    $value (`(` $value_parameters^ `)`)? (`rotary` $table^)? (`start` `(` $start^ `)`)?
      custom<Blocks>($compressed, attr-dict) `:` functional-type(operands, results)
  }];
}

def NSA_CompressKeyValueBackwardOp : NSA_GraphOp<"compress_key_value_backward", [
    AllElementTypesMatch<["key_grad", "value_grad", "key", "value"]>,
    AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "gradients of compressed keys and values";
  let description = [{
    `nsa.compress_backward` of one kind and `start` for keys and for values. The gradients of
    the parameters are fp32, those of the keys first.

    Example:

    ```mlir
    %dk, %dv = nsa.compress_key_value_backward mean %dkc, %dvc, %k, %v by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
        -> (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$key_grad,
           NSA_Activation:$value_grad, NSA_Activation:$key,
           NSA_Activation:$value),
      NSA_KeyValueParameters<>.members,
      (ins Optional<NSA_Start>:$start, NSA_CompressedAttr:$compressed));
  let results = (outs NSA_Activation:$key_input_grad,
                      NSA_Activation:$value_input_grad,
                      Variadic<NSA_F32TensorOfRank<3>>:$parameter_grads);
  let resultTypes = [{adaptor.getKey().getType(), adaptor.getValue().getType()}];
  let lastResultTypes = [{
    llvm::concat<Type>(toF32(adaptor.getKeyParameters()), toF32(adaptor.getValueParameters()))
  }];
  let resultNames = [{"dk", "dv", "dparameter", "dparameter", "dparameter",
                      "dparameter", "dparameter", "dparameter"}];
  let declarations = NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $kind $key_grad `,` $value_grad `,` $key (`(` $key_parameters^ `)`)? `,`
    $value (`(` $value_parameters^ `)`)? (`start` `(` $start^ `)`)?
      custom<Blocks>($compressed, attr-dict) `:` functional-type(operands, results)
  }];
}

#endif // NSA_DIALECTS_NSA_NSAFUSEDOPS_TD
