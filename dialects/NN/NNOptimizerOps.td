//===- NNOptimizerOps.td - operations of an update --------------*- tablegen -*-===//
//
// Included by NNOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNOPTIMIZEROPS_TD
#define NSA_DIALECTS_NN_NNOPTIMIZEROPS_TD

//===----------------------------------------------------------------------===//
// Optimizer
//===----------------------------------------------------------------------===//

def NN_AllReduceOp : NN_GraphOp<"all_reduce"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "mean over all ranks";
  let description = [{
    `y[i] = sum over ranks of x[i] / number of ranks`, the same bits on all
    ranks. On one rank, `y = x`. How many ranks there are is known when the
    program runs.

    Example:

    ```mlir
    %mean = nn.all_reduce %g : (tensor<32x48xf32>) -> tensor<32x48xf32>
    ```
  }];
  let arguments = (ins NSA_F32Tensor:$input);
  let results = (outs NSA_F32Tensor:$output);
  let resultTypes = [{adaptor.getInput().getType()}];
  let resultNames = [{"mean"}];
}

def NN_SliceShardOp : NN_NamedOp<"slice_shard"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "this rank's shard of a tensor";
  let description = [{
    As many elements as each of `R` ranks has: the result's size is the
    operand's divided by `R`. Which ones they are is decided when the tensor is
    cut into buckets (`nsa-convert-to-reduce-scatter`), alike for all tensors of the
    same `shard`.

    Example:

    ```mlir
    %part = nn.slice_shard %w {shard = 0 : i64} : tensor<64xf32> -> tensor<16xf32>
    ```
  }];
  let arguments = (ins NSA_F32Tensor:$input,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$shard);
  let results = (outs NSA_F32Tensor:$part);
  let resultNames = [{"part"}];
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($part)";
  let hasVerifier = 1;
}

def NN_AllGatherOp : NN_NamedOp<"all_gather"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "a tensor gathered from the shards of all ranks";
  let description = [{
    The inverse of `nn.slice_shard`: every rank gets the parts of all.

    Example:

    ```mlir
    %whole = nn.all_gather %part {shard = 0 : i64} : tensor<16xf32> -> tensor<64xf32>
    ```
  }];
  let arguments = (ins NSA_F32Tensor:$part,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$shard);
  let results = (outs NSA_F32Tensor:$whole);
  let resultNames = [{"whole"}];
  let assemblyFormat = "$part attr-dict `:` type($part) `->` type($whole)";
  let hasVerifier = 1;
}

def NN_RootOfMeanOp : NN_GraphOp<"root_of_mean"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "square root of a sum over ranks";
  let description = [{
    `root = sqrt(ranks * mean)`: the norm of what the ranks have together, from
    the mean over ranks of their sums of squares.

    Example:

    ```mlir
    %norm = nn.root_of_mean %mean {ranks = 4 : i64} : (tensor<f32>) -> tensor<f32>
    ```
  }];
  let arguments = (ins NSA_F32Scalar:$mean, NSA_PositiveI64:$ranks);
  let results = (outs NSA_F32Scalar:$root);
  let resultTypes = [{adaptor.getMean().getType()}];
  let resultNames = [{"norm"}];
}

def NN_GradientNormOp : NN_GraphOp<"gradient_norm"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "L2 norm of all gradients together";
  let description = [{
    `norm = sqrt(sum_i sum_j gradients_i[j]^2)` in fp32, in a fixed order. If
    `squared`, the sum itself.

    Example:

    ```mlir
    %norm = nn.gradient_norm %g0, %g1 : (tensor<32x48xf32>, tensor<32xf32>) -> tensor<f32>
    ```
  }];
  let arguments = (ins Variadic<NSA_F32Tensor>:$gradients, UnitAttr:$squared);
  let results = (outs NSA_F32Scalar:$norm);
  let resultTypes = [{RankedTensorType::get({}, Float32Type::get(context))}];
  let resultNames = [{"norm"}];
}

def NN_AverageStepOp : NN_GraphOp<"average_step"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "sums of a step as means over its targets";
  let description = [{
    Losses and gradients of micro-batches are sums over targets, divided by the
    number of all targets of a micro-batch (`over_all` of `nn.cross_entropy`).
    `count` is the sum of what of these targets is not ignored:

    ```
    mean_hyper = hyper, with grad_scale / count
    mean_loss  = loss / count
    ```

    Without a target the loss is not finite: a step that reads it updates
    nothing, see `nn.adamw`.

    Example:

    ```mlir
    %h, %l = nn.average_step %hyper, %loss, %count
        : (tensor<8xf32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<f32>)
    ```
  }];
  let arguments = (ins NSA_F32TensorOfRank<1>:$hyper, NSA_F32Scalar:$loss,
                       NSA_F32Scalar:$count);
  let results = (outs NSA_F32TensorOfRank<1>:$mean_hyper,
                      NSA_F32Scalar:$mean_loss);
  let resultTypes = [{
    adaptor.getHyper().getType(),
    adaptor.getLoss().getType()
  }];
  let resultNames = [{"hyper", "loss"}];
  let hasVerifier = 1;
}

def NN_UpdateLossScaleOp : NN_GraphOp<"update_loss_scale"> {
  let opDocGroup = NSA_DocGroup<"Training step">;
  let summary = "update of the dynamic loss scale";
  let description = [{
    Gradients of f16 activations are computed of `scale * loss`, so that small
    ones do not vanish (Micikevicius et al., "Mixed Precision Training", 2018,
    section 3.2); here they are divided by it again and the scale follows what
    they allow. With `ok` if `norm`, that of the scaled gradients, and `loss`
    are finite, and `full = streak + 1 >= growth_interval`:

    ```
    unscaled_hyper = hyper, with grad_scale / scale and step - skipped
    unscaled_norm  = norm / scale
    new_scale      = ok ? (full ? min(2 * scale, 2^24) : scale) : scale / 2
    new_streak     = ok and not full ? streak + 1 : 0
    new_skipped    = ok ? skipped : skipped + 1
    ```

    A step that is not `ok` updates no weight, see `nn.adamw`, and is none of
    those that its bias correction counts.

    Example:

    ```mlir
    %h, %n, %s, %k, %d = nn.update_loss_scale %hyper, %norm, %loss, %scale, %streak, %skipped {growth_interval = 2000 : i64}
        : (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
        -> (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
    ```
  }];
  let arguments = (ins NSA_F32TensorOfRank<1>:$hyper, NSA_F32Scalar:$norm,
                       NSA_F32Scalar:$loss, NSA_F32Scalar:$scale,
                       NSA_F32Scalar:$streak, NSA_F32Scalar:$skipped,
                       NSA_PositiveI64:$growth_interval);
  let results = (outs NSA_F32TensorOfRank<1>:$unscaled_hyper,
                      NSA_F32Scalar:$unscaled_norm, NSA_F32Scalar:$new_scale,
                      NSA_F32Scalar:$new_streak, NSA_F32Scalar:$new_skipped);
  let resultTypes = [{
    adaptor.getHyper().getType(), adaptor.getNorm().getType(), adaptor.getScale().getType(),
    adaptor.getStreak().getType(), adaptor.getSkipped().getType()
  }];
  let resultNames = [{"hyper", "norm", "scale", "streak", "skipped"}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Persistent tensors that lie one after the other
//===----------------------------------------------------------------------===//

/// The elements of a flat group, as a vector or in another shape.
def NN_FlatGroup : ConfinedType<NSA_F32Tensor, [],
    "statically shaped tensor of 32-bit float values",
    "::mlir::RankedTensorType">;

def NN_FlattenOp : NN_NamedOp<"flatten", [
    NSA_ViewOfArguments,
    DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Flat groups of tensors">;
  let summary = "view of persistent tensors as one";
  let description = [{
    The elements of the operands one after the other, each followed by zeros up
    to a multiple of 16 elements. Operand `i` is the argument called
    `tensors[i]`, or a value that is computed into its memory. The memory plan
    lays these tensors out in this order, so nothing is copied.

    The result is a vector or another shape of as many elements: matrices whose
    elements are a multiple of 16 are one matrix together. Only that has a
    gradient, `nn.split` by rows.

    Example:

    ```mlir
    %g = nn.flatten %g0, %g1 in ["grad.w0", "grad.w1"]
        : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<48xf32>
    %w = nn.flatten %w0, %w1 in ["w0", "w1"]
        : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<10x8xf32>
    ```
  }];
  let arguments = (ins Variadic<NSA_F32Tensor>:$parts, StrArrayAttr:$tensors);
  let results = (outs NN_FlatGroup:$output);
  let resultNames = [{"flat"}];
  let assemblyFormat = [{
    $parts `in` $tensors attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def NN_UnflattenOp : NN_Op<"unflatten", [
    Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Flat groups of tensors">;
  let summary = "new values of persistent tensors from one";
  let description = [{
    The inverse of `nn.flatten`: the operand is computed into the memory of the
    arguments called `tensors`, of which result `i` is the new value.

    Example:

    ```mlir
    %g0, %g1 = nn.unflatten %g in ["grad.w0", "grad.w1"]
        : (tensor<48xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
    ```
  }];
  let arguments = (ins NN_FlatGroup:$input, StrArrayAttr:$tensors);
  let results = (outs Variadic<NSA_F32Tensor>:$parts);
  let assemblyFormat = [{
    $input `in` $tensors attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_NN_NNOPTIMIZEROPS_TD
