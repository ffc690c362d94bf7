//===- NNOps.td - operations of a decoder -----------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NN_NNOPS_TD
#define NSA_DIALECTS_NN_NNOPS_TD

include "dialects/NN/NNOpBase.td"

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

def NN_EmbeddingOp : NN_DifferentiableOp<"embedding"> {
  let opDocGroup = NSA_DocGroup<"Embedding">;
  let summary = "rows of a table";
  let description = [{
    `y[..., :] = table[ids[...], :]`. An id outside `[0, V)` yields a row of
    zeros.

    Example:

    ```mlir
    %y = nn.embedding %table, %ids : (tensor<256x32xf32>, tensor<2x64xi32>) -> tensor<2x64x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<2>:$table, NSA_I32Tensor:$ids);
  let results = (outs NSA_FloatRows:$output);
  let resultTypes = [{
    withLast(getShape(adaptor.getIds()), getDim(adaptor.getTable(), 1), getElementType(adaptor.getTable()))
  }];
  let resultNames = [{"embedded"}];
  let backward = [{
    EmbeddingBackwardOp::create(builder, getLoc(), resultGrads[0], getIds(), getDim(getTable(), 0))
  }];
  let hasVerifier = 1;
}

def NN_EmbeddingBackwardOp : NN_GraphOp<"embedding_backward"> {
  let opDocGroup = NSA_DocGroup<"Embedding">;
  let summary = "gradient of `nn.embedding` with respect to the table";
  let description = [{
    `dtable[v, :] = sum_{ids[...] == v} dy[..., :]` in fp32, in ascending order of
    the tokens. Ids outside `[0, vocab)` contribute nothing.

    Example:

    ```mlir
    %dtable = nn.embedding_backward %dy, %ids {vocab = 256 : i64}
        : (tensor<2x64x32xf32>, tensor<2x64xi32>) -> tensor<256x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatRows:$output_grad, NSA_I32Tensor:$ids,
                       NSA_PositiveI64:$vocab);
  let results = (outs NSA_F32TensorOfRank<2>:$table_grad);
  let resultTypes = [{
    RankedTensorType::get({int64_t(adaptor.getVocab()), getShape(adaptor.getOutputGrad()).back()}, Float32Type::get(context))
  }];
  let resultNames = [{"dtable"}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

def NN_MatmulOp : NN_DifferentiableOp<"matmul", [
    AllElementTypesMatch<["lhs", "rhs"]>]> {
  let opDocGroup = NSA_DocGroup<"Matmul">;
  let summary = "matmul of two matrices";
  let description = [{
    Both operands are seen as matrices: the last dimension is the columns, the
    product of the others the rows. With `op` the transposition asked for,

    ```
    y = op(lhs) . op(rhs) + accumulator
    ```

    accumulated in fp32; without an `accumulator` that term is missing. Without `transpose_lhs` the result has the leading
    dimensions of `lhs` followed by the columns of `op(rhs)`; with it the result
    is a matrix. Its element type is `result_type` if given, else that of
    `lhs`. Weights are `[out, in]`, with `transpose_rhs`: then weights that lie
    one after the other are one matrix.

    The op is closed under differentiation: for `y = x . w^T` it is
    `dx = dy . w`, and `dw = dy^T . x` with `result_type = f32`, of `dy` in the
    type of the operands.

    Example:

    ```mlir
    %h = nn.matmul %x, %wt {transpose_rhs} : (tensor<2x64x32xf32>, tensor<48x32xf32>) -> tensor<2x64x48xf32>
    %y = nn.matmul %x, %w : (tensor<2x64x32xf32>, tensor<32x48xf32>) -> tensor<2x64x48xf32>
    %dw = nn.matmul %x, %y {transpose_lhs} : (tensor<2x64x32xf32>, tensor<2x64x48xf32>) -> tensor<32x48xf32>
    %sum = nn.matmul %x, %y, %dw {transpose_lhs}
        : (tensor<2x64x32xf32>, tensor<2x64x48xf32>, tensor<32x48xf32>) -> tensor<32x48xf32>
    ```
  }];
  let arguments = (ins NSA_FloatRows:$lhs, NSA_FloatRows:$rhs,
                       Optional<NSA_FloatRows>:$accumulator,
                       UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
                       OptionalAttr<NN_FloatElementTypeAttr>:$result_type);
  let results = (outs NSA_FloatRows:$output);
  let operandPrecision = [{
    index == 2 && getResultType().value_or(Type()) == Float32Type::get(getContext())
        ? OperandPrecision::Full : OperandPrecision::Compute
  }];
  let resultNames = [{"product"}];
  let extraClassDeclaration = [{
    /// Rows (m), columns (n) and summed length (k) of the matmul.
    struct Sizes { int64_t m, n, k; };
    Sizes getSizes();
  }];
  let hasVerifier = 1;
}

def NN_AddBiasOp : NN_DifferentiableOp<"add_bias", [
    NSA_CheapToRecompute, NN_FusionRoot]> {
  let opDocGroup = NSA_DocGroup<"Matmul">;
  let summary = "a vector added to every row";
  let description = [{
    `y[..., c] = x[..., c] + bias[c]`, in fp32, rounded once.

    Example:

    ```mlir
    %y = nn.add_bias %x, %bias : (tensor<2x64x32xf32>, tensor<32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatRows:$input, NSA_F32TensorOfRank<1>:$bias);
  let results = (outs NSA_FloatRows:$output);
  let operandPrecision = [{
    index == 0 ? OperandPrecision::Compute : OperandPrecision::Full
  }];
  let resultTypes = [{adaptor.getInput().getType()}];
  let resultNames = [{"biased"}];
  let hasVerifier = 1;
}

def NN_SumRowsOp : NN_GraphOp<"sum_rows", [
    NN_FusionRoot, DeclareOpInterfaceMethods<RowSumOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Matmul">;
  let summary = "the sum of all rows: the gradient of a bias";
  let description = [{
    `y[c] = sum_... x[..., c]` in fp32. With `partial_sums = P` the rows are cut
    into `P` ranges of equal length, the last ones maybe shorter or empty, and
    `y[p, c]` is the sum over range `p`.

    Example:

    ```mlir
    %dbias = nn.sum_rows %dy : (tensor<2x64x32xf32>) -> tensor<32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatRows:$input,
                       OptionalAttr<NSA_PositiveI64>:$partial_sums);
  let results = (outs NSA_F32Tensor:$sum);
  let resultTypes = [{
    getRowSumType(context, getShape(adaptor.getInput()).back(), adaptor.getPartialSumsAttr())
  }];
  let resultNames = [{"dbias"}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Normalisation
//===----------------------------------------------------------------------===//

def NN_RMSNormOp : NN_DifferentiableOp<"rms_norm", [
    NSA_CheapToRecompute, NN_FusionRoot]> {
  let opDocGroup = NSA_DocGroup<"Normalisation">;
  let summary = "division by the root of the mean square";
  let description = [{
    Over the last dimension of length `C`:

    ```
    rstd[...] = 1 / sqrt(1/C * sum_c x[..., c]^2 + eps)
    y[..., c] = x[..., c] * rstd[...] * weight[c]
    ```

    With `plus_one`, `1 + weight[c]` stands for `weight[c]`.

    Example:

    ```mlir
    %y, %rstd = nn.rms_norm %x, %weight {eps = 1.0e-5 : f64}
        : (tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatRows:$input, NSA_F32TensorOfRank<1>:$weight,
                       NSA_PositiveF64:$eps, UnitAttr:$plus_one);
  let results = (outs NSA_FloatRows:$output, NSA_F32Tensor:$rstd);
  let operandPrecision = [{
    index == 0 ? OperandPrecision::Compute : OperandPrecision::Full
  }];
  let resultTypes = [{
    adaptor.getInput().getType(),
    RankedTensorType::get(leadingShape(adaptor.getInput()), Float32Type::get(context))
  }];
  let resultNames = [{"normed", "rstd"}];
  let hasVerifier = 1;
}

def NN_RMSNormBackwardOp : NN_GraphOp<"rms_norm_backward", [
    AllTypesMatch<["output_grad", "input"]>, NN_FusionRoot,
    DeclareOpInterfaceMethods<RowSumOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Normalisation">;
  let summary = "gradients of `nn.rms_norm`";
  let description = [{
    With `g[c] = dy[..., c] * weight[c]` and `n[c] = x[..., c] * rstd[...]`:

    ```
    dx[..., c] = rstd[...] * (g[c] - n[c] * 1/C * sum_e g[e] * n[e])
    dweight[c] = sum_... dy[..., c] * n[c]
    ```

    With `partial_sums = P` the rows are cut into `P` ranges of equal length,
    the last ones maybe shorter or empty, and `dweight[p, c]` is the sum over
    range `p`.

    Example:

    ```mlir
    %dx, %dweight = nn.rms_norm_backward %dy, %x, %weight, %rstd
        : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<32xf32>, tensor<2x64xf32>)
        -> (tensor<2x64x32xf32>, tensor<32xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatRows:$output_grad, NSA_FloatRows:$input,
                       NSA_F32TensorOfRank<1>:$weight, NSA_F32Tensor:$rstd,
                       UnitAttr:$plus_one,
                       OptionalAttr<NSA_PositiveI64>:$partial_sums);
  let results = (outs NSA_FloatRows:$input_grad,
                      NSA_F32Tensor:$weight_grad);
  let resultTypes = [{
    adaptor.getInput().getType(),
    getRowSumType(context, getDim(adaptor.getWeight(), 0), adaptor.getPartialSumsAttr())
  }];
  let resultNames = [{"dx", "dweight"}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Rotary embedding and heads
//===----------------------------------------------------------------------===//

def NN_RotaryOp : NN_DifferentiableOp<"rotary", [
    NSA_CheapToRecompute, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<FusibleOpInterface, [
        "isElementOperand", "isElementResult", "sharesIterationSpace"]>],
    ["isDifferentiableOperand"]> {
  let opDocGroup = NSA_DocGroup<"Rotary embedding and heads">;
  let summary = "rotation of pairs of channels by an angle of the position";
  let description = [{
    Row `t` uses the angles of position `t * stride`; `(c, s) =
    table[t * stride, i]` are cosine and sine for the pair of channels `i` and
    `i + D/2`:

    ```
    y[b, t, h, i]       = c * x[b, t, h, i]       - s * x[b, t, h, i + D/2]
    y[b, t, h, i + D/2] = c * x[b, t, h, i + D/2] + s * x[b, t, h, i]
    ```

    `inverse` rotates back (`-s` for `s`), which is also the gradient. A stride is
    for compressed keys, whose row `i` stands at position `i * stride`. The table
    is a constant.

    With `start` `[B, S]`, the index of the first token of each token's sequence, `x`
    has `floor(S / stride)` rows and positions are counted from the beginning of the
    sequence: row `t` stands at `(t - floor(o / stride)) * stride`, where
    `o = start[b, (t + 1) * stride - 1]`.

    With `at` `[B, 2]`, rows begin inside of longer sequences, as the queries of
    `nsa.attention` do: row `t` is row `at[b, 1] + t` of the sequence `at[b, 0]`, whose
    tokens `start` is then for. Rows past the end of the table use its last angles.

    Example:

    ```mlir
    %y = nn.rotary %x, %table {stride = 4 : i64}
        : (tensor<1x15x2x16xf32>, tensor<64x8x2xf32>) -> tensor<1x15x2x16xf32>
    %z = nn.rotary %q, %table at(%at)
        : (tensor<2x16x4x16xf32>, tensor<64x8x2xf32>, tensor<2x2xi32>) -> tensor<2x16x4x16xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input,
                       NSA_F32TensorOfRank<3>:$table,
                       Optional<NSA_I32TensorOfRank<2>>:$start,
                       Optional<NSA_I32TensorOfRank<2>>:$at,
                       DefaultValuedAttr<NSA_PositiveI64, "1">:$stride,
                       UnitAttr:$inverse);
  let results = (outs NSA_FloatTensorOfRank<4>:$output);
  let operandPrecision = [{
    index == 0 ? OperandPrecision::Compute : OperandPrecision::Full
  }];
  let resultTypes = [{adaptor.getInput().getType()}];
  let resultNames = [{"rotated"}];
  let backward = [{
    RotaryOp::create(builder, getLoc(), resultGrads[0], getTable(), getStart(), getAt(), getStride(), !getInverse())
  }];
  let hasVerifier = 1;
  let assemblyFormat = [{
    $input `,` $table (`,` $start^)? (`at` `(` $at^ `)`)? attr-dict
      `:` functional-type(operands, results)
  }];
}

def NN_SplitHeadsOp : NN_DifferentiableOp<"split_heads", [NSA_ViewOfOperand]> {
  let opDocGroup = NSA_DocGroup<"Rotary embedding and heads">;
  let summary = "view of the channels as heads";
  let description = [{
    `y[b, t, h, c] = x[b, t, h*D + c]`, the same elements in the same order.

    Example:

    ```mlir
    %y = nn.split_heads %x {heads = 4 : i64} : (tensor<1x64x48xf32>) -> tensor<1x64x4x12xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<3>:$input, NSA_PositiveI64:$heads);
  let results = (outs NSA_FloatTensorOfRank<4>:$output);
  let operandPrecision = [{OperandPrecision::Any}];
  let resultTypes = [{
    RankedTensorType::get({getDim(adaptor.getInput(), 0), getDim(adaptor.getInput(), 1), int64_t(adaptor.getHeads()),
                           getDim(adaptor.getInput(), 2) / int64_t(adaptor.getHeads())}, getElementType(adaptor.getInput()))
  }];
  let resultNames = [{"heads"}];
  let backward = [{MergeHeadsOp::create(builder, getLoc(), resultGrads[0])}];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_MergeHeadsOp : NN_DifferentiableOp<"merge_heads", [NSA_ViewOfOperand]> {
  let opDocGroup = NSA_DocGroup<"Rotary embedding and heads">;
  let summary = "view of the heads as channels";
  let description = [{
    `y[b, t, h*D + c] = x[b, t, h, c]`, the inverse of `nn.split_heads`.

    Example:

    ```mlir
    %y = nn.merge_heads %x : (tensor<1x64x4x12xf32>) -> tensor<1x64x48xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input);
  let results = (outs NSA_FloatTensorOfRank<3>:$output);
  let operandPrecision = [{OperandPrecision::Any}];
  let resultTypes = [{
    withLast(getShape(adaptor.getInput()).take_front(2), saturatingElements(getShape(adaptor.getInput()).drop_front(2)),
             getElementType(adaptor.getInput()))
  }];
  let resultNames = [{"merged"}];
  let backward = [{
    SplitHeadsOp::create(builder, getLoc(), resultGrads[0], getDim(getInput(), 2))
  }];
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Parts of a tensor
//===----------------------------------------------------------------------===//

def NN_SplitOp : NN_DifferentiableOp<"split", [NSA_ViewOfOperand]> {
  let opDocGroup = NSA_DocGroup<"Parts of a tensor">;
  let summary = "parts of a tensor along one dimension";
  let description = [{
    Result `i` has the `sizes[i]` columns that follow those of the results before
    it; with `rows`, that many elements of the first dimension:

    ```
    y_i[..., c]      = x[..., sizes[0] + .. + sizes[i-1] + c]
    y_i[r, ...]      = x[sizes[0] + .. + sizes[i-1] + r, ...]     with `rows`
    ```

    Nothing is copied where the readers of a part take strided rows.

    Example:

    ```mlir
    %q, %k = nn.split %x {sizes = array<i64: 32, 16>}
        : (tensor<2x64x48xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x16xf32>)
    %w0, %w1 = nn.split %w {rows, sizes = array<i64: 32, 16>}
        : (tensor<48x8xf32>) -> (tensor<32x8xf32>, tensor<16x8xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatRows:$input,
      ConfinedAttr<DenseI64ArrayAttr,
                   [DenseArrayStrictlyPositive<DenseI64ArrayAttr>]>:$sizes,
      UnitAttr:$rows);
  let results = (outs Variadic<NSA_FloatRows>:$parts);
  let operandPrecision = [{OperandPrecision::Any}];
  let resultNames = [{"part"}];
  let extraClassDeclaration = [{
    /// The dimension that is cut.
    unsigned getAxis() { return getRows() ? 0 : getInput().getType().getRank() - 1; }
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def NN_ConcatOp : NN_DifferentiableOp<"concat", [
    SameOperandsAndResultElementType]> {
  let opDocGroup = NSA_DocGroup<"Parts of a tensor">;
  let summary = "tensors side by side";
  let description = [{
    The inverse of `nn.split`: the columns of the operands one after the other;
    with `rows`, the elements of their first dimension. The producer of an
    operand writes its columns in place, if it can.

    Example:

    ```mlir
    %x = nn.concat %q, %k : (tensor<2x64x32xf32>, tensor<2x64x16xf32>) -> tensor<2x64x48xf32>
    ```
  }];
  let arguments = (ins Variadic<NSA_FloatRows>:$parts, UnitAttr:$rows);
  let results = (outs NSA_FloatRows:$output);
  let resultNames = [{"concat"}];
  let extraClassDeclaration = [{
    /// The dimension along which the operands follow each other.
    unsigned getAxis() { return getRows() ? 0 : getType().getRank() - 1; }
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Recomputation
//===----------------------------------------------------------------------===//

def NN_RecomputeBarrierOp : NN_GraphOp<"recompute_barrier", [NSA_ViewOfOperand]> {
  let opDocGroup = NSA_DocGroup<"Recomputation">;
  let summary = "identity that keeps recomputed operations apart";
  let description = [{
    `y = x`, a view without a copy. It is never folded: an operation that reads
    `x` through a barrier is another operation than its twin that reads `x`
    itself, so common subexpression elimination leaves both.

    Example:

    ```mlir
    %y = nn.recompute_barrier %x : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    ```
  }];
  let arguments = (ins NSA_StaticTensor<[NSA_FloatElement, I32]>:$input);
  let results = (outs NSA_StaticTensor<[NSA_FloatElement, I32]>:$output);
  let resultTypes = [{adaptor.getInput().getType()}];
  let resultNames = [{"kept"}];
}

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

def NN_CrossEntropyOp : NN_DifferentiableOp<"cross_entropy"> {
  let opDocGroup = NSA_DocGroup<"Loss">;
  let summary = "mean negative log-likelihood of the targets";
  let description = [{
    A target of -1 is ignored; any other target is an index of the vocabulary.

    ```
    lse[...] = log sum_v exp(logits[..., v])
    count    = number of targets >= 0
    loss     = 1/count * sum_{target >= 0} (lse[...] - logits[..., target])
    ```

    in fp32, summed in a fixed order. With no valid target `loss = 0`.

    With `over_all`, loss and count are divided by the number of all targets,
    ignored ones too: these can be added up over micro-batches, and the sum of
    the losses divided by that of the counts is the mean over their targets.

    ```
    loss  = 1/n * sum_{target >= 0} (lse[...] - logits[..., target])
    count = 1/n * number of targets >= 0
    ```

    Example:

    ```mlir
    %loss, %lse, %count = nn.cross_entropy %logits, %targets
        : (tensor<2x64x256xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
    ```
  }];
  let arguments = (ins NSA_FloatRows:$logits, NSA_I32Tensor:$targets,
                       UnitAttr:$over_all);
  let results = (outs NSA_F32Scalar:$loss, NSA_F32Tensor:$lse,
                      NSA_F32Scalar:$count);
  let resultTypes = [{
    RankedTensorType::get({}, Float32Type::get(context)),
    RankedTensorType::get(leadingShape(adaptor.getLogits()), Float32Type::get(context)),
    RankedTensorType::get({}, Float32Type::get(context))
  }];
  let resultNames = [{"loss", "lse", "count"}];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The number of all targets.
    int64_t getNumTargets();
    /// What divides the gradient: the count, or the number of all targets as
    /// a constant.
    ::mlir::Value getDivisor(::mlir::OpBuilder &builder);
  }];
}

def NN_CrossEntropyBackwardOp : NN_GraphOp<"cross_entropy_backward"> {
  let opDocGroup = NSA_DocGroup<"Loss">;
  let summary = "gradient of `nn.cross_entropy` with respect to the logits";
  let description = [{
    ```
    dlogits[..., v] = dloss / max(count, 1) * (exp(logits[..., v] - lse[...]) - [v == target])
    ```

    for rows with a target >= 0, else 0.

    Example:

    ```mlir
    %dlogits = nn.cross_entropy_backward %dloss, %logits, %targets, %lse, %count
        : (tensor<f32>, tensor<2x64x256xf32>, tensor<2x64xi32>, tensor<2x64xf32>, tensor<f32>)
        -> tensor<2x64x256xf32>
    ```
  }];
  let arguments = (ins NSA_F32Scalar:$loss_grad, NSA_FloatRows:$logits,
                       NSA_I32Tensor:$targets, NSA_F32Tensor:$lse,
                       NSA_F32Scalar:$count);
  let results = (outs NSA_FloatRows:$logits_grad);
  let resultTypes = [{adaptor.getLogits().getType()}];
  let resultNames = [{"dlogits"}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Generation
//===----------------------------------------------------------------------===//

def NN_ArgmaxOp : NN_GraphOp<"argmax"> {
  let opDocGroup = NSA_DocGroup<"Generation">;
  let summary = "the most likely token of each row";
  let description = [{
    `y[...]` is the first `v` with the largest `logits[..., v] + bias[v]`, in fp32,
    or -1 where one of the logits is not finite. A bias of -infinity excludes a
    token.

    Example:

    ```mlir
    %y = nn.argmax %logits, %bias : (tensor<2x1x256xf32>, tensor<256xf32>) -> tensor<2x1xi32>
    ```
  }];
  let arguments = (ins NSA_FloatRows:$logits, NSA_F32TensorOfRank<1>:$bias);
  let results = (outs NSA_I32Tensor:$indices);
  let resultTypes = [{
    RankedTensorType::get(leadingShape(adaptor.getLogits()), IntegerType::get(context, 32))
  }];
  let resultNames = [{"argmax"}];
  let hasVerifier = 1;
}

include "dialects/NN/NNElementwiseOps.td"
include "dialects/NN/NNOptimizerOps.td"
include "dialects/NN/NNFusedOps.td"
include "dialects/NN/NNSequenceOps.td"

#endif // NSA_DIALECTS_NN_NNOPS_TD
