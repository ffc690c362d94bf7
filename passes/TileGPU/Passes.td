//===- Passes.td - from tile kernels to NVVM ---------------*- tablegen -*-===//

#ifndef NSA_PASSES_TILEGPU_PASSES_TD
#define NSA_PASSES_TILEGPU_PASSES_TD

include "mlir/Pass/PassBase.td"

// docs/gpu-codegen.md shows a kernel after each of these passes.

def TileSimplify : Pass<"tile-simplify", "::nsa::tile::KernelOp"> {
  let summary = "Reduce register pressure of kernels with 16-bit dots";
  let description = [{
    Runs on kernels without layouts. Only tiles that nsa-assign-layouts will
    put into the MMA layout change.

    - A map that reads the f32 result of one other map alone becomes part of it:
      a number that is rounded to 16 bits takes no register before.
    - A sum of dots over a loop starts with what is added to it after the
      loop.
    - Loads move after loops with dots, to their first use, where nothing
      is stored between; loads and maps of one row within a loop, which each
      thread has in registers, after dots.

    Example:

    ```mlir
    %s = scf.for ... iter_args(%acc = %zeros) { %d = tile.dot %a, %b, %acc ... }
    %r = tile.map (%s, %x) { arith.addf }
    // becomes
    %r = scf.for ... iter_args(%acc = %x) { %d = tile.dot %a, %b, %acc ... }
    ```
  }];
}

def NSAAssignLayouts : Pass<"nsa-assign-layouts", "::mlir::ModuleOp"> {
  let summary = "Assign the tiles of a kernel layouts for tensor cores";
  let description = [{
    Dots of bf16 or f16 tiles whose sums have a multiple of 16 elements and
    whose results have 8 rows or more and a multiple of 8 columns get layouts:
    they accumulate in `#tile.mma`, read b from `#tile.shared` and a from
    either. Other dots stay as they are, with a remark that says why.

    - Maps, reductions, loops, branches and selects pass the MMA tiles on, so
      that a chain of dots moves nothing. Loads that feed these load
      MMA tiles.
    - A load that a dot reads as b goes to shared memory, and is converted
      to a tile in the MMA layout where a map also reads it. So does an a that changes in
      every iteration; an a that is the same in all of them is loaded as
      MMA tile, outside of the loop.
    - Ranges, splats, loads of integers that the kernel does not write, and
      integer maps of these are computed again where they are used
      (`#tile.rematerialized`). Where MMA tiles use what is read from memory, it is a
      MMA tile of its own. The indices of a row or column that a loop loads are
      computed on demand all the same, so that it can be copied ahead.
    - Votes, transposition, top-n, sorting and dots without layouts read and
      make tiles without layout; `tile.convert` stands between.
    - Tiles that no MMA tile touches have no layout.

    A kernel has one number of warps: the largest up to 8 that leaves no more
    than an eighth of the rows of the tallest dot to padding. With `wgmma` it
    is 4, 8 or 12 if the M-tiles of 16 rows are a multiple.
  }];
  let dependentDialects = ["::nsa::tile::TileDialect"];
  let options = [
    Option<"warps", "warps", "unsigned", /*default=*/"0",
           "Warps that share the rows of a dot; 0 chooses">,
    Option<"wgmma", "wgmma", "bool", /*default=*/"false",
           "Whether the target has wgmma">,
  ];
}

def TileGPUAssignLayouts
    : Pass<"tile-gpu-assign-layouts", "::mlir::ModuleOp"> {
  let summary = "Assign blocked layouts and the versions of mma";
  let description = [{
    Runs after `nsa-assign-layouts`; what it writes is only read afterwards.

    - Tiles without a layout get a `#tile_gpu.blocked`: a group of threads, at
      most a warp if there are several rows, shares a row, and each thread has
      pieces of columns that lie together, as many as one access of 16 bytes can
      move. Tiles of a shape have one layout, and those with the same number of
      columns the same pieces of them, so that a row need not be exchanged to
      meet several.
    - `tile_gpu.threads` of a kernel is how many threads of a block compute:
      those of its MMA tiles, else as many as give each thread one piece of the
      largest tile or a few.
    - `tile_gpu.mma` of a dot of MMA tiles has version 3 (wgmma) with `wgmma`
      where the M-tiles of four warps in sequence are all rows of the result, else
      version 2 (mma.sync), with a remark that says why.
    - A branch on a `tile.any` with `warp_uniform` of rows of MMA tiles becomes a
      `tile_gpu.warp_if` if nothing inside is a matter of several warps; else all
      threads take it together, which a remark says.
    - Operands a of dots stay in shared memory where accumulators leave no
      registers for them, and those of wgmma, which takes no time to read them.
  }];
  let dependentDialects = ["::nsa::tile_gpu::TileGPUDialect"];
  let options = [
    Option<"threads", "threads", "unsigned", /*default=*/"0",
           "Threads of a block without MMA tiles, a multiple of 32; 0 chooses "
           "up to 256 by the largest tile">,
    Option<"wgmma", "wgmma", "bool", /*default=*/"false",
           "Whether the target has wgmma, as sm_90a">,
  ];
}

def TileGPUPromoteToShared
    : Pass<"tile-gpu-promote-to-shared", "::nsa::tile::KernelOp"> {
  let summary = "Promote tiles to buffers in shared memory";
  let description = [{
    A `tile.load` of a tile in `#tile.shared` becomes a `tile_gpu.alloc`, a
    `tile_gpu.async_copy` to it and a `tile_gpu.local_view` that its uses read;
    a `tile.convert` to such a tile the same with a `tile_gpu.local_store`. The
    swizzle is the widest that divides a row, of 128 bytes at most.
  }];
  let dependentDialects = ["::nsa::tile_gpu::TileGPUDialect"];
}

def TileGPUAllocateSharedMemory
    : Pass<"tile-gpu-allocate-shared-memory", "::nsa::tile::KernelOp"> {
  let summary = "Allocate shared memory and choose pipeline stages";
  let description = [{
    A buffer takes the first free part of the block's shared memory from where it
    is filled to the last use of what is there. After all of them lies scratch,
    through which threads exchange elements.

    A loop copies the tiles of its next iterations ahead, of nested ones the
    innermost that loads: these have a `#tile_gpu.pipeline` of several stages.
    Rows and columns of f32 or i32 that it loads get buffers and are copied, too,
    after its tiles.

    With `wgmma`, where the loops of warpgroups load TMA tiles only, a producer
    warpgroup issues TMA loads into a pipeline of up to 4 stages (6 with per-warp
    skipping), which these loops share. If the kernel asks for it by a number of
    blocks (`nsa.producer`), the producer gathers, too: tiles whose rows are a
    TMA box for each group in sequence, as the heads of a listed query are, and
    lines of such rows. A kernel that asks for it and cannot have it is an error.

    Another kernel that needs more than `shared-limit` bytes gets no producer, then
    fewer stages; one that needs more without them is an error.
  }];
  let dependentDialects = ["::nsa::rt::RTDialect", "::nsa::tile_gpu::TileGPUDialect"];
  let options = [
    Option<"sharedLimit", "shared-limit", "uint64_t", /*default=*/"232448",
           "Bytes of shared memory that a block may have">,
    Option<"stages", "stages", "unsigned", /*default=*/"2",
           "Stages in shared memory of a tile that a loop loads: with 2, the "
           "next iteration's is copied during this one. Loops in which "
           "warpgroups multiply have up to 4 if that leaves as many blocks on "
           "a multiprocessor, and kernels that do not fit have fewer">,
    Option<"wgmma", "wgmma", "bool", /*default=*/"false",
           "Whether the target has wgmma and copies of tensors, as sm_90a">,
    Option<"producers", "producers", "bool", /*default=*/"true",
           "Whether a producer warpgroup issues TMA loads for the consumers, where "
           "all that their loops load are TMA tiles">,
    Option<"producerSums", "producer-sums", "unsigned", /*default=*/"kProducerSums",
           "Minimum accumulator registers per thread for a producer: with fewer, "
           "more blocks run at once and hide each other's waits">,
  ];
}

def TileGPUPipeline : Pass<"tile-gpu-pipeline", "::nsa::tile::KernelOp"> {
  let summary = "Software-pipeline the copies of loops";
  let description = [{
    Expands loops with `tile_gpu.pipeline` that no producer copies for. Before the
    loop, threads begin the copies of all stages but one. An iteration waits
    for its own, and begins those of a later one, where there is one: while the
    first dot runs, if that is a wgmma. The indices of the copies are recomputed
    for that.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
    "::nsa::tile_gpu::TileGPUDialect"];
}

def TileGPUWarpSpecialize
    : Pass<"tile-gpu-warp-specialize", "::nsa::tile::KernelOp"> {
  let summary = "Split kernels with a producer into producer and consumers";
  let description = [{
    In kernels with `tile_gpu.producer`, a thread of one more warpgroup issues the
    loads of all loops whose `tile_gpu.pipeline` says so, and of tiles that the kernel's
    own block loads, by TMA; it recomputes the indices. Consumers wait at mbarriers
    for the stages that loops carry, and release them. Where rows are gathered, a
    warp does it: each lane has an entry of the list, which it reads one iteration
    before, and loads its box.

    The last dot of an iteration is delayed until after the first one of the next
    iteration, if nothing needs it before: the loop carries its operand a.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
    "::nsa::rt::RTDialect", "::nsa::tile_gpu::TileGPUDialect"];
}

def TileGPUInsertBarriers
    : Pass<"tile-gpu-insert-barriers", "::nsa::tile::KernelOp"> {
  let summary = "Insert barriers, fences and waits where memory is accessed";
  let description = [{
    Goes through a kernel in program order and keeps what other threads may not
    have done or may not see since the last barrier. It inserts

    - `tile_gpu.async_wait` and `tile_gpu.barrier` where a tile is read that was
      copied or stored;
    - a barrier where a tile is written after some tile has been read;
    - a barrier where an argument is read that may have been written, or written
      after other threads may have read or written those elements: an output may
      lie in the memory of an input;
    - `tile_gpu.fence_async` before barriers in kernels with wgmma, if
      threads have written shared memory;
    - `tile_gpu.wgmma_wait` before barriers and of what uses the sums.

    Operations through which threads exchange elements by scratch have barriers
    of their own, and need the fence and the wait before.

    All of a loop may have run before each iteration, and neither branch or both
    before what comes after them. Nothing is in flight where control flow begins and
    ends. A divergent barrier is an error.
  }];
  let dependentDialects = ["::nsa::tile_gpu::TileGPUDialect"];
}

def TileGPUVerifySynchronization
    : Pass<"tile-gpu-verify-synchronization", "::nsa::tile::KernelOp"> {
  let summary = "Verify barriers, fences and waits on traces of a kernel";
  let description = [{
    Executes the scalars of a kernel, loops of unknown bounds 0, 1, 2 and 17 times,
    and traces the memory accesses of threads, the producer, asynchronous copies,
    TMA and wgmma. An error names both accesses where

    - shared memory is read that nothing has written;
    - something reads it, or takes it for something else, while a copy, a TMA load
      or wgmma is at it, or without a barrier after another warp's access;
    - wgmma reads what threads have written without `tile_gpu.fence_async`;
    - an argument is read or written without a barrier after other threads that
      write or read it;
    - a role waits for ever, or a stage is not released as often as it is filled.

    It changes nothing.

    Example:

    ```mlir
    tile_gpu.local_store %p to %0 : ...
    %v = tile_gpu.local_view %0 : ...
    // error: reads shared memory that is written in 'tile_gpu.local_store', with no tile_gpu.barrier between
    %d = tile.dot %a, %v, %zero : ...
    ```
  }];
}

def NSATileToNVVM : Pass<"nsa-tile-to-nvvm"> {
  let summary = "Lower tile kernels to CUDA kernels in NVVM";
  let description = [{
    Replaces every `tile.kernel` of a module or `gpu.module` by an `llvm.func` of the same name that is a
    CUDA kernel: one block per program of the grid, one pointer per argument.

    A 1:N conversion: a tile becomes the registers that a thread has of it, by
    the layout that `tile-gpu-assign-layouts` has written on it. Elements of
    rematerialized tiles, and of rows in buffers, are computed where they are
    used. Elementwise operations, loads and stores work on registers, reductions
    on registers and by shuffles. What needs elements of other warps or thread
    groups (dots, transposition, top-n, sorting) goes through shared memory,
    between barriers. Control flow depends on scalars only, which are the same in all
    threads, so that barriers may stand inside of it. Every sum has a fixed order.

    A map that multiplies the rows of a tile in the MMA layout with
    factors does nothing where those of a warp are all one.

    An argument's attribute `nsa.alignment` says of which number of bytes its
    address is a multiple; without it a dense argument has 16. A kernel's
    attribute `nsa.min_blocks` says how many blocks its registers have to leave
    room for on a multiprocessor.

    The function has the attributes `nvvm.kernel`, `nvvm.reqntid` and
    `nsa.shared_bytes`: the dynamic shared memory that a launch has to give it.

    With `tile_gpu.producer` one more warpgroup issues the TMA loads of loops with
    `tile_gpu.pipeline`, through mbarriers. The PV GEMM is software-pipelined by
    one iteration. After the pointers the function then has parameters for
    tensor maps of 128 bytes, which the attribute `nsa.tensor_maps` describes.

    The result also needs `convert-tile-gpu-to-nvvm`, `nsa-expand-math` and upstream
    conversions to LLVM.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::nsa::rt::RTDialect",
    "::nsa::tile_gpu::TileGPUDialect"];
  let options = [
    Option<"wgmma", "wgmma", "bool", /*default=*/"false",
           "Whether the target has wgmma, as sm_90a">,
  ];
}

def ConvertTileGPUToNVVM
    : Pass<"convert-tile-gpu-to-nvvm", "::mlir::LLVM::LLVMFuncOp"> {
  let summary = "Lower barriers, fences and waits to NVVM";
  let description = [{
    Each operation becomes one instruction; barriers of the consumers alone have
    the number 1.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::NVVM::NVVMDialect"];
}

def NSAControlFlowToLLVM : Pass<"nsa-control-flow-to-llvm"> {
  let summary = "Lower branches to the LLVM dialect in any operation";
  let description = [{
    Upstream's pass takes a `builtin.module` alone, and `convert-to-llvm` an
    interface that every dialect of the context must have registered.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // NSA_PASSES_TILEGPU_PASSES_TD
