//===- Passes.td - transformations of the model graph -----------*- tablegen -*-===//

#ifndef NSA_PASSES_GRAPH_PASSES_TD
#define NSA_PASSES_GRAPH_PASSES_TD

include "mlir/Pass/PassBase.td"
include "passes/Graph/EntryPasses.td"

def ExpandModel : Pass<"nsa-expand-model", "::mlir::ModuleOp"> {
  let summary = "Turn the text of a model into one function";
  let description = [{
    Replaces an `nn.module` by a `func.func` of the name of its function to train:
    the bodies of functions take the place of calls, `nn.repeat` is unrolled, and
    every parameter that is read becomes an argument with `nn.role` and `nn.name`,
    in the order in which they are read first. What `nn.log` names becomes a
    result with `nn.statistic`. `config` and `precision` become attributes of the
    module around.

    Operations have the name of their module as location: the layer, the function
    and the value (`layers.3.attention.query`).

    Calls that lead back to their function, parameters of a scope that are read
    outside of an `nn.repeat` of it, and unused parameters are errors. A
    module without an `nn.module` stays as it is.

    Example:

    ```mlir
    nn.module @m {
      nn.scope @layers[0 to 2] {
        nn.parameter @weight : tensor<8x8xf32> = normal 0.02 decay
      }
      nn.func train @model(%x: tensor<4x8xf32>) -> (y: tensor<4x8xf32>) {
        %y = nn.repeat @layers (%h = %x : tensor<4x8xf32>) {
          %z = nn.linear %h, @layers::@weight : tensor<4x8xf32> -> tensor<4x8xf32>
          nn.next %z : tensor<4x8xf32>
        }
        nn.return %y : tensor<4x8xf32>
      }
    }
    ```

    becomes

    ```mlir
    func.func @model(
        %x: tensor<4x8xf32> {nn.name = "x", nn.role = "input"},
        %w0: tensor<8x8xf32> {nn.decay, nn.init = #nn.init<normal, 0.02>, nn.name = "layers.0.weight", nn.role = "parameter"},
        %w1: tensor<8x8xf32> {nn.decay, nn.init = #nn.init<normal, 0.02>, nn.name = "layers.1.weight", nn.role = "parameter"})
        -> (tensor<4x8xf32> {nn.name = "y"}) attributes {nn.train} {
      %0 = nn.matmul %x, %w0 {transpose_rhs} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
      %1 = nn.matmul %0, %w1 {transpose_rhs} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::func::FuncDialect", "::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numOps", "operations", "Number of operations of the function">,
  ];
}

def BindExtents : Pass<"nsa-bind-extents", "::mlir::ModuleOp"> {
  let summary = "Put numbers in place of extents that are known at the call";
  let description = [{
    In the argument of a function, `?` is the batch in the first dimension, the
    length of sequences in another one, or what `nn.dims` calls it; where
    attention or selection takes an argument for keys or values that are blocks,
    it is their number. A number stands for each that no other dimension has, in
    types of arguments and of what follows from them, and `nsa.extents` says what
    for. `?` elsewhere is an error. Tools do this when they read a text.

    Example:

    ```mlir
    func.func @f(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
      %y = nn.silu %x : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
      return %y : tensor<?x?x8xf32>
    }
    ```

    becomes

    ```mlir
    module attributes {nsa.extents = [[7, affine_map<()[s0, s1] -> (s0)>], [10007, affine_map<()[s0, s1] -> (s1)>]]} {
      func.func @f(%x: tensor<7x10007x8xf32> {nn.dims = ["batch", "seq", ""]}) -> tensor<7x10007x8xf32> {
        %y = nn.silu %x : (tensor<7x10007x8xf32>) -> tensor<7x10007x8xf32>
        return %y : tensor<7x10007x8xf32>
      }
    }
    ```
  }];
}

def SetInputShapes : Pass<"nsa-set-input-shapes", "::mlir::ModuleOp"> {
  let summary = "Set the micro-batch and the sequence length of functions";
  let description = [{
    Replaces the dimensions of function arguments that `nn.dims` says follow
    `batch` or `seq`, and infers every result type again, in order, through
    `InferTypeOpInterface`. Types of function results follow.

    An operation that cannot have the new types is an error at its location: its
    own verifier says why (a rotary table too short, say), or its result types do
    not follow from its operands. A size that is given while no argument follows
    it is an error.

    Example with `micro-batch=4 seq-len=128`:

    ```mlir
    func.func private @f(%x: tensor<1x64x32xf32> {nn.dims = ["batch", "seq", ""]}) -> tensor<1x64x32xf32>
    ```

    becomes

    ```mlir
    func.func private @f(%x: tensor<4x128x32xf32> {nn.dims = ["batch", "seq", ""]}) -> tensor<4x128x32xf32>
    ```
  }];
  let options = [
    Option<"microBatch", "micro-batch", "int64_t", /*default=*/"0",
           "Sequences in a micro-batch, 0 to keep what is written">,
    Option<"seqLen", "seq-len", "int64_t", /*default=*/"0",
           "Tokens in a sequence, 0 to keep what is written">,
  ];
  let statistics = [
    Statistic<"numArguments", "arguments", "Number of arguments resized">,
    Statistic<"numOps", "operations", "Number of operations with new types">,
  ];
}

def ReturnSelections : Pass<"nsa-return-selections", "::mlir::ModuleOp"> {
  let summary = "Make selected blocks results of entries";
  let description = [{
    In `@forward`, `@prefill` and `@decode`, the indices of each `nsa.select` and
    `nsa.decode_select` become results `selection.0`, `selection.1`, ..., in
    `@decode` `next_selection.0`, ..., in the order of the layers that select. A
    module in which nothing does is an error.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
}

def ReplaySelections : Pass<"nsa-replay-selections", "::mlir::ModuleOp"> {
  let summary = "Make selected blocks inputs of training";
  let description = [{
    In `@accumulate`, and what is made of it, inputs `selection.0`, `selection.1`,
    ..., are in the place of the indices of each `nsa.select`, in the order of the
    layers that select. A module in which nothing does is an error.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
}

def LimitSelection : Pass<"nsa-limit-selection", "::mlir::func::FuncOp"> {
  let summary = "Select no more blocks than the sequence has";
  let description = [{
    A `count` of `nsa.select` beyond the blocks of the sequence only pads the
    indices with -1, and every reader takes time for the padding. Operations of
    the dialect that read such indices get those of an `nsa.select` of as many
    blocks as there are, which names the same blocks. Other readers, such as the
    function's results, keep the type that they have.

    Example, where a sequence of 64 tokens has 4 blocks:

    ```mlir
    %indices = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 9>)
        : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x9xi32>
    ```

    becomes

    ```mlir
    %indices = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 4>)
        : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x4xi32>
    ```
  }];
  let statistics = [
    Statistic<"numLimited", "selections", "Number of selections limited">,
  ];
}

def AssignOptimizers : Pass<"nsa-assign-optimizers", "::mlir::func::FuncOp"> {
  let summary = "Assign another optimizer where the chosen one does not fit";
  let description = [{
    Muon is for matrices from hidden states to hidden states. In a
    function that is trained, each parameter that is none gets the attribute
    `nn.optimizer` with the name of the optimizer's companion, which is AdamW:
    tensors of another rank than 2, tables that `nn.embedding` reads, and what
    gives the logits of tokens and gates. A parameter that has the attribute
    keeps it. For an optimizer without a companion nothing is done.

    Example: with `optimizer=muon`,

    ```mlir
    func.func @f(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}, ...) attributes {nn.train}
    ```

    becomes

    ```mlir
    func.func @f(%w: tensor<4xf32> {nn.name = "w", nn.optimizer = "adamw", nn.role = "parameter"}, ...) attributes {nn.train}
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"optimizer", "optimizer", "std::string",
           /*default=*/"::nsa::training::defaultOptimizer",
           "The optimizer: the name of its operation without `nn.`">,
  ];
  let statistics = [
    Statistic<"numAssigned", "assigned", "Number of parameters that got another">,
  ];
}

def MergeProjections : Pass<"nsa-merge-projections", "::mlir::ModuleOp"> {
  let summary = "Make one matmul of projections of the same value";
  let description = [{
    Matmuls of one value with several parameters `[out, in]` become one matmul
    with an `nn.flatten` of the parameters, in the order of the arguments, of which
    each reader has the columns that it had. Differentiation then makes one
    matmul for the gradient of the value and one for those of the parameters.

    Parameters are merged if they are f32 matrices whose elements are a multiple
    of 16 (else there is a gap between them), and all with or all without weight
    decay, and of one optimizer. A parameter whose rows are no multiple of what a machine multiplies is left out: the
    columns after its own, and all rows of the matmul, would begin at odd
    addresses. What shares its left-hand side with others and is left alone is a
    missed remark with the reason.

    Example:

    ```mlir
    %q = nn.matmul %x, %wq {transpose_rhs} : (tensor<2x64x32xf32>, tensor<32x32xf32>) -> tensor<2x64x32xf32>
    %k = nn.matmul %x, %wk {transpose_rhs} : (tensor<2x64x32xf32>, tensor<16x32xf32>) -> tensor<2x64x16xf32>
    ```

    becomes

    ```mlir
    %w = nn.flatten %wq, %wk in ["wq", "wk"]
        : (tensor<32x32xf32>, tensor<16x32xf32>) -> tensor<48x32xf32>
    %y = nn.matmul %x, %w {transpose_rhs} : (tensor<2x64x32xf32>, tensor<48x32xf32>) -> tensor<2x64x48xf32>
    %q, %k = nn.split %y {sizes = array<i64: 32, 16>}
        : (tensor<2x64x48xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x16xf32>)
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numMerged", "merged", "Number of matmuls merged">,
  ];
}

def Precision : Pass<"nsa-precision", "::mlir::ModuleOp"> {
  let summary = "Compute in a narrower type where operations allow it";
  let description = [{
    Inserts `nn.cast` before the operands of functions marked `nn.train`, as
    each operation's `PrecisionOpInterface` asks: `Compute` operands become the
    compute type, `Full` operands f32, `Any` operands stay. Result types are
    inferred again. An operation without the interface keeps the types it was
    written with. A value is cast to a type once, before its first user.

    Arguments and results of the function keep their types, so parameters are
    fp32 master weights and the loss is fp32. The pass runs before
    differentiation: the adjoint of a cast is a cast, so gradients of parameters
    are fp32 too.

    Small gradients underflow in f16: with `fp16`, the function gets an
    argument `loss_scale`, persistent, which is the gradient of the loss
    (`nn.seed`). It starts at 65,536; the optimizer divides by it and updates
    it (dynamic loss scaling).

    Functions without `nn.train` are compiled with the types that they are
    written with. The module's `nn.precision` holds unless the option says another
    one; `fp32`, which it is without either, changes nothing. Another precision is
    an error when no function is marked `nn.train`.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"precision", "precision", "::nsa::ComputePrecision",
           /*default=*/"::nsa::ComputePrecision::Model", "The compute type",
           "::nsa::getPrecisionValues()">,
  ];
  let statistics = [Statistic<"numCasts", "casts", "Number of casts inserted">];
}

def Fuse : Pass<"nsa-fuse", "::mlir::ModuleOp"> {
  let summary = "Fuse operations into fewer commands";
  let description = [{
    - `nn.add` of an `nn.matmul` that has no other reader becomes the
      accumulator of the matmul, if nothing reads the other term later: the
      matmul is added to it where it lies. This covers gradients of weights
      and sums of gradients of a value with several readers. Where the rows of
      one matmul are added to several gradients, those lie one after the other
      and are its accumulator as an `nn.flatten`.
    - Elementwise operations join what computes their operands or reads their
      results element by element, in an `nn.fused`: a residual sum and the norm
      of it, the gradient of a norm and the sum with the gradient of the
      residual, chains of casts, activations and sums. At most one operation of
      an `nn.fused` is not elementwise. Every value keeps its rounding, so the
      bits stay the same.
    - Sums over rows that are added to persistent tensors (gradients of the
      weights of norms) stay partial until the last of them is there; one
      `nn.accumulate_rows` then adds all of them, in the same order.
    - Casts of parameters to the compute type become one `nn.cast_all` for up to
      128 of them.
    - Elementwise updates by one optimizer with the same attributes and scalars
      become one on `nn.flatten`s of persistent tensors, bitwise the same; `nn.gradient_norm` and the fills of
      gradients become one each on the flat group of all gradients.

    Each opportunity that is passed over is a missed remark with the reason
    (`--remarks-filter-missed=nsa-fuse`).

    Example:

    ```mlir
    %dw = nn.matmul %x, %dy {transpose_lhs} : (tensor<64x32xf32>, tensor<64x48xf32>) -> tensor<32x48xf32>
    %sum = nn.add %grad, %dw : (tensor<32x48xf32>, tensor<32x48xf32>) -> tensor<32x48xf32>
    ```

    becomes

    ```mlir
    %sum = nn.matmul %x, %dy, %grad {transpose_lhs}
        : (tensor<64x32xf32>, tensor<64x48xf32>, tensor<32x48xf32>) -> tensor<32x48xf32>
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numSums", "sums", "Number of sums inside matmuls">,
    Statistic<"numInKernels", "in-kernels",
              "Number of operations that joined another's kernel">,
    Statistic<"numCasts", "casts", "Number of casts made together">,
    Statistic<"numRowSums", "row-sums",
              "Number of sums over rows that are finished together">,
    Statistic<"numUpdates", "updates",
              "Number of updates, norms and fills made on flat groups">,
  ];
}

def ShardOptimizer : Pass<"nsa-shard-optimizer", "::mlir::ModuleOp"> {
  let summary = "Shard the optimizer states over the ranks";
  let description = [{
    The first stage of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations
    Toward Training Trillion Parameter Models", 2020, section 5.1), for programs
    of `ranks` ranks. Works on updates that `nsa-fuse` has put together: a rank
    takes its part of the weights and of the mean gradients (`nn.slice_shard`),
    has states for that part only, updates it, and gets the parts of the others
    (`nn.all_gather`). The norm is that of all parts.

    Instead of `s.p` for each state `s` and each parameter `p` there are
    `s.decayed` and `s.others`, for parameters with weight decay and without. An
    elementwise update of a single tensor is an error. An update that is not
    elementwise stays as it is, and so does one without weight decay of elements that
    `ranks` does not divide: each rank makes it whole. Where there is no other,
    that is an error.

    Example, for two ranks:

    ```mlir
    %w1, %e1 = nn.lion %w, %e, %g, %norm, %loss, %hyper : (tensor<48xf32>, ...
    ```

    becomes

    ```mlir
    %gp = nn.slice_shard %g {shard = 0 : i64} : tensor<48xf32> -> tensor<24xf32>
    %square = nn.gradient_norm %gp {squared} : (tensor<24xf32>) -> tensor<f32>
    %mean = nn.all_reduce %square : (tensor<f32>) -> tensor<f32>
    %norm = nn.root_of_mean %mean {ranks = 2 : i64} : (tensor<f32>) -> tensor<f32>
    %wp = nn.slice_shard %w {shard = 0 : i64} : tensor<48xf32> -> tensor<24xf32>
    %wp1, %e1 = nn.lion %wp, %e, %gp, %norm, %loss, %hyper : (tensor<24xf32>, ...
    %w1 = nn.all_gather %wp1 {shard = 0 : i64} : tensor<24xf32> -> tensor<48xf32>
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"ranks", "ranks", "int64_t", /*default=*/"1",
           "Ranks of the program: a power of two up to 64; 1 changes nothing">,
    Option<"wholeGradients", "whole-gradients", "bool", /*default=*/"true",
           "Whether ranks have the gradients whole, for updates that are not "
           "elementwise">,
  ];
  let statistics = [
    Statistic<"numSharded", "sharded", "Number of updates of a part">,
  ];
}

def ExpandUpdates : Pass<"nsa-expand-updates", "::mlir::func::FuncOp"> {
  let summary = "Expand updates that are not elementwise to nn operations";
  let description = [{
    An optimizer that is not elementwise says which operations its step is made
    of (`buildUpdate` of `OptimizerOpInterface`). It is called once for all updates
    of a function that have weights of one type, the same attributes and the same
    scalars, so that matmuls of equal shapes can be one batch.

    Example:

    ```mlir
    %w1, %m1 = nn.muon %w, %m, %g, %norm, %loss, %hyper : (tensor<4x8xf32>, ...
    ```

    becomes, with four more iterations,

    ```mlir
    %m1, %u = nn.momentum %m, %g, %norm, %loss, %hyper : (tensor<4x8xf32>, ...
    %x = nn.normalize %u {batch = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %a = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 1 : i64, beta = 0.0 : f64, transpose_rhs} : ... -> tensor<4x4xf32>
    %b = nn.batch_matmul %a, %a, %a {alpha = 2.0315 : f64, batch = 1 : i64, beta = -4.775 : f64} : ... -> tensor<4x4xf32>
    %x1 = nn.batch_matmul %b, %x, %x {alpha = 1.0 : f64, batch = 1 : i64, beta = 3.4445 : f64} : ... -> tensor<4x8xf32>
    %w1 = nn.take_step %w, %x1, %norm, %loss, %hyper {scale = 0.5657 : f64} : (tensor<4x8xf32>, ...
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numExpanded", "expanded", "Number of updates replaced">,
  ];
}

def FuseAttention : Pass<"nsa-fuse-attention", "::mlir::func::FuncOp"> {
  let summary = "Fuse the branches of attention into fewer launches";
  let description = [{
    - `nsa.combine` and the `nsa.attention` of its branches become one `nsa.fused`:
      one branch to the blocks of indices and, on CPUs, any to tokens, of the same
      queries; on GPUs they have other tiles. Outputs of the other branches are
      inputs of it. Those of its own are results if something else, the gradient,
      reads them. Where the branch to blocks gathers its queries, nothing is fused:
      that takes launches of its own.
    - `nsa.combine_backward`, the gradients of all branches, one of them with
      indices, and the sum of their gradients of the queries become one
      `nsa.fused`. Its kernels, one of rows and one of each branch's keys, read the
      gradient of the sum: no kernel of the operations inside does, and the
      gradients of the branches' outputs are never in memory. Values computed again
      for one of them move before it. `nn.rotary` that turns gradients of queries
      and keys back joins them.
    - `nsa.compress` of the keys and of the values of one attention become one
      `nsa.compress_key_value` if they are of one kind, with the rotation of the
      compressed keys; so do their gradients.
    - `nn.gate` and `nn.gate_backward` join the sum and its gradient. A gate that
      something else reads is also computed on its own.
    - `nn.rotary` of the queries becomes part of `nsa.attention` to rows of blocks,
      which reads each of them once, and leaves them rotated for the other
      branches, with the keys of these: `nsa.rotary_attention`. Rotating keys
      where they are attended to would rotate them once per tile of queries.

    The pass runs after recomputation. It changes the rounding of results, the
    same way under every recomputation policy, and never that of what
    `nsa.select` reads. Each opportunity that is passed over is a missed remark
    with the reason (`--remarks-filter-missed=nsa-fuse-attention`).

    Example:

    ```mlir
    %slc, %l0 = nsa.attention %q, %ks, %vs visible(#nsa.selected<block = 16>, %i : ...) : ...
    %win, %l1 = nsa.attention %q, %kw, %vw visible(#nsa.window<32>) : ...
    %gates = nn.gate sigmoid %logits, %bias : ...
    %o = nsa.combine %gates, %cmp, %slc, %win : ...
    ```

    becomes

    ```mlir
    %o = nsa.fused %q, %ks, %vs, %i, %kw, %vw, %logits, %bias, %cmp : ... {
    ^bb0(...):
      %slc, %l0 = nsa.attention ... visible(#nsa.selected<block = 16>, ...) : ...
      %win, %l1 = nsa.attention ... visible(#nsa.window<32>) : ...
      %gates = nn.gate sigmoid ... : ...
      %sum = nsa.combine %gates, ..., %slc, %win : ...
      nsa.yield %sum : ...
    }
    ```
  }];
  let dependentDialects = ["::nsa::NSADialect"];
  let statistics = [
    Statistic<"numBranches", "branches", "Number of sums of branches fused">,
    Statistic<"numGradients", "gradients",
              "Number of gradients of sums of branches fused">,
    Statistic<"numCompressions", "compressions",
              "Number of compressions of keys and values fused, and gradients">,
    Statistic<"numRotations", "rotations",
              "Number of attentions that rotate what they load, and gradients "
              "that are rotated back where they are stored">,
  ];
}

/// A phase of compilation, by its name.
class PhaseOption<string name, string description>
    : Option<name, name, "::nsa::Phase",
             /*default=*/"::nsa::Phase::Precision", description,
             [{::llvm::cl::values(
               clEnumValN(::nsa::Phase::Precision, "precision", ""),
               clEnumValN(::nsa::Phase::Gradient, "gradient", ""),
               clEnumValN(::nsa::Phase::Optimizer, "optimizer", ""),
               clEnumValN(::nsa::Phase::Kernel, "kernel", ""),
               clEnumValN(::nsa::Phase::Buffer, "buffer", ""),
               clEnumValN(::nsa::Phase::Schedule, "schedule", ""),
               clEnumValN(::nsa::Phase::Collective, "collective", ""),
               clEnumValN(::nsa::Phase::Plan, "plan", ""),
               clEnumValN(::nsa::Phase::Layout, "layout", ""),
               clEnumValN(::nsa::Phase::NVVM, "nvvm", ""),
               clEnumValN(::nsa::Phase::Binary, "binary", ""))}]>;

def RequirePhase : Pass<"nsa-require-phase", "::mlir::ModuleOp"> {
  let summary = "Refuse IR that a phase cannot begin with";
  let description = [{
    Runs before a phase that runs alone. An operation that the phase before
    should have removed is an error that names that phase; nothing is changed.

    Example: `--nsa-phase-buffer` on

    ```mlir
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    says that `nn.silu` is nothing that phase buffer takes, and to run
    `nsa-phase-kernel` first.
  }];
  let options = [
    PhaseOption<"phase", "The phase that is about to run">,
    PhaseOption<"after", "The phase that has to have run">,
  ];
}

def VerifyPhase : Pass<"nsa-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Verify the IR after a phase";
  let description = [{
    Reports every operation, type or attribute that a finished phase should have
    removed, at its location. Nothing is changed.

    | after | in functions | besides |
    |---|---|---|
    | precision | nsa, nn, func | shapes are static |
    | gradient | nsa, nn, func | no `nn.train`, no `nn.objective` |
    | optimizer | nsa, nn, func | a persistent tensor has an initial value, and one type, role and initial value in all entries |
    | kernel | tile.launch, nn.matmul, nn.split_heads, nn.merge_heads, nn.recompute_barrier, nn.fill, nn.split, nn.concat, nn.flatten, nn.unflatten, nn.all_reduce, nn.slice_shard, nn.all_gather, func | kernels hold no nsa and nn |
    | buffer, schedule, collective | none left, rt entries only | no tensors outside kernels |
    | plan | as buffer | every tensor and buffer has its slice |
    | layout | as plan | of GPUs; tiles in kernels have layouts, those in shared memory buffers |
    | nvvm | as plan | of GPUs; kernels are functions in the LLVM and NVVM dialects |
    | binary | as plan | no tile kernels |
  }];
  let options = [
    PhaseOption<"phase", "The phase that has run">,
  ];
}

#endif // NSA_PASSES_GRAPH_PASSES_TD
