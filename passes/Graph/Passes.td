//===- Passes.td - transformations of the model graph -----------*- tablegen -*-===//

#ifndef NSA_PASSES_GRAPH_PASSES_TD
#define NSA_PASSES_GRAPH_PASSES_TD

include "mlir/Pass/PassBase.td"

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

def DeriveDecode : Pass<"nsa-derive-decode", "::mlir::ModuleOp"> {
  let summary = "Make the entry points of generation from the model";
  let description = [{
    Replaces the function marked `nn.train`, which has an argument `tokens` and a
    result `logits`, by

    - `@prefill`: the model on whole sequences, with the logits of the last token
      of each, at `positions`. What later tokens need is written to caches
      (`nsa.cache_fill`).
    - `@decode`: the same for one more token of each sequence, at `positions`.

    In `@decode`, operations that treat every token alone have one row. Attention
    and selection read caches to which the token's row has been appended
    (`nsa.decode_attention`, `nsa.decode_select`), compression the last tokens of a
    cache; its row is appended to the cache of compressed rows where it completes
    a block. Rotations are those of the position (`nsa.rotary_at`). Any other
    operation on tokens is an error.

    Caches are arguments `cache.0`, `cache.1`, ... of role `state`, which both
    entries update. One has a row for each token of the context, or for each
    compressed block; of keys that only windows see, as many as the longest window,
    rounded up to a multiple of 64; of the input of a compression, those of a
    block. Tables of angles grow to the context.

    With `prefill-chunk`, there are, in place of `@prefill`,

    - `@prefill_part`: so many tokens of one sequence from the position `part_at` on.
      Rows are written to its caches, which attention and selection then read;
      compression reads the tokens from the first block on that the part may
      complete. The caches have a row for each token of the context then.
    - `@copy_prefix`: the rows of one sequence up to `part_last` as those of another.

    With `pages` as well, rows of tokens are in so many pages, of as many rows as a
    selected block has (64 without one), that all sequences share: the input `pages`
    says which are whose. Queries of a part see the rows of its sequence one after
    the other, where `part_position` says. Rows in pages are not copied.

    With `samples`, the function stays, to be trained; there is only `@decode`, for
    one sequence whatever the model's batch. A table of angles that grew is a
    constant of its own, `NAME.context`.
  }];
  let options = [
    Option<"context", "context", "int64_t", "0",
           "Tokens of a sequence that is generated, at most">,
    Option<"samples", "samples", "bool", "false",
           "Whether the model is kept, and generates samples while it is trained">,
    Option<"prefillChunk", "prefill-chunk", "int64_t", "0",
           "Tokens of a prompt that are taken in at once; 0 takes whole sequences">,
    Option<"pages", "pages", "int64_t", "0",
           "Pages that sequences share; 0 gives each the whole context">,
  ];
  let dependentDialects = ["::nsa::nn::NNDialect", "::nsa::NSADialect"];
}

def ChooseTokens : Pass<"nsa-choose-tokens", "::mlir::ModuleOp"> {
  let summary = "Make the entry point of generation that needs no host";
  let description = [{
    Makes `@next` of `@decode`, which chooses the most likely token (`nn.argmax`),
    or draws one by a temperature (`nn.draw`), and its position (`nsa.advance`) for
    its own next run: token and positions are no inputs but states `next.token` and
    `next.positions`, as are the last tokens of each sequence (`next.ids`), the token
    that ends one (`next.end`), a bias of the logits (`next.bias`), the numbers by
    which tokens are drawn (`next.uniforms`), 1 / temperature (`next.inverse`) and
    what restricts the choice (`next.top_k`, `next.top_p`). Logits are no result of it.
  }];
  let options = [
    Option<"context", "context", "int64_t", "0",
           "Tokens of a sequence that is generated, at most">,
  ];
  let dependentDialects = ["::nsa::nn::NNDialect", "::nsa::NSADialect"];
}

def BuildEntries : Pass<"nsa-build-entries", "::mlir::ModuleOp"> {
  let summary = "Make the entry points of training from the model";
  let description = [{
    Replaces the function marked `nn.train`, whose results are named `loss` and
    `logits`, by

    - `@forward`, unless the option says no: only the result `logits`;
    - `@eval`: `loss` and every further result but `logits`;
    - `@accumulate`: the same without results marked `nn.statistic`, and with
      `nn.objective` on `loss`. What it computes is added up over micro-batches
      with different numbers of targets, so the loss is `over_all` of them, not
      their mean, and a result `target_fraction` says which part of them counts.
      The loss must be that of `nn.cross_entropy`, or a sum of several with the
      same targets.

    In each, operations that no result needs are erased, and so are arguments
    without a use: `@forward` has no targets. A parameter that `@accumulate` does
    not use stays, so that differentiation can name it.

    A module without such a function is left alone; more than one is an error, and
    so is a function that already has the name of an entry.
  }];
  let options = [
    Option<"forward", "forward", "bool", "true", "Whether to make @forward">,
  ];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numErased", "erased", "Number of operations erased as dead">,
  ];
}

def ShardSequence : Pass<"nsa-shard-sequence", "::mlir::func::FuncOp"> {
  let summary = "Give each rank two chunks of every sequence";
  let description = [{
    Context parallelism, for programs whose sequences `ranks` ranks share. In the
    entries `@accumulate` and `@eval`, before they are differentiated, tokens and
    targets `[B, S]` become this rank's chunks `[2 * B, S / (2 * ranks)]` of them (see
    `nn.gather_sequence`), and so does all that follows from them token by token. A
    new input `at` `[2 * B, 2]` says of which sequence a row is a chunk, and at
    which position it begins: rotations, attention and selection take it.
    Keys and values of attention, and what compression takes, are gathered to
    whole sequences; compressed rows are made on each rank. A window that is shorter
    than a chunk, and no branch of several, gets the tokens before it (`nn.gather_halo`)
    instead: an input `window_at.H` says where a row's queries begin in its `H` tokens
    and the chunk.

    An operation of whole sequences and of chunks that is no attention is an
    error, and so is a length that `2 * ranks` does not divide.

    Example, for two ranks:

    ```mlir
    %o, %lse = nsa.attention %q, %k, %v visible(#nsa.causal)
        : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    ```

    becomes

    ```mlir
    %ks = nn.gather_sequence %k {ranks = 2 : i64} : (tensor<2x16x2x16xf32>) -> tensor<1x64x2x16xf32>
    %vs = nn.gather_sequence %v {ranks = 2 : i64} : (tensor<2x16x2x16xf32>) -> tensor<1x64x2x16xf32>
    %o, %lse = nsa.attention %q, %ks, %vs visible(#nsa.causal) at(%at : tensor<2x2xi32>)
        : tensor<2x16x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"ranks", "ranks", "int64_t", /*default=*/"1",
           "Ranks that share each sequence; 1 changes nothing">,
  ];
  let statistics = [
    Statistic<"numGathers", "gathers", "Number of tensors that are gathered">,
  ];
}

def Differentiate : Pass<"nsa-differentiate", "::mlir::func::FuncOp"> {
  let summary = "Append gradients to functions that have an objective";
  let description = [{
    Reverse-mode differentiation of a straight-line function. The result marked
    `nn.objective` is differentiated with respect to the arguments of role
    `parameter` or, where an argument has the unit attribute `nn.differentiate`,
    with respect to exactly the arguments that have it. One gradient for each is
    appended to the results, in order, named `grad.<argument>` and of the type
    of the argument. The marker is removed.

    The adjoints come from `DifferentiableOpInterface` and are built in the same
    function, after the primal operations: a use in the backward graph is what
    saves a value. Gradients of a value with several users are summed by `nn.add`,
    in the reverse order of the users. Where element types differ, the narrower
    is cast. Every operation of the backward graph has the location of its primal,
    tagged `backward`.

    The gradient of a scalar objective starts from 1. For any other objective it
    is a new last argument, named `grad.<result>`.

    With results marked `nn.kept` the function becomes one of its gradients alone:
    what is marked comes as a last argument of its name, the objective if gradients
    need it, and the rest of the primal operations is there only where they do. Without the marks
    and without `nn.objective`, the function is the forward pass that keeps them.

    Errors: an operation between argument and objective without the interface,
    an argument that does not reach the objective, `nn.differentiate` without an
    objective, more than one objective, more than one block.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let statistics = [
    Statistic<"numAdjoints", "adjoints", "Number of operations differentiated">,
    Statistic<"numSums", "sums", "Number of sums of gradients">,
  ];
}

def Recompute : Pass<"nsa-recompute", "::mlir::func::FuncOp"> {
  let summary = "Rematerialize forward values in the backward graph";
  let description = [{
    Works on functions that `nsa-differentiate` has extended: what has a location
    tagged `backward` is the backward graph, the rest the forward graph. A forward
    value with a use in the backward graph occupies memory until then. The pass
    clones operations of the forward graph before the first backward operation
    that needs them, and lets the backward graph use the clones. Clones read what
    was kept through `nn.recompute_barrier`, so that they stay apart from the
    operations that they repeat; their locations are tagged `recompute`. The same
    operations on the same values give the same results, bit by bit.

    | policy | computed again |
    |---|---|
    | `none` | nothing |
    | `cheap` | operations with the trait `CheapToRecompute`, in chains, if that keeps fewer bytes |
    | `block` | everything between the residual input of a layer and its output, and `cheap` outside of layers |

    Results of operations with the trait `KeptForBackward` (attention outputs, lse
    and block indices) are always kept, and so are results of the function.

    Layers are found in the graph: after some operations exactly one value is
    needed by the rest of the forward graph. A range of several operations
    between two such points lies inside a layer, and a layer begins where the
    next range contains an operation that is kept. Embedding, last norm,
    head and loss are ranges of one operation and belong to no layer.

    With `budget-mib` the pass stops, in the order of the forward graph, as soon as
    the values kept for the backward graph need no more than that; `block` then
    treats as few layers, the first ones, as it takes, and the rest as `cheap`. If
    they need more even so, a remark says how much.

    Example with `policy=cheap`:

    ```mlir
    %y = nn.silu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %0 = nn.matmul %y, %w : ...
    %dw = nn.matmul %y, %dy {transpose_lhs} : ... loc("backward")
    %dx = nn.silu_backward %1, %x : ... loc("backward")
    ```

    becomes

    ```mlir
    %y = nn.silu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %0 = nn.matmul %y, %w : ...
    %kept = nn.recompute_barrier %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y1 = nn.silu %kept : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %dw = nn.matmul %y1, %dy {transpose_lhs} : ...
    %dx = nn.silu_backward %1, %x : ...
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"policy", "policy", "::nsa::RecomputePolicy",
           /*default=*/"::nsa::RecomputePolicy::None", "What is computed again",
           "::nsa::getRecomputeValues()">,
    Option<"budgetMiB", "budget-mib", "int64_t", /*default=*/"0",
           "MiB that values kept for backward may need; 0 applies the policy "
           "everywhere">,
  ];
  let statistics = [
    Statistic<"numClones", "clones", "Number of operations computed again">,
    Statistic<"numBarriers", "barriers", "Number of barriers inserted">,
  ];
}

def Optimizer : Pass<"nsa-optimizer", "::mlir::ModuleOp"> {
  let summary = "Make gradient accumulation and the update of the optimizer";
  let description = [{
    Works on the function `@accumulate` as `nsa-differentiate` leaves it; a module
    without one is left alone. It adds persistent tensors, which are arguments with
    a role: for each parameter `p` the gradient `grad.p` and what the optimizer
    keeps (`OptimizerOpInterface`), `s.p` for a state `s`, and for all the sums
    `loss_sum` and `target_fraction_sum`. Gradients and sums start at 0, states at
    what the optimizer says.

    - `@accumulate` adds to them: `grad.p' = grad.p + g`,
      `loss_sum' = loss_sum + loss`, and its result `target_fraction`, or 1 if it
      has none. Its other plain results, `loss` first, stay.
    - `@update` takes the input `hyper`, the numbers of a step, replaces gradients and
      sums by their means over all ranks (`nn.all_reduce`), divides what `hyper`
      scales gradients with by `target_fraction_sum` (`nn.average_step`), updates
      parameters and states, and sets gradients and sums to 0. Ranks that
      begin alike stay alike. Its plain results are
      `grad_norm`, the L2 norm of the accumulated gradients before `grad_scale` and
      clipping, and `loss_sum_out` and `target_fraction_sum_out`, the sums before they
      are reset. A norm or mean loss that is not finite leaves parameters and
      states as they are.
    - `@step` is `@accumulate` followed by `@update` in one function, for the last
      or only micro-batch of an optimizer step.

    A result with `nn.alias` replaces the argument of that name when the function
    ends. Weight decay applies where the parameter has `nn.decay`; a parameter with
    `nn.optimizer` is updated by that one.

    There is no function for initial values: each persistent argument says in
    `nn.init` what it starts from, and the buffer phase makes `@init` of that
    (`nsa-verify-phase` checks that each says so).
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"optimizer", "optimizer", "std::string",
           /*default=*/"::nsa::training::defaultOptimizer",
           "The optimizer: the name of its operation without `nn.`">,
  ];
  let statistics = [
    Statistic<"numParameters", "parameters", "Number of parameters updated">,
  ];
}

def ChunkLoss : Pass<"nsa-chunk-loss", "::mlir::func::FuncOp"> {
  let summary = "Compute the loss in chunks of rows";
  let description = [{
    The logits of a large vocabulary are the largest tensor of a model, and their
    gradient is as large. Where `nn.cross_entropy` reads an `nn.matmul` that
    nothing else reads but its backward operation, and the gradient of the logits
    is read by matmuls only, the tokens are cut into chunks of rows. For each
    chunk, one after the other: the matmul with the weight of the head, the
    losses and at once the gradient of the logits, its matmuls. Gradients of the
    weight are summed chunk by chunk; those of the input are put together.

    The logits of a chunk and their gradient take no more than `limit-mib`, as
    long as that needs no more than 8 chunks, so that the number of commands
    is bounded for any batch and sequence. Logits within the limit stay as they
    are, and so do those that are a result of the function.

    Values that backward computes again are taken from forward: the loss and its gradient are computed
    together.

    Example:

    ```mlir
    %logits = nn.matmul %x, %w : ...
    %loss, %lse, %count = nn.cross_entropy %logits, %targets : ...
    %dlogits = nn.cross_entropy_backward %dloss, %logits, %targets, %lse, %count : ...
    %dx = nn.matmul %dlogits, %w {transpose_rhs} : ...
    %dw = nn.matmul %x, %dlogits {transpose_lhs} : ...
    ```

    becomes, with two chunks,

    ```mlir
    %count = nn.count_targets %targets : ...
    %x0, %x1 = nn.split_rows %x : ...
    %logits0 = nn.matmul %x0, %w : ...
    %losses0, %dlogits0 = nn.cross_entropy_chunk %logits0, %targets, %count, %dloss {first = 0 : i64} : ...
    %dx0 = nn.matmul %dlogits0, %w {transpose_rhs} : ...
    %dw0 = nn.matmul %x0, %dlogits0 {transpose_lhs} : ...
    %logits1 = nn.matmul %x1, %w : ...
    %losses1, %dlogits1 = nn.cross_entropy_chunk %logits1, %targets, %count, %dloss {first = 64 : i64} : ...
    %dx1 = nn.matmul %dlogits1, %w {transpose_rhs} : ...
    %dw = nn.matmul %x1, %dlogits1, %dw0 {transpose_lhs} : ...
    %loss = nn.mean_loss %count, %losses0, %losses1 : ...
    %dx = nn.concat_rows %dx0, %dx1 : ...
    ```
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"limitMiB", "limit-mib", "int64_t",
           /*default=*/"256",
           "MiB that logits and their gradient may take at once">,
  ];
  let statistics = [
    Statistic<"numChunks", "chunks", "Number of chunks made">,
  ];
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
