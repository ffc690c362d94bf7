//===- NSAOps.td - Native Sparse Attention operations -----------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NSA_NSAOPS_TD
#define NSA_DIALECTS_NSA_NSAOPS_TD

include "dialects/Interfaces/DifferentiableOpInterface.td"
include "dialects/Interfaces/GraphOp.td"
include "dialects/Interfaces/PrecisionOpInterface.td"
include "dialects/Interfaces/RecomputeTraits.td"
include "dialects/Interfaces/TensorTypes.td"
include "dialects/NSA/NSADialect.td"
include "dialects/NSA/NSASchedule.td"
include "dialects/NSA/NSAVisibility.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Base classes
//===----------------------------------------------------------------------===//

def NSA_Activation : NSA_FloatTensorOfRank<4>;
def NSA_Lse : NSA_F32TensorOfRank<3>;
def NSA_Indices : NSA_I32TensorOfRank<4>;
def NSA_Gates : NSA_F32TensorOfRank<4>;
/// Where the sequence of each token begins, of rows that hold several.
def NSA_Start : NSA_I32TensorOfRank<2>;
/// For each row of queries the row of the keys that holds its sequence, and the
/// position of its first query there.
def NSA_At : NSA_I32TensorOfRank<2>;

/// An op without side effects whose result types follow from its operands.
class NSA_GraphOp<string mnemonic, list<Trait> traits = []>
    : NSA_Op<mnemonic, !listconcat(traits, [
        Pure, InferTypeOpAdaptor,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>])>,
      NSA_GraphMethods {
  let hasVerifier = 1;
  code declarations = [{}];
  let extraClassDeclaration = declarations;
  let extraClassDefinition = graphMethods;
}

/// An op that may lie on the path from a parameter to the loss.
class NSA_DifferentiableOp<string mnemonic, list<Trait> traits = [],
                           list<string> differentiableMethods = []>
    : NSA_GraphOp<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<DifferentiableOpInterface,
                                  differentiableMethods>,
        DeclareOpInterfaceMethods<PrecisionOpInterface,
                                  ["getOperandPrecision"]>])> {
  let operandPrecision = [{OperandPrecision::Compute}];
}

/// Declares what ops with the optional `scale` and `softcap` do with scores.
class NSA_ScaleMethod {
  code declarations = [{
    /// The factor of the scores: `scale` if given, else 1 / sqrt(dk).
    double getScaleOrDefault() {
      return ::nsa::getScoreScale(getScale(), getQuery());
    }
    /// What the scores are kept below; 0 if it is not given.
    double getSoftcapOrZero() {
      return getSoftcapAttr() ? getSoftcapAttr().getValueAsDouble() : 0.0;
    }
  }];
}

//===----------------------------------------------------------------------===//
// Compression
//===----------------------------------------------------------------------===//

/// The lengths of the blocks of `$compressed`.
class NSA_BlockMethods {
  code declarations = [{
    int64_t getBlock() { return getCompressed().getBlock(); }
    int64_t getStride() { return getCompressed().getStride(); }
  }];
}

/// The operands that `kind` has besides the input, and their names.
class NSA_CompressionOperands {
  dag members = (ins Variadic<NSA_FloatTensorOfRank<3>>:$parameters);
  code declarations = [{
    /// The projection of a block, `[Hkv, block*D, D]`; null for `mean`.
    ::mlir::Value getWeight() { return getParameter(0); }
    /// The second projection of `mlp`, `[Hkv, D, D]`, or null.
    ::mlir::Value getOutputWeight() {
      return getKind() == ::nsa::CompressionKind::Mlp ? getParameter(1)
                                                      : ::mlir::Value();
    }
    /// What is added to the tokens of a block, `[Hkv, block, D]`, or null.
    ::mlir::Value getPositions() {
      return getParameter(::nsa::getNumWeights(getKind()));
    }

  private:
    ::mlir::Value getParameter(unsigned index) {
      return index < getParameters().size() ? getParameters()[index]
                                            : ::mlir::Value();
    }

  public:
  }];
}

/// Kept for backward: a row stands for `stride` tokens, and all but the mean are
/// matmuls.
def NSA_CompressOp : NSA_DifferentiableOp<"compress", [
    NSA_KeptForBackward, AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Compression">;
  let summary = "one row for each block of tokens";
  let description = [{
    Row `i` summarises the tokens `i*stride .. i*stride + block - 1` of each
    head, with the block and stride of `#nsa.compressed`. There is no partial and no padded block: `y` has
    `Nc = floor((S - block) / stride) + 1` rows if `S >= block`, else none.

    With `u[b, i, h, r, c] = x[b, i*stride + r, h, c] + positions[h, r, c]`, or `x`
    alone where no positions are given:

    ```
    mean:    y[b, i, h, :] = 1/block * sum_r x[b, i*stride + r, h, :]
    linear:  y[b, i, h, e] = sum_{r, c} u[b, i, h, r, c] * weight[h, r*D + c, e]
    mlp:     z[b, i, h, e] = sum_{r, c} u[b, i, h, r, c] * weight[h, r*D + c, e]
             y[b, i, h, e] = sum_c silu(z[b, i, h, c]) * output_weight[h, c, e]
    ```

    The parameters follow the input, positions last:

    | kind | parameters |
    |---|---|
    | `mean` | none |
    | `linear` | weight `[Hkv, block*D, D]`, and positions `[Hkv, block, D]` if wanted |
    | `mlp` | weight `[Hkv, block*D, D]`, output weight `[Hkv, D, D]`, and positions `[Hkv, block, D]` if wanted |

    `start` packs sequences: `start[b, t]` is the index of the first token of the
    sequence of token `t`. `y` then has `floor(S / stride)` rows; block `i` of a
    sequence that begins at `o` is row `floor(o / stride) + i` and summarises the
    tokens `o + i*stride .. o + i*stride + block - 1`. Rows that are no block of any
    sequence are 0.

    Example:

    ```mlir
    %y = nsa.compress linear %x, %w by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
    %z = nsa.compress mlp %x, %w, %w2, %p by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
        -> tensor<1x15x2x16xf32>
    %p16 = nsa.compress mean %x start(%s) by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x64x2x16xf32>, tensor<1x64xi32>) -> tensor<1x16x2x16xf32>
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$input),
      NSA_CompressionOperands<>.members,
      (ins Optional<NSA_Start>:$start, NSA_CompressedAttr:$compressed));
  let results = (outs NSA_Activation:$output);
  let resultTypes = [{
    getCompressedType(adaptor.getCompressed(), adaptor.getInput(), adaptor.getStart())
  }];
  let resultNames = [{"compressed"}];
  let backward = [{
    CompressBackwardOp::create(builder, getLoc(), getKind(), resultGrads[0], getInput(), getParameters(), getStart(),
                               getCompressed())
  }];
  let declarations = NSA_CompressionOperands<>.declarations #
                     NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $kind $input (`,` $parameters^)? (`start` `(` $start^ `)`)?
      custom<Blocks>($compressed, attr-dict)
      `:` functional-type(operands, results)
  }];
}

def NSA_CompressBackwardOp : NSA_GraphOp<"compress_backward", [
    AllElementTypesMatch<["output_grad", "input"]>, AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Compression">;
  let summary = "gradients of `nsa.compress`";
  let description = [{
    Blocks overlap when `stride < block`, so a token gathers the gradient of
    every block that holds it, in ascending order. With `u` and `z` as in
    `nsa.compress`, which are computed again, and `dz = dy` for `linear`:

    ```
    mean:    dx[b, t, h, :] = 1/block * sum_{i : t in block i} dy[b, i, h, :]
    mlp:     dz[b, i, h, c] = silu'(z[b, i, h, c]) * sum_e dy[b, i, h, e] * output_weight[h, c, e]
             doutput_weight[h, c, e] = sum_{b, i} silu(z[b, i, h, c]) * dy[b, i, h, e]
    linear, mlp:
             dx[b, t, h, c] = sum_{i : t in block i} sum_e dz[b, i, h, e] * weight[h, (t - i*stride)*D + c, e]
             dweight[h, r*D + c, e] = sum_{b, i} u[b, i, h, r, c] * dz[b, i, h, e]
             dpositions[h, r, c] = sum_e (sum_{b, i} dz[b, i, h, e]) * weight[h, r*D + c, e]
    ```

    `kind`, `start` and blocks are those of the compression; gradients of rows that
    are no block do not count. The gradients of the
    parameters are fp32 and in the order of the parameters.

    Example:

    ```mlir
    %dx = nsa.compress_backward mean %dy, %x by(#nsa.compressed<block = 8, stride = 4>)
        : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32>
    ```
  }];
  let arguments = !con(
      (ins NSA_CompressionKindAttr:$kind, NSA_Activation:$output_grad,
           NSA_Activation:$input),
      NSA_CompressionOperands<>.members,
      (ins Optional<NSA_Start>:$start, NSA_CompressedAttr:$compressed));
  let results = (outs NSA_Activation:$input_grad,
                      Variadic<NSA_F32TensorOfRank<3>>:$parameter_grads);
  let resultTypes = [{adaptor.getInput().getType()}];
  let lastResultTypes = [{toF32(adaptor.getParameters())}];
  let resultNames = [{"dx", "dw", "dparameter", "dparameter"}];
  let declarations = NSA_CompressionOperands<>.declarations #
                     NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $kind $output_grad `,` $input (`,` $parameters^)? (`start` `(` $start^ `)`)?
      custom<Blocks>($compressed, attr-dict)
      `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def NSA_AttentionOp : NSA_DifferentiableOp<"attention", [
    AllElementTypesMatch<["query", "key", "value"]>, NSA_KeptForBackward,
    AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Attention">;
  let summary = "softmax attention to the keys that a query sees";
  let description = [{
    The `visibility` says which keys `i` query `t` sees; see
    `VisibilityAttrInterface`. `scale` is `1 / sqrt(dk)` if it is not given. With `s[t, i] = scale * q[t] . k[i]` over these,
    or with `softcap` the `softcap * tanh(s / softcap)` of that (Riviere et al., "Gemma 2", 2024, section 2), and head `h` of q
    using head `h / G` of k and v:

    ```
    lse[t] = log sum_i exp(s[t, i])
    o[t]   = sum_i exp(s[t, i] - lse[t]) * v[i]
    ```

    Rows that see nothing: `o = 0` and `lse = -inf`. `k` and `v` have as many
    rows as the visibility has keys for `S` tokens: `S` of them, or the `Nc` rows
    that `nsa.compress` makes of them, which may be none.

    Indices, which `#nsa.selected` takes, name blocks of keys; -1 names none. An
    index beyond the block of its query or below -1 is a mistake of the program that made
    the indices: kernels ignore it, and a run that checks every command
    (`nsa-run --check`, `nsa-train --no-graph`) refuses it.

    `start` packs sequences, which do not see each other: `start[b, t]` is the index
    of the first token of the sequence of token `t`. Queries, keys and blocks are
    then counted from the beginning of their own sequence, indices too. Keys that are
    blocks are the `floor(S / stride)` rows of `nsa.compress` with this `start`.

    With `at`, `[B, 2]`, rows of queries begin inside of longer sequences: row `t` of
    `q[b]` is token `at[b, 1] + t` of the sequence `at[b, 0]`, a row of `k` and `v`,
    which have a batch and a length of their own. Visibility, blocks and indices are
    counted in that sequence, and so is `start`, which then has its rows and
    tokens. Several rows may be of one sequence. Positions past its last key see
    keys of 0 there, but read nothing out of bounds.

    Example:

    ```mlir
    %o, %lse = nsa.attention %q, %k, %v visible(#nsa.window<32>)
        : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    %o2, %lse2 = nsa.attention %q, %k, %v visible(#nsa.selected<block = 16>, %indices : tensor<1x2x64x3xi32>)
        : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    %o3, %lse3 = nsa.attention %q, %k, %v visible(#nsa.causal) start(%start : tensor<1x64xi32>)
        : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    %o4, %lse4 = nsa.attention %chunks, %k, %v visible(#nsa.causal) at(%at : tensor<2x2xi32>)
        : tensor<2x16x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$query, NSA_Activation:$key,
                       NSA_Activation:$value, Optional<NSA_Indices>:$indices,
                       Optional<NSA_Start>:$start, Optional<NSA_At>:$at,
                       NSA_VisibilityAttrInterface:$visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Activation:$output, NSA_Lse:$lse);
  let resultNames = [{"o", "lse"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $query `,` $key `,` $value
    `visible` `(` $visibility (`,` $indices^ `:` type($indices))? `)`
    (`start` `(` $start^ `:` type($start) `)`)?
    (`at` `(` $at^ `:` type($at) `)`)? attr-dict
    `:` type($query) `,` type($key) `,` type($value)
  }];
}

def NSA_AttentionBackwardOp : NSA_GraphOp<"attention_backward", [
    AllElementTypesMatch<["output_grad", "query", "key", "value",
                          "output"]>, AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Attention">;
  let summary = "gradients of `nsa.attention`";
  let description = [{
    `visibility`, `start`, `at`, `scale` and `softcap` are those of the attention. With
    `p[t, i] = exp(s[t, i] - lse[t])` for visible `i`, computed again,
    `D[t] = do[t] . o[t]` and `ds[t, i] = p[t, i] * (do[t] . v[i] - D[t])`, with `softcap`
    times `1 - (s[t, i] / softcap)^2`:

    ```
    dq[t] = scale * sum_i ds[t, i] * k[i]
    dk[i] = scale * sum_{t, heads of the group} ds[t, i] * q[t]
    dv[i] = sum_{t, heads of the group} p[t, i] * do[t]
    ```

    Sums over queries are in ascending order; with `at` over those of all rows `b`
    of the sequence, one row after the other. Rows that see nothing contribute 0.

    Example:

    ```mlir
    %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %lse visible(#nsa.window<32>)
        : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>,
          tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$output_grad, NSA_Activation:$query,
                       NSA_Activation:$key, NSA_Activation:$value,
                       NSA_Activation:$output, NSA_Lse:$lse,
                       Optional<NSA_Indices>:$indices,
                       Optional<NSA_Start>:$start, Optional<NSA_At>:$at,
                       NSA_VisibilityAttrInterface:$visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Activation:$query_grad, NSA_Activation:$key_grad,
                      NSA_Activation:$value_grad);
  let resultTypes = [{
    adaptor.getQuery().getType(), adaptor.getKey().getType(), adaptor.getValue().getType()
  }];
  let resultNames = [{"dq", "dk", "dv"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $output_grad `,` $query `,` $key `,` $value `,` $output `,` $lse
    `visible` `(` $visibility (`,` $indices^ `:` type($indices))? `)`
    (`start` `(` $start^ `:` type($start) `)`)?
    (`at` `(` $at^ `:` type($at) `)`)? attr-dict
    `:` type($output_grad) `,` type($query) `,` type($key) `,` type($value) `,`
    type($output) `,` type($lse)
  }];
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

def NSA_SelectOp : NSA_DifferentiableOp<"select", [
    AllElementTypesMatch<["query", "key"]>, NSA_KeptForBackward,
    AttrSizedOperandSegments], ["isDifferentiableOperand"]> {
  let opDocGroup = NSA_DocGroup<"Selection">;
  let summary = "the best `count` selection blocks of each token and group";
  let description = [{
    `k` and `lse` are those of `nsa.attention` by the same `#nsa.compressed`, scale and
    softcap, and `nsa.attention` by the same `#nsa.selected` takes the indices. With
    the block and stride of the former, the probability of compressed block `i`,
    summed over the heads of the group in ascending order in fp32, and the score
    of selection block `j` are

    ```
    p[t, i]     = sum_h exp(s[t, h, i] - lse[t, h])   for visible i, else 0
    score[t, j] = sum_i |[i*stride, i*stride + block) n [j*l', (j+1)*l')| / stride * p[t, i]
    ```

    with `l'` the block of `#nsa.selected`. Candidates of query `t` are `0 .. J`,
    `J = floor(t / l')`. Its first `initial` blocks and the last `local` blocks
    (`J`, `J-1`, ..) are taken always, as a set, and count towards `count`; when they
    are more than `count`, they enter in the order `J`, initial blocks ascending,
    `J-1`, `J-2`, ... The others are the best by score, ties to the lower index.
    So exactly `min(count, J + 1)` blocks are chosen; they are listed
    ascending and padded with -1 on the right. With `start` and `at`, as in
    `nsa.attention`, tokens and blocks are counted in the query's own sequence.

    The choice is not differentiable: no gradient flows to the operands.

    Example:

    ```mlir
    %indices = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
        : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
    ```
  }];
  let arguments = (ins NSA_Activation:$query, NSA_Activation:$key, NSA_Lse:$lse,
                       Optional<NSA_Start>:$start, Optional<NSA_At>:$at,
                       NSA_CompressedAttr:$compressed,
                       NSA_SelectedAttr:$selected,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Indices:$indices);
  let operandPrecision = [{
    getOperation()->getOperand(index) == getLse() ? OperandPrecision::Full : OperandPrecision::Compute
  }];
  let resultTypes = [{
    getIndicesType(adaptor, getDim(adaptor.getQuery(), 1))
  }];
  let resultNames = [{"indices"}];
  let declarations = NSA_ScaleMethod<>.declarations #
                     NSA_BlockMethods<>.declarations # [{
    int64_t getSelectBlock() { return getSelected().getBlock(); }
    int64_t getCount() { return getSelected().getCount(); }
    int64_t getInitial() { return getSelected().getInitial(); }
    int64_t getLocal() { return getSelected().getLocal(); }
  }];
  let assemblyFormat = [{
    $query `,` $key `,` $lse (`start` `(` $start^ `:` type($start) `)`)?
      (`at` `(` $at^ `:` type($at) `)`)?
      custom<Selection>($compressed, $selected, attr-dict)
      `:` custom<SelectionTypes>(type($query), type($key), type($lse), type($indices))
  }];
}

//===----------------------------------------------------------------------===//
// Combination
//===----------------------------------------------------------------------===//

def NSA_CombineOp : NSA_DifferentiableOp<"combine", [NSA_CheapToRecompute]> {
  let opDocGroup = NSA_DocGroup<"Combination">;
  let summary = "gated sum of branches";
  let description = [{
    ```
    o[b, t, h, :] = sum_c gates[b, t, h, c] * branch_c[b, t, h, :]
    ```

    in fp32 and in the order of the branches, rounded once.

    Example:

    ```mlir
    %o = nsa.combine %gates, %cmp, %slc, %win
        : (tensor<1x64x4x3xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>)
        -> tensor<1x64x4x16xf32>
    ```
  }];
  let arguments = (ins NSA_Gates:$gates, Variadic<NSA_Activation>:$branches);
  let results = (outs NSA_Activation:$output);
  let operandPrecision = [{
    index == 0 ? OperandPrecision::Full : OperandPrecision::Compute
  }];
  let resultNames = [{"o"}];
  let backward = [{
    CombineBackwardOp::create(builder, getLoc(), resultGrads[0], getGates(), getBranches())
  }];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_CombineBackwardOp : NSA_GraphOp<"combine_backward"> {
  let opDocGroup = NSA_DocGroup<"Combination">;
  let summary = "gradients of `nsa.combine`";
  let description = [{
    For branch `c` with output `o_c`:

    ```
    dgates[b, t, h, c] = do[b, t, h, :] . o_c[b, t, h, :]
    do_c[b, t, h, :]   = gates[b, t, h, c] * do[b, t, h, :]
    ```

    Example:

    ```mlir
    %dgates, %dcmp, %dslc, %dwin = nsa.combine_backward %do, %gates, %cmp, %slc, %win
        : (tensor<1x64x4x16xf32>, tensor<1x64x4x3xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>)
        -> (tensor<1x64x4x3xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>)
    ```
  }];
  let arguments = (ins NSA_Activation:$output_grad, NSA_Gates:$gates,
                       Variadic<NSA_Activation>:$branches);
  let results = (outs NSA_Gates:$gates_grad,
                      Variadic<NSA_Activation>:$branch_grads);
  let resultTypes = [{adaptor.getGates().getType()}];
  let lastResultTypes = [{
    SmallVector<Type>(adaptor.getBranches().size(), adaptor.getOutputGrad().getType())
  }];
  let resultNames = [{"dgates", "dbranch"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

def NSA_GateStatisticsOp : NSA_GraphOp<"gate_statistics"> {
  let opDocGroup = NSA_DocGroup<"Statistics">;
  let summary = "how much each branch is used";
  let description = [{
    With `p[b, t, h, c] = gates[b, t, h, c] / sum_e gates[b, t, h, e]` and means
    over all `b, t, h`:

    ```
    y[0 .. n-1] = mean gates[b, t, h, 0 .. n-1]
    y[n]        = mean -sum_c p[b, t, h, c] * log p[b, t, h, c]
    ```

    of `n` branches. The last is the entropy, at most log n; where the gates of a token sum to 0
    it counts as 0. A metric: there is no gradient.

    Example:

    ```mlir
    %y = nsa.gate_statistics %gates : (tensor<1x64x4x3xf32>) -> tensor<4xf32>
    ```
  }];
  let arguments = (ins NSA_Gates:$gates);
  let results = (outs NSA_F32TensorOfRank<1>:$statistics);
  let resultTypes = [{
    withShape({getDim(adaptor.getGates(), 3) + 1}, Float32Type::get(context))
  }];
  let resultNames = [{"statistics"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_SelectionStatisticsOp : NSA_GraphOp<"selection_statistics", [
    AttrSizedOperandSegments]> {
  let opDocGroup = NSA_DocGroup<"Statistics">;
  let summary = "how many blocks are selected, and how far away";
  let description = [{
    Of the indices of `nsa.select` with this `select_block`; `J = floor(t / select_block)`
    is the block of query `t`, `-1` is no index:

    ```
    y[0] = mean over b, h, t of the number of selected blocks
    y[1] = mean over all selected blocks j of J - j
    y[2] = mean over b, h, J of the number of different blocks that the queries of block J select
    ```

    The second is 0 where no block is selected at all. A metric: there
    is no gradient. With `start`, as in `nsa.attention`, `J = floor((t - start[b, t]) / select_block)`,
    and the last number is of `select_block` neighbouring queries of the row, with
    `j + floor(start[b, t] / select_block)` in place of `j`. With `at`, as in
    `nsa.attention`, `J` is the block of position `at[b, 1] + t`, and the last number is
    of `select_block` neighbouring queries of the row, from its first one on.

    Example:

    ```mlir
    %y = nsa.selection_statistics %indices {select_block = 16 : i64} : (tensor<1x2x64x3xi32>) -> tensor<3xf32>
    ```
  }];
  let arguments = (ins NSA_Indices:$indices, Optional<NSA_Start>:$start,
                       Optional<NSA_At>:$at, NSA_PositiveI64:$select_block);
  let results = (outs NSA_F32TensorOfRank<1>:$statistics);
  let resultTypes = [{withShape({3}, Float32Type::get(context))}];
  let resultNames = [{"statistics"}];
  let assemblyFormat = [{
    $indices (`,` $start^)? (`at` `(` $at^ `)`)? attr-dict
      `:` functional-type(operands, results)
  }];
}

#endif // NSA_DIALECTS_NSA_NSAOPS_TD
