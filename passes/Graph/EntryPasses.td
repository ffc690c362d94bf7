//===- EntryPasses.td - from the model to entry points ----------*- tablegen -*-===//
//
// Included by Passes.td.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_ENTRYPASSES_TD
#define NSA_PASSES_GRAPH_ENTRYPASSES_TD

include "mlir/Pass/PassBase.td"

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

#endif // NSA_PASSES_GRAPH_ENTRYPASSES_TD
