//===- NNFusedOps.td - what passes make of several operations *- tablegen -*-===//
//
// Included by NNOps.td, whose base classes it uses.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNFUSEDOPS_TD
#define NSA_DIALECTS_NN_NNFUSEDOPS_TD

def NN_YieldOp : NN_Op<"yield", [Pure, Terminator,
                                 HasParent<"FusedOp">]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "the results of an `nn.fused`";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def NN_FusedOp : NN_Op<"fused", [
    Pure, IsolatedFromAbove, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "operations that one kernel computes";
  let description = [{
    The results are the operands of `nn.yield`, which the operations inside
    compute from the inputs. They are elementwise operations and at most
    one other, the root (an `nn.rms_norm`, say), which shares with them the
    tensors that it reads or writes element by element. Several roots are allowed
    where their kernels share an iteration space: `nn.rotary` of queries and keys.

    Every value inside is rounded to its element type, so an `nn.fused` gives
    the same bits as its operations one by one.

    Example:

    ```mlir
    %sum, %y = nn.fused %a, %b, %w
        : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>) {
    ^bb0(%x: tensor<2x64x32xf32>, %r: tensor<2x64x32xf32>, %weight: tensor<32xf32>):
      %0 = nn.add %x, %r : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
      %1, %rstd = nn.rms_norm %0, %weight {eps = 1.0e-5 : f64}
          : (tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64xf32>)
      nn.yield %0, %1 : tensor<2x64x32xf32>, tensor<2x64x32xf32>
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
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def NN_AccumulateRowsOp : NN_GraphOp<"accumulate_rows", [
    SameVariadicOperandSize]> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "sums over rows, added to many tensors at once";
  let description = [{
    `y_i[c] = sums_i[c] + sum_p rows_i[p, c]`, rows in ascending order. The first
    half of the operands are the sums, the other one the rows.

    Example:

    ```mlir
    %g0, %g1 = nn.accumulate_rows %grad0, %grad1, %rows0, %rows1
        : (tensor<32xf32>, tensor<12xf32>, tensor<4x32xf32>, tensor<2x12xf32>) -> (tensor<32xf32>, tensor<12xf32>)
    ```
  }];
  let arguments = (ins Variadic<NSA_F32TensorOfRank<1>>:$sums,
                       Variadic<NSA_F32TensorOfRank<2>>:$rows);
  let results = (outs Variadic<NSA_F32TensorOfRank<1>>:$outputs);
  let resultNames = [{"sums"}];
  let lastResultTypes = [{adaptor.getSums().getTypes()}];
  let hasVerifier = 1;
}

def NN_CastAllOp : NN_GraphOp<"cast_all"> {
  let opDocGroup = NSA_DocGroup<"Made by fusion">;
  let summary = "conversion of many tensors at once";
  let description = [{
    Result `i` is operand `i`, rounded to `element_type` as `nn.cast` does.

    Example:

    ```mlir
    %v0, %v1 = nn.cast_all %w0, %w1 to bf16 : (tensor<32x48xf32>, tensor<48x32xf32>) -> (tensor<32x48xbf16>, tensor<48x32xbf16>)
    ```
  }];
  let arguments = (ins Variadic<NSA_FloatTensor>:$inputs,
                       NN_FloatElementTypeAttr:$element_type);
  let results = (outs Variadic<NSA_FloatTensor>:$outputs);
  let resultNames = [{"casts"}];
  let lastResultTypes = [{
    withElement(adaptor.getInputs(), adaptor.getElementType())
  }];
  let assemblyFormat = [{
    $inputs `to` $element_type attr-dict
      `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// The loss in chunks of rows
//===----------------------------------------------------------------------===//

/// Rows of a tensor, with the dimensions but the last seen as one, and tensors
/// of its rows one after the other.
class NN_RowsOp<string mnemonic> : NN_Op<mnemonic, [
    Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_SplitRowsOp : NN_RowsOp<"split_rows"> {
  let opDocGroup = NSA_DocGroup<"The loss in chunks of rows">;
  let summary = "copies of ranges of rows";
  let description = [{
    All dimensions but the last count as rows: the rows of the results in order
    are those of the operand.

    Example:

    ```mlir
    %a, %b = nn.split_rows %x : (tensor<2x64x16xf32>) -> (tensor<32x16xf32>, tensor<96x16xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatRows:$input);
  let results = (outs Variadic<NSA_FloatTensorOfRank<2>>:$parts);
}

def NN_ConcatRowsOp : NN_RowsOp<"concat_rows"> {
  let opDocGroup = NSA_DocGroup<"The loss in chunks of rows">;
  let summary = "rows one after the other, in one tensor";
  let description = [{
    The inverse of `nn.split_rows`.

    Example:

    ```mlir
    %x = nn.concat_rows %a, %b : (tensor<32x16xf32>, tensor<96x16xf32>) -> tensor<2x64x16xf32>
    ```
  }];
  let arguments = (ins Variadic<NSA_FloatTensorOfRank<2>>:$parts);
  let results = (outs NSA_FloatRows:$output);
}

def NN_CountTargetsOp : NN_GraphOp<"count_targets"> {
  let opDocGroup = NSA_DocGroup<"The loss in chunks of rows">;
  let summary = "number of targets that are not ignored";
  let description = [{
    `count = number of targets >= 0`, in fp32; with `over_all`, divided by the
    number of all targets.

    Example:

    ```mlir
    %count = nn.count_targets %targets : (tensor<2x64xi32>) -> tensor<f32>
    ```
  }];
  let arguments = (ins NSA_I32Tensor:$targets, UnitAttr:$over_all);
  let results = (outs NSA_F32Scalar:$count);
  let resultTypes = [{RankedTensorType::get({}, Float32Type::get(context))}];
  let resultNames = [{"count"}];
}

def NN_CrossEntropyChunkOp : NN_GraphOp<"cross_entropy_chunk"> {
  let opDocGroup = NSA_DocGroup<"The loss in chunks of rows">;
  let summary = "losses of some rows, and the gradient of their logits at once";
  let description = [{
    The logits are those of the tokens from `first` on, in the order of
    `targets`. For each row `r` with the target `t = targets[first + r]`:

    ```
    lse          = log sum_v exp(logits[r, v])
    losses[r]    = t >= 0 ? lse - logits[r, t] : 0
    dlogits[r,v] = t >= 0 ? dloss / count * (exp(logits[r, v] - lse) - [v == t]) : 0
    ```

    `count` is that of all targets, or what else the mean is over. Without
    `dloss` there is no second result.

    Example:

    ```mlir
    %losses, %dlogits = nn.cross_entropy_chunk %logits, %targets, %count, %dloss {first = 64 : i64}
        : (tensor<32x256xf32>, tensor<2x64xi32>, tensor<f32>, tensor<f32>) -> (tensor<32xf32>, tensor<32x256xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<2>:$logits, NSA_I32Tensor:$targets,
                       NSA_F32Scalar:$count, Optional<NSA_F32Scalar>:$loss_grad,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$first);
  let results = (outs NSA_F32TensorOfRank<1>:$losses,
                      Optional<NSA_FloatTensorOfRank<2>>:$logits_grad);
  let resultNames = [{"losses", "dlogits"}];
  let resultTypes = [{
    RankedTensorType::get(getDim(adaptor.getLogits(), 0),
                          Float32Type::get(context))
  }];
  let lastResultTypes = [{
    ValueRange(adaptor.getLogits()).take_front(adaptor.getLossGrad() ? 1 : 0)
        .getTypes()
  }];
  let hasVerifier = 1;
}

def NN_MeanLossOp : NN_GraphOp<"mean_loss"> {
  let opDocGroup = NSA_DocGroup<"The loss in chunks of rows">;
  let summary = "mean of the losses of all chunks";
  let description = [{
    `loss = sum_i sum_r losses_i[r] / max(count, 1)` in fp32, in a fixed order.

    Example:

    ```mlir
    %loss = nn.mean_loss %count, %losses0, %losses1 : (tensor<f32>, tensor<64xf32>, tensor<64xf32>) -> tensor<f32>
    ```
  }];
  let arguments = (ins NSA_F32Scalar:$count,
                       Variadic<NSA_F32TensorOfRank<1>>:$losses);
  let results = (outs NSA_F32Scalar:$loss);
  let resultTypes = [{RankedTensorType::get({}, Float32Type::get(context))}];
  let resultNames = [{"loss"}];
}

#endif // NSA_DIALECTS_NN_NNFUSEDOPS_TD
