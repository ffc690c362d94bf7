//===- Passes.td - from tensors to a planned host program -------*- tablegen -*-===//

#ifndef NSA_PASSES_HOST_PASSES_TD
#define NSA_PASSES_HOST_PASSES_TD

include "mlir/Pass/PassBase.td"

def Buffer : Pass<"nsa-buffer", "::mlir::ModuleOp"> {
  let summary = "Bufferize functions on tensors into entries on memory";
  let description = [{
    Every public function becomes an `rt.entry`: `tile.launch` becomes
    `rt.launch`, `nn.matmul` becomes `rt.gemm`, `nn.fill` becomes `rt.fill`,
    `nn.split_heads` and `nn.merge_heads` become `rt.view`, `nn.all_reduce`
    becomes start and end of a reduction of its operand's memory, or of a copy if
    the operand has other readers. A tensor value
    becomes a buffer of the arena, or the memory of a named tensor.

    The parts of an `nn.split` are columns of the tensor that is split: a kernel
    that reads one becomes a version of itself for rows at a distance. The
    operands of an `nn.concat` are computed into their columns; and a result
    may take the memory of a part of a tensor without later readers. An operation without
    such a version (a matmul, a kernel that sees its argument as a vector
    in pieces that cross rows) works on a dense copy, with a remark.

    Arguments become named tensors. Those of a persistent role (parameter,
    constant, gradient, state) are shared between functions by `nn.name`;
    a type, role or initial value that differs is an error. Inputs are shared
    where name and type agree, and so are outputs; otherwise the name of the
    entry comes first (`"eval.tokens"`). Without `nn.name`, argument and
    result `i` are called `arg<i>` and `result<i>`.

    A result with `nn.alias` updates its argument. Its producer writes the
    argument's memory directly when no operation needs the old value any more; a
    kernel may read and write the same memory if each program loads an element
    before it stores to it, which is proved on the kernel's body. Elsewhere the
    value is copied at the end, with a remark. In the same way, a launch takes
    over the memory of an operand that has no later reader.

    The entry `init` gives every persistent tensor its `nn.init`;
    gradients and state start at 0 without one.

    Example:

    ```mlir
    func.func @f(%w: tensor<4xf32> {nn.name = "w", nn.role = "state"})
        -> (tensor<4xf32> {nn.alias = "w"}) {
      %0 = tile.launch @double(%w) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    becomes

    ```mlir
    rt.tensor state @w : memref<4xf32> init #nn.init<constant, 0.0>
    rt.entry @init inputs [] outputs [] {
      %w = rt.get @w : memref<4xf32>
      rt.initialize %w : memref<4xf32>
    }
    rt.entry @f inputs [] outputs [] {
      %w = rt.get @w : memref<4xf32>
      rt.launch @double ins(%w : memref<4xf32>) outs(%w : memref<4xf32>)
    }
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let statistics = [
    Statistic<"numCommands", "commands", "Number of commands">,
    Statistic<"numInPlace", "in-place", "Number of updates in place">,
    Statistic<"numCopies", "copies", "Number of copies">,
  ];
}

def Schedule : Pass<"nsa-schedule", "::nsa::rt::EntryOp"> {
  let summary = "List-schedule the commands of an entry for peak memory";
  let description = [{
    Lists the commands in an order that respects every read and write of common
    memory. Among the commands that are ready it takes the one that frees most
    memory compared to what it allocates, the earliest one at a tie; several
    sizes of look-ahead are tried. The order that was there is kept unless another
    has a lower peak.

    Every read keeps its writer; the pass verifies this and fails otherwise.
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let statistics = [
    Statistic<"numMoved", "moved", "Number of commands moved">,
  ];
}

def BucketAllReduce : Pass<"nsa-bucket-all-reduce", "::mlir::ModuleOp"> {
  let summary = "Bucket the all-reduces of adjacent tensors";
  let description = [{
    `nsa-buffer` makes a reduction over ranks for every gradient, before the
    update. Those of tensors that are neighbours in memory become one reduction
    of an `rt.flat_view`, a bucket, in which the commands of backward have written them:
    nothing is copied. From the end of memory to its beginning, which is the
    order in which backward completes gradients, a tensor joins the bucket of
    the next one unless the bucket would grow beyond `bucket-mib`, or the
    tensor is complete before the others are and the bucket would be larger than
    1/32 of that. Buckets are the same in all entries, and so are the sums.

    Example:

    ```mlir
    rt.collective_start all_reduce %g0 : memref<16xf32>
    rt.collective_done %g0 : memref<16xf32>
    rt.collective_start all_reduce %g1 : memref<32xf32>
    rt.collective_done %g1 : memref<32xf32>
    ```

    becomes

    ```mlir
    %0 = rt.flat_view [@grad.w0, @grad.w1] : memref<48xf32>
    rt.collective_start all_reduce %0 : memref<48xf32>
    rt.collective_done %0 : memref<48xf32>
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let options = [
    Option<"bucketMiB", "bucket-mib", "int64_t",
           /*default=*/"25",
           "MiB of gradients that are averaged over ranks as one">,
    Option<"ranks", "ranks", "int64_t", /*default=*/"1",
           "Ranks that keep a part of each bucket: these are multiples of 64 "
           "bytes, and no command has tensors of two buckets as one operand">,
  ];
  let statistics = [
    Statistic<"numBuckets", "buckets", "Number of reductions that are left">,
  ];
}

def ConvertToReduceScatter : Pass<"nsa-convert-to-reduce-scatter", "::mlir::ModuleOp"> {
  let summary = "Convert all-reduces of gradients to reduce-scatters";
  let description = [{
    Where ranks share the optimizer's state (`nsa-shard-optimizer`), a rank needs
    only its part of the mean gradients. Cuts the tensors of a shard at their
    buckets, so that a rank has a part of each bucket, and makes a
    `reduce_scatter` of the reduction of each. Weights are cut and gathered
    alike. A shard stays whole, and its gradients are reduced for all ranks, if
    something else reads them, or a bucket has tensors of another shard.

    Example, for two ranks:

    ```mlir
    rt.collective_start all_reduce %g0 : memref<16xf32>
    rt.collective_done %g0 : memref<16xf32>
    rt.collective_start all_reduce %g1 : memref<32xf32>
    rt.collective_done %g1 : memref<32xf32>
    rt.slice_shard %g, %part {shard = 0 : i64} : memref<48xf32>, memref<24xf32>
    ```

    becomes

    ```mlir
    rt.collective_start reduce_scatter %g0 {ranks = 2 : i64} : memref<16xf32>
    rt.collective_done %g0 : memref<16xf32>
    rt.collective_start reduce_scatter %g1 {ranks = 2 : i64} : memref<32xf32>
    rt.collective_done %g1 : memref<32xf32>
    %0 = rt.view %part at 0 : memref<24xf32> to memref<8xf32>
    rt.slice_shard %g0, %0 {shard = 0 : i64} : memref<16xf32>, memref<8xf32>
    %1 = rt.view %part at 8 : memref<24xf32> to memref<16xf32>
    rt.slice_shard %g1, %1 {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let statistics = [
    Statistic<"numScattered", "scattered", "Number of reductions of parts">,
  ];
}

def ShardGradients : Pass<"nsa-shard-gradients", "::mlir::ModuleOp"> {
  let summary = "Keep only this rank's part of the gradients";
  let description = [{
    The second stage of ZeRO (see `nsa-shard-optimizer`), after
    `nsa-convert-to-reduce-scatter`. In entries that compute gradients, a buffer
    takes the place of each bucket of named gradients: it is set to zero before
    its first command, and reduced and scattered after its last. Two buckets later the
    rank's part is added to a tensor for the parts of all buckets of a shard,
    `grad.decayed` or `grad.others`, that the update reads and sets to zero. So
    each micro-batch reduces its gradients.

    Example:

    ```mlir
    rt.gemm %x, %dy, %g {beta = 1.0 : f32, transpose_lhs} : ...
    rt.collective_start reduce_scatter %g {ranks = 2 : i64} : memref<16xf32>
    rt.collective_done %g : memref<16xf32>
    rt.slice_shard %g, %part {shard = 0 : i64} : memref<16xf32>, memref<8xf32>
    ```

    becomes

    ```mlir
    %0 = rt.buffer : memref<16xf32>
    rt.fill 0.0, %0 : memref<16xf32>
    rt.gemm %x, %dy, %0 {beta = 1.0 : f32, transpose_lhs} : ...
    rt.collective_start reduce_scatter %0 {ranks = 2 : i64} : memref<16xf32>
    rt.collective_done %0 : memref<16xf32>
    rt.slice_shard %0, %1 {shard = 0 : i64} : memref<16xf32>, memref<8xf32>
    rt.launch @accumulate_n8_f32_f32 ins(%1, %grad.decayed : ...) outs(%grad.decayed : memref<8xf32>)
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect", "::nsa::tile::TileDialect"];
  let options = [
    Option<"ranks", "ranks", "int64_t", /*default=*/"1", "Ranks of the program">,
  ];
  let statistics = [
    Statistic<"numBuckets", "buckets", "Number of buckets kept in parts">,
  ];
}

def ShardParameters : Pass<"nsa-shard-parameters", "::mlir::ModuleOp"> {
  let summary = "Keep only this rank's part of the parameters";
  let description = [{
    The third stage of ZeRO, after `nsa-shard-gradients`. Parameters with weight
    decay, which are all matrices, are kept in parts, `weight.decayed`, that the update works on;
    norms and biases stay whole. In every other entry, commands that read tensors
    of one bucket form a group, as long as they read no more than four other buckets
    in between: one in forward and one in backward, as a rule. Each group gets a
    buffer for the bucket and an `all_gather` of it, which begins where the gather
    two groups before is waited for, so that it runs beside commands. Weights that
    are cast before they are used are gathered after the cast.

    The whole parameters lie in memory of the host, from which the new entry
    `scatter` takes the parts.

    With `keep`, for the first and second stage, all uses in an entry are one
    group, and its bucket is a tensor, `gathered.N.TYPE`, instead of a buffer.
    `accumulate` and `step` read what is there; the new entries
    `gather_accumulate` and `gather_step` are these with the gathers, for the
    first micro-batch after an update, and `gather` is the gathers alone, for
    evaluations and samples.

    Example:

    ```mlir
    rt.launch @cast ins(%w : memref<4x4xf32>) outs(%0 : memref<4x4xbf16>)
    rt.gemm %x, %0, %y : ...
    ```

    becomes

    ```mlir
    %0 = rt.view %weight.decayed at 0 : memref<8xf32> to memref<8xf32>
    rt.launch @convert_n8_f32_bf16 ins(%0 : memref<8xf32>) outs(%1 : memref<8xbf16>)
    rt.write_shard %1, %2 {shard = 0 : i64} : memref<8xbf16>, memref<16xbf16>
    rt.collective_start all_gather %2 {ranks = 2 : i64} : memref<16xbf16>
    rt.collective_done %2 : memref<16xbf16>
    %3 = rt.view %2 at 0 : memref<16xbf16> to memref<4x4xbf16>
    rt.gemm %x, %3, %y : ...
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect", "::nsa::tile::TileDialect"];
  let options = [
    Option<"ranks", "ranks", "int64_t", /*default=*/"1", "Ranks of the program">,
    Option<"keep", "keep", "bool", /*default=*/"false",
           "Gather parameters once a step, and keep them until the next">,
  ];
  let statistics = [
    Statistic<"numGathers", "gathers", "Number of gathers made">,
  ];
}

def OverlapAllReduce : Pass<"nsa-overlap-all-reduce", "::nsa::rt::EntryOp"> {
  let summary = "Overlap reductions with the commands of backward";
  let description = [{
    Moves every `rt.collective_start` after the last command before it that
    touches its memory, and its `rt.collective_done` before the first one
    after it that does, so that it runs beside what backward still computes.
    A start waits for the next launch of more than 32 operations a byte, if there is
    one: beside the single wave of large tiles of a matmul it takes more.
    Copies of chunks to and from what is gathered or summed move likewise.
    Collectives over sequences are `grouped` where no such launch lies between their
    starts, nor between their ends, and, if none lies between start and end either, no
    matmul between their starts: the first waits for the last. Keys and values of a
    branch are, and their gradients.
    Every rank runs the same commands, so all start their reductions in one
    order.

    Example:

    ```mlir
    rt.gemm %x, %dy, %g {transpose_lhs} : ...
    rt.launch @other ins(...) outs(...)
    rt.collective_start all_reduce %g : memref<16xf32>
    rt.collective_done %g : memref<16xf32>
    ```

    becomes

    ```mlir
    rt.gemm %x, %dy, %g {transpose_lhs} : ...
    rt.collective_start all_reduce %g : memref<16xf32>
    rt.launch @other ins(...) outs(...)
    rt.collective_done %g : memref<16xf32>
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let statistics = [
    Statistic<"numMoved", "moved", "Number of starts and ends moved">,
    Statistic<"numGrouped", "grouped", "Number of starts grouped with the next">,
  ];
}

def CompressGradients : Pass<"nsa-compress-gradients", "::mlir::ModuleOp"> {
  let summary = "Compress gradients: all-reduce them in bf16";
  let description = [{
    Gradients stay f32 where backward sums them and where the optimizer reads
    them; between ranks goes a copy that is rounded to bf16, half the bytes. A
    kernel rounds the memory of a reduction where that started, and another one
    widens the mean where it ended. One rank alone rounds as well. Losses are
    reduced as they are.

    Example:

    ```mlir
    rt.collective_start all_reduce %g : memref<16xf32>
    rt.launch @other ins(...) outs(...)
    rt.collective_done %g : memref<16xf32>
    ```

    becomes

    ```mlir
    %0 = rt.buffer : memref<16xbf16>
    rt.launch @convert_n16_f32_bf16 ins(%g : memref<16xf32>) outs(%0 : memref<16xbf16>)
    rt.collective_start all_reduce %0 : memref<16xbf16>
    rt.launch @other ins(...) outs(...)
    rt.collective_done %0 : memref<16xbf16>
    rt.launch @convert_n16_bf16_f32 ins(%0 : memref<16xbf16>) outs(%g : memref<16xf32>)
    ```
  }];
  let dependentDialects = ["::nsa::rt::RTDialect", "::nsa::tile::TileDialect"];
  let statistics = [
    Statistic<"numNarrowed", "narrowed", "Number of reductions in bf16">,
  ];
}

def Plan : Pass<"nsa-plan", "::mlir::ModuleOp"> {
  let summary = "Assign every tensor and buffer an offset in memory";
  let description = [{
    Adds the segments `persistent`, `io`, `arena` and `workspace` and gives every
    `rt.tensor` and `rt.buffer` a slice, aligned to 64 bytes.

    - `persistent` holds, in this order, parameters that decay, other
      parameters, the optimizer's states by name, gradients, constants, other state.
    - `io` holds inputs and outputs.
    - `arena` is shared by all entries. In an entry, two buffers share bytes only
      if the last command that touches one comes before the first that touches
      the other.
    - `host` holds parameters that lie on the host.
    - `workspace` holds the fp32 copies that a matmul on narrower types
      needs, or what the option says; matmuls run one after the other and share
      it.

    Buffers that no command touches are erased. A remark compares each entry's
    peak with the largest number of bytes alive at one command.
  }];
  let dependentDialects = ["::nsa::rt::RTDialect"];
  let options = [
    Option<"gemmWorkspace", "gemm-workspace", "uint64_t", /*default=*/"0",
           "Bytes of workspace of every matmul, 0 for what fp32 copies "
           "of narrower operands need">,
  ];
  let statistics = [
    Statistic<"numBuffers", "buffers", "Number of buffers placed">,
    Statistic<"arenaBytes", "arena-bytes", "Size of the arena">,
    Statistic<"liveBytes", "live-bytes",
              "Largest number of bytes alive at one command">,
  ];
}

#endif // NSA_PASSES_HOST_PASSES_TD
