//===- Passes.td - conversions between dialects -----------------*- tablegen -*-===//

#ifndef NSA_PASSES_KERNELS_PASSES_TD
#define NSA_PASSES_KERNELS_PASSES_TD

include "mlir/Pass/PassBase.td"

/// Makes kernels over tiles.
class NSA_KernelPass<string argument> : Pass<argument, "::mlir::ModuleOp"> {
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::nsa::tile::TileDialect"
  ];
}

def SetMachine : Pass<"nsa-set-machine", "::mlir::ModuleOp"> {
  let summary = "Say what runs kernels";
  let description = [{
    Writes the attribute `nsa.machine` of the module, by which other passes cut
    kernels into programs; takes it away for a CPU, which has one processor.
  }];
  let dependentDialects = ["::nsa::NSADialect"];
  let options = [
    Option<"mmaRows", "mma-rows", "int64_t", /*default=*/"0",
           "Rows of one MMA: 16, 64 of warpgroups, or 0 for a CPU">,
    Option<"processors", "processors", "int64_t", /*default=*/"132",
           "Multiprocessors of a GPU; those of an H100 or H200">,
  ];
}

def NoteCompressedExtents
    : Pass<"nsa-note-compressed-extents", "::mlir::ModuleOp"> {
  let summary = "Say what numbers of compressed blocks stand for";
  let description = [{
    Adds to `nsa.extents` of the module the numbers of blocks that compressions of a
    sequence have, where its length is no constant.
  }];
  let dependentDialects = ["::nsa::NSADialect"];
}

def LaunchDecodeSteps : NSA_KernelPass<"nsa-launch-decode-steps"> {
  let summary = "Merge the launches of a decoding step";
  let description = [{
    On GPUs, turns the operations of one token into a few kernels that fill the
    machine: cache writes; attention and scores, split along the cached rows; and
    the sum of all splits and branches.
  }];
}

def LaunchVectorMatmuls : NSA_KernelPass<"nsa-launch-vector-matmuls"> {
  let summary = "Turn matmuls of a few rows into kernels";
  let description = [{
    On GPUs, makes kernels of the matmuls of a few rows by a matrix in @prefill and
    @decode, which the library has no fast form for, and of what computes these
    rows.
  }];
}

def UseLibraryTypes : Pass<"nsa-use-library-types", "::mlir::ModuleOp"> {
  let summary = "Give matmuls the types that a GPU's library has";
  let description = [{
    cuBLASLt's matmuls have results in fp32 or in the type of their operands. On
    GPUs, one with another result, such as bf16 of fp32 operands, becomes one in
    fp32 and an `nn.cast`.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
}

def RotateWithCompression : NSA_KernelPass<"nsa-rotate-with-compression"> {
  let summary = "Rotate keys where they are compressed";
  let description = [{
    On GPUs, moves the rotation of keys from `nsa.rotary_attention` to the launch
    that compresses them: else each program would read the table of angles.
  }];
}

def SelectSchedule : Pass<"nsa-select-schedule", "::mlir::ModuleOp"> {
  let summary = "List the schedules of kernels of attention";
  let description = [{
    On GPUs, writes on each operation of attention the attribute `nsa.schedules`: for
    each of its kernels the ways to cut it, in the order of predicted time. The
    first one that the assembler does not refuse is taken. A kernel for which the
    operation or the module has a list keeps it.

    Where queries select most of what they see, kernels of the selected branch go
    through all blocks with masks. Of few heads in a group, where they select a
    small part, queries are gathered for each block. Limits and lists are measured.

    Example:

    ```mlir
    %i = nsa.select %q, %k, %lse ... : ...
    ```

    becomes

    ```mlir
    %i = nsa.select %q, %k, %lse ... {nsa.schedules = {select = [#nsa.schedule,
        #nsa.schedule<queries = 64, blocks = 16>, ...]}} : ...
    ```
  }];
  let dependentDialects = ["::nsa::NSADialect"];
}

def ConvertToTile : NSA_KernelPass<"nsa-convert-to-tile"> {
  let summary = "Turn nsa and nn operations into tile kernels and launches";
  let description = [{
    Replaces every operation of the nsa dialect, and those of the nn dialect that
    have a kernel, by launches of `tile.kernel` symbols on tensors. Operations of
    the same kind with the same attributes and types share their kernels. One
    operation may become several launches.

    `nn.matmul`, `nn.fill` and views (`nn.split_heads`, `nn.merge_heads`,
    `nn.recompute_barrier`) stay: a matmul is a library call, the others
    are fills and views of buffers.

    How much a program does, and how many parts sums over many rows have, depends
    on shapes and on the machine. Results differ between machines by the order of
    such sums.

    Sizes of the tiles of attention are chosen too where no `#nsa.schedule` fixes
    them. Tiles of selected keys are the largest divisors of a selection block up to
    their size; programs of selected queries fill M-tiles of 16 rows where each of
    these skips blocks that it did not select.

    Example:

    ```mlir
    %o, %lse = nsa.window_attention %q, %k, %v {window = 32 : i64} : ...
    ```

    becomes

    ```mlir
    %o, %lse = tile.launch @window_attention_b1s64h4x2d16_w32_f32(%q, %k, %v) : ...
    ```
  }];
  let statistics = [
    Statistic<"numLaunches", "launches", "Number of launches made">,
    Statistic<"numKernels", "kernels", "Number of kernels made">
  ];
}

#endif // NSA_PASSES_KERNELS_PASSES_TD
