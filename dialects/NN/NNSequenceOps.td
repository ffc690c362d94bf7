//===- NNSequenceOps.td - sequences of several ranks ------------*- tablegen -*-===//
//
// Included by NNOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNSEQUENCEOPS_TD
#define NSA_DIALECTS_NN_NNSEQUENCEOPS_TD

def NN_SequenceRanks
    : ConfinedAttr<I64Attr, [IntMinValue<2>, IntMaxValue<1024>]>;

def NN_GatherSequenceOp : NN_DifferentiableOp<"gather_sequence"> {
  let opDocGroup = NSA_DocGroup<"Sequences of several ranks">;
  let summary = "whole sequences from the chunks of all ranks that share them";
  let description = [{
    `ranks` ranks of neighbouring numbers share sequences, each cut into
    `2 * ranks` chunks of equal length: rows `2 * b` and `2 * b + 1` of `x` are
    chunks `r` and `2 * ranks - 1 - r` of sequence `b`, where `r` is the number of
    this rank modulo `ranks`, so that causal attention is as much work for each.
    `y` has the chunks of all ranks in the order of their tokens. The gradient is
    `nn.reduce_scatter_sequence`.

    Example:

    ```mlir
    %whole = nn.gather_sequence %x {ranks = 2 : i64} : (tensor<2x16x2x16xf32>) -> tensor<1x64x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input, NN_SequenceRanks:$ranks);
  let results = (outs NSA_FloatTensorOfRank<4>:$output);
  let resultTypes = [{getGatheredType(adaptor.getInput(), adaptor.getRanks())}];
  let resultNames = [{"whole"}];
  let backward = [{
    ReduceScatterSequenceOp::create(builder, getLoc(), resultGrads[0], getRanks())
  }];
  let hasVerifier = 1;
}

def NN_ReduceScatterSequenceOp : NN_GraphOp<"reduce_scatter_sequence"> {
  let opDocGroup = NSA_DocGroup<"Sequences of several ranks">;
  let summary = "this rank's chunks of the sum of sequences over ranks";
  let description = [{
    The sum of `x` over the ranks that share sequences, of which each gets its
    chunks, see `nn.gather_sequence`. The order of the sum is that of the
    communication library, the same in every run.

    Example:

    ```mlir
    %own = nn.reduce_scatter_sequence %dx {ranks = 2 : i64} : (tensor<1x64x2x16xf32>) -> tensor<2x16x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input, NN_SequenceRanks:$ranks);
  let results = (outs NSA_FloatTensorOfRank<4>:$output);
  let resultTypes = [{getScatteredType(adaptor.getInput(), adaptor.getRanks())}];
  let resultNames = [{"own"}];
  let hasVerifier = 1;
}

def NN_GatherHaloOp : NN_DifferentiableOp<"gather_halo"> {
  let opDocGroup = NSA_DocGroup<"Sequences of several ranks">;
  let summary = "chunks of sequences, each with the tokens before it";
  let description = [{
    `x` has chunks of sequences that `ranks` ranks share, as in `nn.gather_sequence`. A
    row of `y` has the `tokens` before a chunk, then the chunk: enough for windows. A
    first chunk, which has none before it, comes first in its row, and the last
    `tokens` of its sequence follow, which no query sees.

    Example:

    ```mlir
    %y = nn.gather_halo %x {ranks = 2 : i64, tokens = 4 : i64} : (tensor<2x16x2x16xf32>) -> tensor<2x20x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input, NN_SequenceRanks:$ranks,
                       NSA_PositiveI64:$tokens);
  let results = (outs NSA_FloatTensorOfRank<4>:$output);
  let resultTypes = [{getHaloType(adaptor.getInput(), adaptor.getTokens())}];
  let resultNames = [{"halo"}];
  let hasVerifier = 1;
}

def NN_ReduceScatterHaloOp : NN_GraphOp<"reduce_scatter_halo"> {
  let opDocGroup = NSA_DocGroup<"Sequences of several ranks">;
  let summary = "the gradient of `nn.gather_halo`, in two parts";
  let description = [{
    `own` is the chunks of `x`; `received`, 0 but for the last `tokens` of each chunk,
    what the rows of other chunks have of these. Their sum is the gradient.

    Example:

    ```mlir
    %own, %received = nn.reduce_scatter_halo %dy {ranks = 2 : i64, tokens = 4 : i64}
        : (tensor<2x20x2x16xf32>) -> (tensor<2x16x2x16xf32>, tensor<2x16x2x16xf32>)
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<4>:$input, NN_SequenceRanks:$ranks,
                       NSA_PositiveI64:$tokens);
  let results = (outs NSA_FloatTensorOfRank<4>:$own,
                      NSA_FloatTensorOfRank<4>:$received);
  let resultTypes = [{
    getHaloType(adaptor.getInput(), -int64_t(adaptor.getTokens())),
    getHaloType(adaptor.getInput(), -int64_t(adaptor.getTokens()))
  }];
  let resultNames = [{"own", "received"}];
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_NN_NNSEQUENCEOPS_TD
