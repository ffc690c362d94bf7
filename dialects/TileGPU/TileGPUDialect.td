//===- TileGPUDialect.td - what the GPU target decides -----*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_TD
#define NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/TensorEncoding.td"

def TileGPU_Dialect : Dialect {
  let name = "tile_gpu";
  let cppNamespace = "::nsa::tile_gpu";
  let summary = "Layouts, instructions and barriers of tile kernels on GPUs";
  let description = [{
    What `tile-gpu-assign-layouts` writes on tile kernels and code generation
    only reads:

    | on | what |
    |---|---|
    | types of tiles | `#tile_gpu.blocked`, where they have none of `#tile.mma`, `#tile.shared` and `#tile.rematerialized` |
    | `tile.dot` | `tile_gpu.mma`, a `#tile_gpu.mma`: the instructions that multiply MMA tiles |
    | `tile.kernel` | `tile_gpu.threads`, an i32: the threads of a block that compute. Every tile of the kernel has a layout for as many |

    It also turns warp-divergent branches into `tile_gpu.warp_if`.

    What `tile-gpu-promote-to-shared` makes of loads and converts to
    `#tile.shared`: buffers (`tile_gpu.alloc`), what fills them
    (`tile_gpu.async_copy`, `tile_gpu.local_store`), and the tiles that
    operations read there (`tile_gpu.local_view`).

    What `tile-gpu-allocate-shared-memory` decides:

    | on | what |
    |---|---|
    | `tile_gpu.alloc` | its offset in shared memory |
    | `scf.for` | `tile_gpu.pipeline`, a `#tile_gpu.pipeline`: the loop copies ahead, which `tile-gpu-pipeline` expands |
    | `tile.kernel` | `tile_gpu.producer`, a `#tile_gpu.producer`: a producer warpgroup issues the loads of all of these loops |
    | `tile.kernel` | `tile_gpu.scratch`, an i64: the offset of scratch for layout conversions; and `nsa.shared_bytes`, all that a block takes |

    What `tile-gpu-pipeline` and `tile-gpu-warp-specialize` make of these loops
    are operations: stages that loops carry, copies ahead, roles of warpgroups and
    their mbarriers. `tile-gpu-insert-barriers` adds barriers, fences and waits.

    `nsa-tile-to-nvvm` writes `tile_gpu.consumers` on the `scf.if` of roles, an
    i32: the first so many threads of the block run the branch and meet at its
    barriers. `convert-tile-gpu-to-nvvm` removes it.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

class TileGPU_Attr<string name, string mnemonic_, list<Trait> traits = []>
    : AttrDef<TileGPU_Dialect, name, traits> {
  let mnemonic = mnemonic_;
  let assemblyFormat = "`<` struct(params) `>`";
  let genMnemonicAlias = 1;
  let genVerifyDecl = 1;
}

def TileGPU_BlockedAttr : TileGPU_Attr<"Blocked", "blocked", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "registers in a blocked layout over the threads of a block";
  let description = [{
    Of the block's `threads`, `threads_per_row` in sequence share a row, and
    neighbouring groups neighbouring rows; with more rows than groups, the first
    group also has the row past the last one's, and so on. A thread holds
    `width` columns that lie together, its neighbour the next ones, and so on
    along the row. A dimension of size one is repeated in all threads that share
    it.

    A group is a warp at most, unless there is only one row. Where operations
    meet tiles whose blocked layouts differ, threads exchange elements through
    shared memory.

    Example: `#tile_gpu.blocked<threads = 256, threads_per_row = 8, width = 4>`
  }];
  let parameters = (ins "int64_t":$threads, "int64_t":$threads_per_row,
                        "int64_t":$width);
}

def TileGPU_MemDescType : TypeDef<TileGPU_Dialect, "MemDesc"> {
  let mnemonic = "memdesc";
  let summary = "a buffer in the shared memory of a block";
  let description = [{
    `!tile_gpu.memdesc<64x32xbf16>` has 64 rows and 32 columns of 16-bit
    elements; of f32 or i32 there are rows and columns. How they lie there is an attribute of the `tile_gpu.alloc` that
    makes it.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape,
                        "::mlir::Type":$elementType);
  let builders = [
    TypeBuilderWithInferredContext<(ins "::llvm::ArrayRef<int64_t>":$shape,
                                        "::mlir::Type":$elementType), [{
      return $_get(elementType.getContext(), shape, elementType);
    }]>
  ];
  let extraClassDeclaration = [{
    /// Whether it is a row or a column of 32-bit elements, in order.
    bool isLine() const {
      return getElementType().getIntOrFloatBitWidth() == 32;
    }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def TileGPU_PipelineAttr : TileGPU_Attr<"Pipeline", "pipeline"> {
  let summary = "the stages of a loop's buffers in shared memory";
  let description = [{
    An iteration reads a stage of `bytes` of shared memory, of which there are
    `stages` in sequence from `offset`: while an iteration computes on one, copies
    fill the others: those of its own threads, or with `producer` TMA loads of the
    producer warpgroup.

    Example: `#tile_gpu.pipeline<stages = 3, bytes = 16384, offset = 0>`
  }];
  let parameters = (ins "int64_t":$stages, "int64_t":$bytes, "int64_t":$offset,
                        DefaultValuedParameter<"bool", "false">:$producer);
}

def TileGPU_ProducerAttr : TileGPU_Attr<"Producer", "producer"> {
  let summary = "a producer warpgroup that issues TMA loads";
  let description = [{
    All loops that it loads for share one pipeline. Its mbarriers lie at
    `barriers` in shared memory. Registers are allocated so that `blocks` run on a
    multiprocessor at once.

    Example: `#tile_gpu.producer<barriers = 65536, blocks = 2>`
  }];
  let parameters = (ins "int64_t":$barriers, "int64_t":$blocks);
}

def TileGPU_MBarriersType : TypeDef<TileGPU_Dialect, "MBarriers"> {
  let mnemonic = "mbarriers";
  let summary = "mbarriers in sequence in the shared memory of a block";
  let parameters = (ins "int64_t":$count);
  let assemblyFormat = "`<` $count `>`";
  let genVerifyDecl = 1;
}

def TileGPU_MmaAttr : TileGPU_Attr<"Mma", "mma"> {
  let summary = "the instructions that multiply tiles on tensor cores";
  let description = [{
    Version 2 is `mma.sync` of single warps, version 3 `wgmma` of four warps in
    sequence, on sm_90a.

    Example: `#tile_gpu.mma<version = 3>`
  }];
  let parameters = (ins "int64_t":$version);
}

#endif // NSA_DIALECTS_TILEGPU_TILEGPUDIALECT_TD
