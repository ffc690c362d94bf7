//===- Passes.td - passes that make machine code ----------------*- tablegen -*-===//

#ifndef NSA_LIB_TARGET_PASSES_TD
#define NSA_LIB_TARGET_PASSES_TD

include "mlir/Pass/PassBase.td"

def Binary : Pass<"nsa-binary", "::mlir::ModuleOp"> {
  let summary = "Compile the kernels of a module to machine code";
  let description = [{
    Lowers every `tile.kernel` to LLVM and compiles it for a processor, to an ELF
    object of an archive. Each kernel becomes an `rt.kernel` with the size of its
    code and of its stack, and an `rt.binary` says what the archive is. Its bytes
    stay out of the IR: the compiler's driver passes a buffer for them, `nsa-opt`
    prints the summary.

    The archive depends on the kernels and the processor only, not on the number
    of threads that compile. It may refer to `memcpy`, `memmove` and `memset`; a
    kernel that needs another symbol is an error.

    A module without kernels gets no binary.

    Example:

    ```mlir
    rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> ()
        {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32,
         code_bytes = 96 : i64, stack_bytes = 0 : i64}
    rt.binary @kernels format "objects-x86-64" cpu "x86-64-v3" size 1456 hash "00f1e2d3c4b5a697"
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::nsa::rt::RTDialect"];
  let options = [
    Option<"cpu", "cpu", "std::string", /*default=*/"\"x86-64-v3\"",
           "x86-64-v2, x86-64-v3, x86-64-v4 or native">,
    Option<"threads", "threads", "unsigned", /*default=*/"2",
           "Threads that compile">,
    Option<"saveKernels", "save-kernels", "std::string", /*default=*/"",
           "Folder for each kernel as NAME.llvm.mlir, NAME.ll and NAME.s">,
  ];
  let statistics = [
    Statistic<"numKernels", "kernels", "Number of kernels compiled">,
  ];
}

def NoteArgumentAlignment : Pass<"nsa-note-argument-alignment", "::mlir::ModuleOp"> {
  let summary = "Annotate the alignment of kernel arguments";
  let description = [{
    Gives arguments of kernels the attribute `nsa.alignment`, in bytes, where
    that is not the default of `nsa-tile-to-nvvm`: an address of
    columns of a wider matrix, or one inside of a buffer.

    Example:

    ```mlir
    tile.kernel @double(%x: memref<128xf32> {nsa.alignment = 4 : i64}, %y: memref<128xf32>) ...
    ```
  }];
}

def NoteLaunchOverlap : Pass<"nsa-note-launch-overlap", "::mlir::ModuleOp"> {
  let summary = "Annotate which decoding kernels may begin early";
  let description = [{
    Gives the kernels of entries `decode` and `next` the attribute `nsa.launch_overlap`:
    a launch may begin while the one before it ends, since the arguments with
    these numbers are written by nothing in the entry before it, or by launches
    that have ended. Of constants that a kernel does not use, `nsa.prefetch` names argument,
    first byte and bytes to ask for, as far as they fit the cache. Such kernels
    are short: they, and what is launched before them, have
    `nsa.late_dependents`, so that the launch after such a kernel reads at once
    what earlier launches have written.

    Example:

    ```mlir
    tile.kernel @scale(%x: memref<128xf32>, %w: memref<128xf32>, %y: memref<128xf32>) grid [1, 1, 1]
        attributes {nsa.launch_overlap = array<i64: 1>} ...
    ```
  }];
}

def OutlineKernels : Pass<"nsa-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "Move the kernels to a gpu.module";
  let description = [{
    Moves every `tile.kernel` to one `gpu.module` at the end, which says what GPU
    its code is for, and leaves an `rt.kernel` that describes it.

    Example:

    ```mlir
    rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> ()
        {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32,
         code_bytes = 0 : i64, stack_bytes = 0 : i64}
    gpu.module @device [#nvvm.target<chip = "sm_90a">] {
      tile.kernel @double(%x: memref<128xf32>, %y: memref<128xf32>) ...
    }
    ```
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect",
                           "::mlir::NVVM::NVVMDialect",
                           "::nsa::rt::RTDialect"];
  let options = [
    Option<"chip", "chip", "std::string", /*default=*/"\"sm_90a\"",
           "Such as sm_86">,
  ];
}

def SerializeKernels : Pass<"nsa-serialize-kernels", "::mlir::ModuleOp"> {
  let summary = "Compile the outlined kernels for an NVIDIA GPU";
  let description = [{
    Compiles the functions of the `gpu.module`, which are in the LLVM and NVVM
    dialects (see `nsa-outline-kernels` and `nsa-tile-to-nvvm`), to PTX for the
    GPU that it is for and, if `ptxas` is given, on to a cubin. It goes; each `rt.kernel` says what
    a launch needs (threads of a block, bytes of shared memory) and what ptxas
    reports (registers of a thread, bytes of spilling code, local memory), and an
    `rt.binary` what the image is; where later GPUs than the cubin's run the PTX,
    there is one for each.

    Example:

    ```mlir
    rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> ()
        {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32,
         code_bytes = 0 : i64, stack_bytes = 0 : i64, threads = 128 : i64,
         shared_bytes = 0 : i64}
    rt.binary @kernels format "ptx" cpu "sm_90a" size 1456 hash "00f1e2d3c4b5a697"
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::nsa::rt::RTDialect"];
  let options = [
    Option<"ptxas", "ptxas", "std::string", /*default=*/"",
           "The assembler; without it the binary is PTX">,
    Option<"threads", "threads", "unsigned", /*default=*/"2",
           "Threads that assemble">,
    Option<"saveKernels", "save-kernels", "std::string", /*default=*/"",
           "Folder for each kernel as NAME.llvm.mlir, NAME.ll, NAME.ptx and, if "
           "there is a cuobjdump beside ptxas, NAME.sass">,
  ];
  let statistics = [
    Statistic<"numKernels", "kernels", "Number of kernels compiled">,
  ];
}

def CheckPerformanceLints : Pass<"nsa-check-performance-lints", "::mlir::ModuleOp"> {
  let summary = "Reject performance lints that were not allowed";
  let description = [{
    An entry is a training entry if one of its commands other than
    `rt.initialize` writes a parameter, a moment or a gradient. There each of
    these is an error at the command's location, unless `allow` names it:

    | name | what |
    |---|---|
    | `scalar-loop` | a kernel spends more than a quarter of its time on arithmetic or transpositions of one element at a time |
    | `scalar-access` | the same, on loads and stores of elements that are no neighbours in memory |
    | `scalar-product` | on a GPU, a kernel multiplies tiles of bf16 or f16 without tensor cores |
    | `unfused` | branches of attention, or their gradients, that `nsa-fuse-attention` could not fuse; its remarks say why |
    | `spill` | on a GPU, a kernel with matmuls, which attention is, keeps registers in memory |
    | `serialised` | on a GPU, ptxas serializes the wgmma of such a kernel, or ignores its register reallocation (setmaxnreg) (C7500 to C7599) |
    | `copy` | an `rt.copy` of 64 KiB or more: a value could not be computed where it belongs |

    A kernel's performance lints are its attribute `performance_lints`, so the pass runs after
    `nsa-binary` or `nsa-serialize-kernels`. Entries that train nothing, such as those of single operations,
    may be slow.

    `allow=spill@attention_1` allows a path in one kernel, `all@attention_1` all
    of them; that there is no such kernel is an error.

    Example: with `allow=copy`, a training entry may contain

    ```mlir
    rt.copy %old, %saved : memref<4096x64xf32>
    ```
  }];
  let options = [
    ListOption<"allow", "allow", "std::string",
               "Performance lints that are no error, or all, in all kernels or in one "
               "(PATH@KERNEL)">,
  ];
}

#endif // NSA_LIB_TARGET_PASSES_TD
