//===- RTOps.td - tensors, entries and commands -----------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_RT_RTOPS_TD
#define NSA_DIALECTS_RT_RTOPS_TD

include "dialects/RT/RTDialect.td"
include "dialects/RT/RTInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ViewLikeInterface.td"

//===----------------------------------------------------------------------===//
// Module level
//===----------------------------------------------------------------------===//

def RT_SegmentOp : RT_Op<"segment", [Symbol]> {
  let opDocGroup = NSA_DocGroup<"Module level">;
  let summary = "an allocation that slices are cut from";
  let description = [{
    `size` and `alignment` are bytes; the alignment is a power of two.

    Example:

    ```mlir
    rt.segment arena @arena size 4096 alignment 64
    ```
  }];
  let arguments = (ins RT_SegmentKindAttr:$kind, SymbolNameAttr:$sym_name,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$size,
                       ConfinedAttr<I64Attr, [IntPositive]>:$alignment);
  let assemblyFormat = [{
    `` $kind $sym_name `size` $size `alignment` $alignment attr-dict
  }];
  let hasVerifier = 1;
}

def RT_TensorOp : RT_Op<"tensor", [
    Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Module level">;
  let summary = "a named tensor that outlives an entry";
  let description = [{
    `init` is the value that `rt.initialize` gives the tensor. `decay` marks a
    parameter that takes part in weight decay, `state` is the
    optimizer's name of a state that it keeps for a parameter. `at` (`slice`) is
    its memory, once planned. What is `host` lies in memory of the host, where
    it is initialized and `rt.slice_shard` takes parts of it.

    Example:

    ```mlir
    rt.tensor parameter @embed.weight : memref<256x32xf32> init #nn.init<normal, 0.02> {decay}
    ```
  }];
  let arguments = (ins RT_TensorRoleAttr:$role, SymbolNameAttr:$sym_name,
                       TypeAttrOf<RT_Memory>:$type,
                       OptionalAttr<NSA_InitialValueAttr>:$init,
                       UnitAttr:$decay, OptionalAttr<StrAttr>:$state,
                       OptionalAttr<RT_SliceAttr>:$slice, UnitAttr:$host);
  let assemblyFormat = [{
    `` $role $sym_name `:` $type (`init` $init^)? (`at` $slice^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MemRefType getMemoryType() {
      return ::llvm::cast<::mlir::MemRefType>(getType());
    }
    /// Whether the tensor is an input or an output of an entry.
    bool isIO() {
      return getRole() == TensorRole::Input || getRole() == TensorRole::Output;
    }
  }];
}

def RT_KernelOp : RT_Op<"kernel", [Symbol]> {
  let opDocGroup = NSA_DocGroup<"Module level">;
  let summary = "a kernel that is machine code";
  let description = [{
    Takes the place of a `tile.kernel` of the same name, arguments and grid once
    the kernel is in the module's `rt.binary`. `code_bytes` counts instructions
    and constants, `stack_bytes` the stack of one call; `flops` and `bytes` are
    the work and the traffic of one launch, where known. See
    `nsa-check-performance-lints` for `performance_lints`.

    On a GPU a program is a block of `threads` threads with `shared_bytes` of
    shared memory; a thread has `registers`, and `spill_bytes` of spill
    accesses. Launches pass the `tensor_maps` after the
    pointers to the arguments, in order and 128 bytes each; a map lies within the
    memory of its argument, whose elements have its type.

    Example:

    ```mlir
    rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> ()
        {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32,
         code_bytes = 96 : i64, stack_bytes = 0 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<FunctionType>:$function_type,
                       ConfinedAttr<DenseI32ArrayAttr,
                                    [DenseArrayCount<3>]>:$grid,
                       ConfinedAttr<I32Attr, [IntNonNegative]>:$num_outputs,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$code_bytes,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$stack_bytes,
                       OptionalAttr<I64Attr>:$flops,
                       OptionalAttr<I64Attr>:$bytes,
                       OptionalAttr<StrArrayAttr>:$performance_lints,
                       OptionalAttr<I64Attr>:$threads,
                       OptionalAttr<I64Attr>:$shared_bytes,
                       OptionalAttr<I64Attr>:$registers,
                       OptionalAttr<I64Attr>:$spill_bytes,
                       OptionalAttr<RT_TensorMapArrayAttr>:$tensor_maps);
  let builders = [OpBuilder<(ins
    "::mlir::StringAttr":$name, "::mlir::TypeAttr":$type,
    "::mlir::DenseI32ArrayAttr":$grid, "::mlir::IntegerAttr":$numOutputs,
    "::mlir::IntegerAttr":$codeBytes, "::mlir::IntegerAttr":$stackBytes,
    "::mlir::IntegerAttr":$flops, "::mlir::IntegerAttr":$bytes,
    "::mlir::ArrayAttr":$performanceLints), [{
      build($_builder, $_state, name, type, grid, numOutputs, codeBytes,
            stackBytes, flops, bytes, performanceLints, {}, {}, {}, {}, {});
    }]>];
  let assemblyFormat = "$sym_name `:` $function_type attr-dict";
  let hasVerifier = 1;
}

def RT_BinaryOp : RT_Op<"binary", [Symbol]> {
  let opDocGroup = NSA_DocGroup<"Module level">;
  let summary = "the machine code of a module's kernels";
  let description = [{
    Describes the image without its bytes, which go from the code generator to the
    artefact without passing through the IR. `hash` is XXH3-64 of the image
    in hexadecimal digits.

    Example:

    ```mlir
    rt.binary @kernels format "objects-x86-64" cpu "x86-64-v3" size 8192 hash "00f1e2d3c4b5a697"
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$format, StrAttr:$cpu,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$size,
                       StrAttr:$hash);
  let assemblyFormat = [{
    $sym_name `format` $format `cpu` $cpu `size` $size `hash` $hash attr-dict
  }];
}

def RT_EntryOp : RT_Op<"entry", [
    Symbol, IsolatedFromAbove, NoTerminator, SingleBlock,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Module level">;
  let summary = "a list of commands that a caller may run";
  let description = [{
    `inputs` are written by the caller before, `outputs` read after the run.
    Commands run in order. `arena_peak` is the number of bytes of the arena that
    the entry uses, once planned.

    No command may write memory of a buffer, without reading it, while an earlier
    value there still has a reader, no command may read what nothing has written,
    and planned buffers that share bytes must not be alive at the same time.

    Example:

    ```mlir
    rt.entry @zero inputs [] outputs [] {
      %state = rt.get @state : memref<f32>
      rt.fill 0.0, %state : memref<f32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       FlatSymbolRefArrayAttr:$inputs,
                       FlatSymbolRefArrayAttr:$outputs,
                       OptionalAttr<I64Attr>:$arena_peak);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `inputs` $inputs `outputs` $outputs attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

class RT_MemoryOp<string mnemonic, list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat(traits, [ParentOneOf<["EntryOp"]>])> {
  let opDocGroup = NSA_DocGroup<"Memory">;
}

def RT_GetOp : RT_MemoryOp<"get", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "the memory of a named tensor";
  let description = [{
    Example:

    ```mlir
    %w = rt.get @embed.weight : memref<256x32xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$tensor);
  let results = (outs RT_Memory:$memory);
  let assemblyFormat = "$tensor attr-dict `:` type($memory)";
}

def RT_FlatViewOp : RT_MemoryOp<"flat_view", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the memory of named fp32 tensors that lie one after the other";
  let description = [{
    Each tensor is followed by zeros up to a multiple of 64 bytes. `nsa-plan`
    lays the tensors out in this order.

    Example:

    ```mlir
    %g = rt.flat_view [@grad.w0, @grad.w1] : memref<48xf32>
    ```
  }];
  let arguments = (ins TypedArrayAttrBase<FlatSymbolRefAttr,
                           "array of tensor names">:$tensors);
  let results = (outs RT_Memory:$memory);
  let assemblyFormat = "$tensors attr-dict `:` type($memory)";
}

def RT_BufferOp : RT_MemoryOp<"buffer", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "memory of the arena that lives while an entry runs";
  let description = [{
    Its content is undefined until a command writes it. `at` (`slice`) is its
    offset in the arena and `live` the commands between which it holds a value, once planned.

    Example:

    ```mlir
    %0 = rt.buffer : memref<64x32xf32>
    %1 = rt.buffer at <@arena, offset = 0, size = 8192> live <0 to 3> : memref<64x32xf32>
    ```
  }];
  let arguments = (ins OptionalAttr<RT_SliceAttr>:$slice,
                       OptionalAttr<RT_LiveRangeAttr>:$live);
  let results = (outs Res<RT_Memory, "", [MemAlloc]>:$memory);
  // One that has no place yet.
  let builders = [OpBuilder<(ins "::mlir::Type":$memory), [{
    build($_builder, $_state, memory, /*slice=*/{}, /*live=*/{});
  }]>];
  let assemblyFormat = [{
    (`at` $slice^)? (`live` $live^)? attr-dict `:` type($memory)
  }];
}

def RT_ViewOp : RT_MemoryOp<"view", [
    Pure, DeclareOpInterfaceMethods<ViewLikeOpInterface>]> {
  let summary = "elements of memory under another shape";
  let description = [{
    All elements of `source` in the same order, or, with an `offset`, those from
    this number on: as many as the result has, one after the other, or, where its
    layout has rows, these columns of all rows of `source`.

    Example:

    ```mlir
    %heads = rt.view %x : memref<1x64x32xf32> to memref<1x64x4x8xf32>
    %half = rt.view %x at 16 : memref<1x64x32xf32> to memref<1x64x16xf32, strided<[2048, 32, 1]>>
    %last = rt.view %x at 2016 : memref<1x64x32xf32> to memref<32xf32>
    ```
  }];
  let arguments = (ins RT_Memory:$source,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntNonNegative]>>:$offset);
  let results = (outs RT_RowMemory:$memory);
  let assemblyFormat = [{
    $source (`at` $offset^)? attr-dict `:` type($source) `to` type($memory)
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$source), [{
    build($_builder, $_state, type, source, /*offset=*/::mlir::IntegerAttr());
  }]>];
  let hasVerifier = 1;
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

class RT_Command<string mnemonic, list<string> methods = [],
                 list<Trait> traits = []>
    : RT_Op<mnemonic, !listconcat(traits, [
        ParentOneOf<["EntryOp"]>,
        DeclareOpInterfaceMethods<RT_CommandOpInterface, methods>])> {
  let opDocGroup = NSA_DocGroup<"Commands">;
}

def RT_LaunchOp : RT_Command<"launch", [], [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "run a kernel over its whole grid";
  let description = [{
    The kernel's arguments are `inputs`, then `outputs`. Memory may be both an
    input and an output only if the kernel reads every element before the same
    program writes it; `nsa-buffer` proves that before it shares memory.

    Example:

    ```mlir
    rt.launch @double ins(%x : memref<128xf32>) outs(%y : memref<128xf32>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel,
    Arg<Variadic<RT_RowMemory>, "", [MemRead]>:$inputs,
    Arg<Variadic<RT_RowMemory>, "", [MemWrite]>:$outputs);
  let assemblyFormat = [{
    $kernel `ins` `(` ($inputs^ `:` type($inputs))? `)`
    `outs` `(` $outputs `:` type($outputs) `)` attr-dict
  }];
}

def RT_GemmOp : RT_Command<"gemm", [
    "getReads", "getWorkspaceSize", "assignWorkspace"], [
    OptionalTypesMatchWith<"addend has the type of out", "out", "addend",
                           "$_self">]> {
  let summary = "matmul";
  let description = [{
    `out = alpha * op(lhs) . op(rhs) + beta * addend`, accumulated in fp32, where `op`
    transposes if `transpose_lhs` or `transpose_rhs` says so; without an `addend`, it
    is `out`. Each operand is seen as a matrix: its last dimension is the columns, the
    product of the others the rows, which are those of the `batch` matrices one below the
    other. `workspace` holds fp32 copies of narrower operands, once planned. `out` may
    not share memory with the others. With `beta = 0` the addend is not read.

    Example:

    ```mlir
    rt.gemm %x, %w, %y : memref<2x64x32xf32>, memref<32x48xf32>, memref<2x64x48xf32>
    rt.gemm %x, %dy, %dw {beta = 1.0 : f32, transpose_lhs}
        : memref<2x64x32xf32>, memref<2x64x48xf32>, memref<32x48xf32>
    rt.gemm %a, %a, %b plus %a {alpha = 2.0 : f32, batch = 2 : i64, beta = -4.0 : f32}
        : memref<8x4xf32>, memref<8x4xf32>, memref<8x4xf32>
    ```
  }];
  let arguments = (ins
    Arg<RT_FloatMemory, "", [MemRead]>:$lhs,
    Arg<RT_FloatMemory, "", [MemRead]>:$rhs,
    Arg<RT_FloatMemory, "", [MemRead, MemWrite]>:$out,
    Arg<Optional<RT_FloatMemory>, "", [MemRead]>:$addend,
    UnitAttr:$transpose_lhs, UnitAttr:$transpose_rhs,
    DefaultValuedAttr<F32Attr, "0.0f">:$beta,
    OptionalAttr<RT_SliceAttr>:$workspace,
    DefaultValuedAttr<F32Attr, "1.0f">:$alpha,
    DefaultValuedAttr<ConfinedAttr<I64Attr, [IntPositive]>, "1">:$batch);
  let assemblyFormat = [{
    $lhs `,` $rhs `,` $out (`plus` $addend^)? (`workspace` $workspace^)? attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($out)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of a matrix of the batch, rows (m) and columns (n) of `out` and the
    /// summed length (k).
    struct Sizes { int64_t m, n, k; };
    Sizes getSizes();
    /// Whether it is more than `out = op(lhs) . op(rhs) + beta * out`.
    bool isExtended() {
      return getAddend() || getBatch() != 1 || !getAlpha().isExactlyValue(1.0);
    }
  }];
}

def RT_FillOp : RT_Command<"fill"> {
  let summary = "set every element to one value";
  let description = [{
    `value` is converted to the element type.

    Example:

    ```mlir
    rt.fill 0.0, %gradient : memref<32x48xf32>
    ```
  }];
  let arguments = (ins F64Attr:$value, Arg<RT_Memory, "", [MemWrite]>:$out);
  let assemblyFormat = "$value `,` $out attr-dict `:` type($out)";
}

def RT_CopyOp : RT_Command<"copy", [], [AllTypesMatch<["source", "out"]>]> {
  let summary = "copy all elements";
  let description = [{
    Example:

    ```mlir
    rt.copy %x, %y : memref<32x48xf32>
    ```
  }];
  let arguments = (ins Arg<RT_Memory, "", [MemRead]>:$source,
                       Arg<RT_Memory, "", [MemWrite]>:$out);
  let assemblyFormat = "$source `,` $out attr-dict `:` type($out)";
  let hasVerifier = 1;
}

def RT_SliceShardOp : RT_Command<"slice_shard"> {
  let summary = "copy out this rank's shard of memory";
  let description = [{
    With `n` elements in `part` and `r` the number of this rank, copies the
    elements `r * n` to `r * n + n - 1` of `memory`, which has `n` for each rank.
    Equal numbers of `shard` are parts of tensors that are laid out alike.

    Example:

    ```mlir
    %w = rt.get @w : memref<32x48xf32>
    %part = rt.buffer : memref<384xf32>
    rt.slice_shard %w, %part {shard = 0 : i64} : memref<32x48xf32>, memref<384xf32>
    ```
  }];
  let arguments = (ins Arg<RT_Memory, "", [MemRead]>:$memory,
                       Arg<RT_Memory, "", [MemWrite]>:$part,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$shard);
  let assemblyFormat = [{
    $memory `,` $part attr-dict `:` type($memory) `,` type($part)
  }];
  let hasVerifier = 1;
}

def RT_WriteShardOp : RT_Command<"write_shard"> {
  let summary = "copy into this rank's shard of memory";
  let description = [{
    The inverse of `rt.slice_shard`. The other parts of `memory` are undefined,
    until `rt.collective_start all_gather` has ended.

    Example:

    ```mlir
    %w = rt.get @w : memref<32x48xf32>
    %part = rt.buffer : memref<384xf32>
    rt.fill 0.0, %part : memref<384xf32>
    rt.write_shard %part, %w {shard = 0 : i64} : memref<384xf32>, memref<32x48xf32>
    ```
  }];
  let arguments = (ins Arg<RT_Memory, "", [MemRead]>:$part,
                       Arg<RT_Memory, "", [MemWrite]>:$memory,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$shard);
  let assemblyFormat = [{
    $part `,` $memory attr-dict `:` type($part) `,` type($memory)
  }];
  let hasVerifier = 1;
}

def RT_SliceSequenceOp : RT_Command<"slice_sequence", ["getReads"]> {
  let summary = "copy out this rank's chunks of sequences";
  let description = [{
    Sequences are cut into `2 * ranks` chunks of equal length; row `2 * b` is of chunk
    `r`, row `2 * b + 1` of chunk `2 * ranks - 1 - r` of sequence `b`, where `r` is the
    number of this rank modulo `ranks`. Copied are

    - `halo`: of `memory` `[B, 2 * ranks * H, ...]`, which has the last `H` tokens of
      each chunk, the tokens before each chunk, to `rows` of `H + c` tokens: to their
      beginning, or, of a first chunk, those of the last one to their end; the rest of
      the rows stays as it is;
    - `own`: of `memory` `[2 * B, H + c, ...]`, the `c` tokens that `halo` leaves.

    Example:

    ```mlir
    %rows = rt.buffer : memref<2x20x2x16xf32>
    %own = rt.buffer : memref<2x16x2x16xf32>
    rt.fill 0.0, %rows : memref<2x20x2x16xf32>
    rt.slice_sequence own %rows, %own {ranks = 2 : i64} : memref<2x20x2x16xf32>, memref<2x16x2x16xf32>
    ```
  }];
  let arguments = (ins RT_ChunkPatternAttr:$pattern,
                       Arg<RT_Memory, "", [MemRead]>:$memory,
                       Arg<RT_Memory, "", [MemWrite]>:$rows,
                       ConfinedAttr<I64Attr, [IntPositive]>:$ranks);
  let assemblyFormat = [{
    $pattern $memory `,` $rows attr-dict `:` type($memory) `,` type($rows)
  }];
  let hasVerifier = 1;
}

def RT_WriteSequenceOp : RT_Command<"write_sequence", ["getReads"]> {
  let summary = "copy this rank's chunks into sequences";
  let description = [{
    The inverse of `rt.slice_sequence`. `halo` leaves the rest of `memory` as it is.

    Example:

    ```mlir
    %own = rt.buffer : memref<2x16x2x16xf32>
    %rows = rt.buffer : memref<2x20x2x16xf32>
    rt.fill 0.0, %own : memref<2x16x2x16xf32>
    rt.write_sequence own %own, %rows {ranks = 2 : i64} : memref<2x16x2x16xf32>, memref<2x20x2x16xf32>
    ```
  }];
  let arguments = (ins RT_ChunkPatternAttr:$pattern,
                       Arg<RT_Memory, "", [MemRead]>:$rows,
                       Arg<RT_Memory, "", [MemWrite]>:$memory,
                       ConfinedAttr<I64Attr, [IntPositive]>:$ranks);
  let assemblyFormat = [{
    $pattern $rows `,` $memory attr-dict `:` type($rows) `,` type($memory)
  }];
  let hasVerifier = 1;
}

def RT_CollectiveStartOp : RT_Command<"collective_start", [
    "getReads", "getWrites"]> {
  let summary = "start an asynchronous collective";
  let description = [{
    With `x_q` what `memory` holds on rank `q` of `R`:

    - `all_reduce`: `memory[i] = sum over q of x_q[i] / R`, the same bits on all
      ranks;
    - `reduce_scatter`: the same for the part of this rank, see `rt.slice_shard`;
      the other parts are undefined afterwards;
    - `all_gather`: the part of each rank `q` becomes that part of `x_q`;
    - `gather_sequence`: among `ranks` ranks of neighbouring numbers that share
      sequences `[B, S, ...]`, the chunks of each rank, see `rt.slice_sequence`, become
      the last `S / (2 * ranks)` tokens of its `rows` `[2 * B, c, ...]`;
    - `reduce_scatter_sequence`: among these, the last tokens of `rows` become the sums
      over the `x_q` of this rank's chunks; `memory` stays as it is.

    `reduce_scatter` and `all_gather` are for programs of `ranks` ranks.

    This runs beside the commands that follow, none of which may write its memory or
    touch what it writes, until the `rt.collective_done` of the same value. All ranks run their
    collectives in the same order. One rank alone does nothing. A `grouped` one begins with the next command, which
    starts another one of its kind.

    Example:

    ```mlir
    %bucket = rt.flat_view [@grad.w0, @grad.w1] : memref<48xf32>
    rt.collective_start all_reduce %bucket : memref<48xf32>
    rt.collective_done %bucket : memref<48xf32>
    rt.collective_start reduce_scatter %bucket {ranks = 4 : i64} : memref<48xf32>
    rt.collective_done %bucket : memref<48xf32>
    %whole = rt.buffer : memref<1x64xf32>
    %own = rt.buffer : memref<2x16xf32>
    rt.fill 0.0, %own : memref<2x16xf32>
    rt.collective_start gather_sequence %whole rows %own {ranks = 2 : i64} : memref<1x64xf32>, memref<2x16xf32>
    rt.collective_done %whole rows %own : memref<1x64xf32>, memref<2x16xf32>
    ```
  }];
  let arguments = (ins RT_CollectiveAttr:$kind,
                       Arg<RT_ReducedMemory, "", [MemRead, MemWrite]>:$memory,
                       Arg<Optional<RT_ReducedMemory>, "", [MemRead, MemWrite]>:$rows,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$ranks,
                       UnitAttr:$grouped);
  let assemblyFormat = [{
    `` $kind $memory (`rows` $rows^)? attr-dict `:` type($memory) (`,` type($rows)^)?
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$memory), [{
    build($_builder, $_state, Collective::AllReduce, memory, /*ranks=*/{});
  }]>, OpBuilder<(ins "Collective":$kind, "::mlir::Value":$memory,
                      "::mlir::IntegerAttr":$ranks), [{
    build($_builder, $_state, kind, memory, /*rows=*/{}, ranks,
          /*grouped=*/false);
  }]>];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether it is one of ranks that share sequences.
    bool isOfSequences() {
      return getKind() == Collective::GatherSequence ||
             getKind() == Collective::ReduceScatterSequence;
    }
  }];
}

def RT_CollectiveDoneOp : RT_Command<"collective_done"> {
  let summary = "wait until the collective has ended";
  let description = [{
    Ends the last `rt.collective_start` of the same value.

    Example:

    ```mlir
    %g = rt.get @grad.w : memref<48xf32>
    rt.collective_start all_reduce %g : memref<48xf32>
    rt.collective_done %g : memref<48xf32>
    ```
  }];
  let arguments = (ins Arg<RT_ReducedMemory, "", [MemRead, MemWrite]>:$memory,
                       Arg<Optional<RT_ReducedMemory>, "", [MemRead, MemWrite]>:$rows);
  let assemblyFormat = [{
    $memory (`rows` $rows^)? attr-dict `:` type($memory) (`,` type($rows)^)?
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$memory), [{
    build($_builder, $_state, memory, /*rows=*/{});
  }]>];
}

def RT_InitializeOp : RT_Command<"initialize", [], [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "give a named tensor its initial value";
  let description = [{
    The value follows from the tensor's `init`, its name and the seed of the
    run. The operand is the result of `rt.get`.

    Example:

    ```mlir
    %w = rt.get @embed.weight : memref<256x32xf32>
    rt.initialize %w : memref<256x32xf32>
    ```
  }];
  let arguments = (ins Arg<RT_Memory, "", [MemWrite]>:$out);
  let assemblyFormat = "$out attr-dict `:` type($out)";
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_RT_RTOPS_TD
