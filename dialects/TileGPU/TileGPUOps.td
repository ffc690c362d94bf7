//===- TileGPUOps.td - memory and threads of a block -------*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILEGPU_TILEGPUOPS_TD
#define NSA_DIALECTS_TILEGPU_TILEGPUOPS_TD

include "dialects/Tile/TileTypes.td"
include "dialects/TileGPU/TileGPUDialect.td"
include "mlir/Interfaces/InferIntRangeInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// Nothing moves across: each of these orders what all threads do.
class TileGPU_Op<string name, list<Trait> traits = []>
    : Op<TileGPU_Dialect, name,
         !listconcat(traits, [MemoryEffects<[MemRead, MemWrite]>])>;

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

def TileGPU_AllocOp : Op<TileGPU_Dialect, "alloc", []> {
  let summary = "a buffer in shared memory";
  let description = [{
    Its columns are cut into parts of `swizzle` bytes, which lie one after
    another, each row by row; within a part vectors of 16 bytes are permuted as
    TMA and wgmma do it with a swizzle of as many bytes. It is free after the
    last use of what is there. `tile-gpu-allocate-shared-memory` says where it
    begins; of several stages, the first one.

    A row or a column of f32 or i32 lies there in order, without a swizzle.

    Example:

    ```mlir
    %k = tile_gpu.alloc swizzle 128 at 4096 : !tile_gpu.memdesc<64x64xbf16>
    ```
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$swizzle,
                       OptionalAttr<I64Attr>:$offset);
  let results = (outs Res<TileGPU_MemDescType, "", [MemAlloc]>:$buffer);
  let assemblyFormat = [{
    (`swizzle` $swizzle^)? (`at` $offset^)? attr-dict `:`
    qualified(type($buffer))
  }];
  let hasVerifier = 1;
}

def TileGPU_AsyncCopyOp : Op<TileGPU_Dialect, "async_copy", [
    AttrSizedOperandSegments]> {
  let summary = "copy elements of global memory to a buffer";
  let description = [{
    The elements that `tile.load` reads at these indices. Threads move `width`
    of them at once, 2, 4 or 8 of 16 bits or 1 or 4 of 32, by asynchronous
    copies; single elements of 16 bits are loaded and stored.

    With `stage`, an offset in bytes, they go to one of several stages of the
    buffer, in a group that an `async_commit` ends. What the first warp of a
    producer copies `signals` an mbarrier instead, where an `mbarrier_arrive` of
    `copies` follows.

    Example:

    ```mlir
    tile_gpu.async_copy %ref[%b, %rows, %h, %cols] to %k width 8
        : memref<1x256x4x64xbf16>, (i32, !tile.tile<64x1xi32, #tile.rematerialized>, i32, !tile.tile<1x64xi32, #tile.rematerialized>)
        to !tile_gpu.memdesc<64x64xbf16>
    ```
  }];
  let arguments = (ins Arg<AnyStaticShapeMemRef, "", [MemRead]>:$ref,
                       Variadic<Tile_Index>:$indices,
                       Arg<TileGPU_MemDescType, "", [MemWrite]>:$buffer,
                       Optional<I32>:$stage,
                       Optional<TileGPU_MBarriersType>:$barriers,
                       Optional<I32>:$index, I64Attr:$width);
  let assemblyFormat = [{
    $ref `[` $indices `]` `to` $buffer (`stage` $stage^)?
    (`signals` $barriers^ `[` $index `]`)? `width` $width attr-dict `:`
    type($ref) `,` `(` type($indices) `)` `to` qualified(type($buffer))
    (`,` qualified(type($barriers))^)?
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$ref,
      "::mlir::ValueRange":$indices, "::mlir::Value":$buffer,
      "::mlir::Value":$stage, "uint64_t":$width), [{
    build($_builder, $_state, ref, indices, buffer, stage, /*barriers=*/{},
          /*index=*/{}, width);
  }]>];
  let extraClassDeclaration = [{
    /// The tile that is copied.
    ::nsa::tile::TileType getTileType();
    bool isAsync();
    bool isLine() { return getBuffer().getType().isLine(); }
  }];
  let hasVerifier = 1;
}

def TileGPU_LocalStoreOp : Op<TileGPU_Dialect, "local_store", []> {
  let summary = "store a tile to a buffer";
  let description = [{
    Example:

    ```mlir
    tile_gpu.local_store %p to %b : !tile.tile<64x64xbf16, #tile.mma<warps = 4>> to !tile_gpu.memdesc<64x64xbf16>
    ```
  }];
  let arguments = (ins Tile_AnyTile:$tile,
                       Arg<TileGPU_MemDescType, "", [MemWrite]>:$buffer);
  let assemblyFormat = [{
    $tile `to` $buffer attr-dict `:` qualified(type($tile)) `to`
    qualified(type($buffer))
  }];
  let hasVerifier = 1;
}

def TileGPU_LocalViewOp : Op<TileGPU_Dialect, "local_view", [Pure]> {
  let summary = "view of a buffer as a tile";
  let description = [{
    Example:

    ```mlir
    %t = tile_gpu.local_view %k : !tile_gpu.memdesc<64x64xbf16> -> !tile.tile<64x64xbf16, #tile.shared>
    ```
  }];
  let arguments = (ins TileGPU_MemDescType:$buffer, Optional<I32>:$stage);
  let results = (outs Tile_AnyTile:$tile);
  let assemblyFormat = [{
    $buffer (`stage` $stage^)? attr-dict `:` qualified(type($buffer)) `->`
    qualified(type($tile))
  }];
  let hasVerifier = 1;
}

def TileGPU_LocalLoadOp : Op<TileGPU_Dialect, "local_load", []> {
  let summary = "load a row or a column from a buffer";
  let description = [{
    Elements of a row may be loaded at each use.

    Example:

    ```mlir
    %l = tile_gpu.local_load %b stage %s : !tile_gpu.memdesc<1x64xf32> -> !tile.tile<1x64xf32, #tile.mma<warps = 4>>
    ```
  }];
  let arguments = (ins Arg<TileGPU_MemDescType, "", [MemRead]>:$buffer,
                       Optional<I32>:$stage);
  let results = (outs Tile_AnyTile:$tile);
  let assemblyFormat = [{
    $buffer (`stage` $stage^)? attr-dict `:` qualified(type($buffer)) `->`
    qualified(type($tile))
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Copies ahead
//===----------------------------------------------------------------------===//

def TileGPU_IterationOp : Op<TileGPU_Dialect, "iteration", [
    Pure, DeclareOpInterfaceMethods<InferIntRangeInterface,
                                    ["inferResultRanges"]>]> {
  let summary = "the induction variable of another iteration";
  let description = [{
    `value`, which is used only where it is at least `lower` and less than
    `upper`, as the loop's own induction variable.

    Example:

    ```mlir
    %n = tile_gpu.iteration %next from %lower to %upper
    ```
  }];
  let arguments = (ins I32:$value, I32:$lower, I32:$upper);
  let results = (outs I32:$result);
  let assemblyFormat = "$value `from` $lower `to` $upper attr-dict";
}

def TileGPU_CopyIfOp : TileGPU_Op<"copy_if", [
    NoTerminator, NoRegionArguments, SingleBlock]> {
  let summary = "prefetch for a later iteration, if there is one";
  let description = [{
    The condition is uniform. Nothing in it waits: the next `async_commit` commits
    the copies.

    Example:

    ```mlir
    tile_gpu.copy_if %more {
      tile_gpu.async_copy %x[%n, %c] to %k stage %s width 8
          : memref<64x16xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
          to !tile_gpu.memdesc<16x16xbf16>
    }
    ```
  }];
  let arguments = (ins I1:$condition);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$condition $body attr-dict";
}

//===----------------------------------------------------------------------===//
// Branches of warps
//===----------------------------------------------------------------------===//

def TileGPU_WarpIfOp : Op<TileGPU_Dialect, "warp_if", [
    NoRegionArguments, RecursiveMemoryEffects, SingleBlock]> {
  let summary = "a warp-divergent branch: each warp decides for its rows";
  let description = [{
    A warp takes the first region if one of its rows is true, else the second
    one; so rows that are false are left alone in both. The results are MMA
    tiles, of which each warp has its rows. Neither region synchronizes
    with other warps.

    Example:

    ```mlir
    %o = tile_gpu.warp_if %rows : !tile.tile<64x1xi1, #tile.mma<warps = 4>> -> !tile.tile<64x1xf32, #tile.mma<warps = 4>> {
      tile_gpu.yield %sum : !tile.tile<64x1xf32, #tile.mma<warps = 4>>
    } else {
      tile_gpu.yield %before : !tile.tile<64x1xf32, #tile.mma<warps = 4>>
    }
    ```
  }];
  let arguments = (ins TileOf<[I1]>:$rows);
  let results = (outs Variadic<Tile_TileType>:$results);
  let regions = (region SizedRegion<1>:$thenRegion, SizedRegion<1>:$elseRegion);
  let assemblyFormat = [{
    $rows `:` qualified(type($rows)) `->` qualified(type($results)) $thenRegion
    `else` $elseRegion attr-dict
  }];
  let hasVerifier = 1;
}

def TileGPU_YieldOp : Op<TileGPU_Dialect, "yield", [
    Pure, Terminator, HasParent<"WarpIfOp">]> {
  let summary = "terminator of `tile_gpu.warp_if`";
  let arguments = (ins Variadic<Tile_TileType>:$results);
  let assemblyFormat = "$results attr-dict `:` qualified(type($results))";
}

//===----------------------------------------------------------------------===//
// Warp specialization
//===----------------------------------------------------------------------===//

def TileGPU_MBarriersOp : Op<TileGPU_Dialect, "mbarriers", [Pure]> {
  let summary = "mbarriers with an arrival count";
  let description = [{
    They lie at `offset` in shared memory, 8 bytes each.

    Example:

    ```mlir
    %full = tile_gpu.mbarriers arrivals 1 at 65536 : !tile_gpu.mbarriers<4>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$arrivals,
                       I64Attr:$offset);
  let results = (outs TileGPU_MBarriersType:$barriers);
  let assemblyFormat = [{
    `arrivals` $arrivals `at` $offset attr-dict `:` qualified(type($barriers))
  }];
  let extraClassDeclaration = [{
    /// Where the mbarrier of a number lies.
    int64_t getAddress(int64_t index) {
      return int64_t(getOffset()) + index * kMBarrierBytes;
    }
  }];
}

def TileGPU_MBarrierInitOp : TileGPU_Op<"mbarrier_init"> {
  let summary = "initialize mbarriers before any thread uses them";
  let description = [{
    One thread initializes them, and all wait for it: full and empty mbarriers of
    stages, and those of tiles that are loaded once.

    Example:

    ```mlir
    tile_gpu.mbarrier_init %full, %empty : !tile_gpu.mbarriers<4>, !tile_gpu.mbarriers<4>
    ```
  }];
  let arguments = (ins TileGPU_MBarriersType:$full, TileGPU_MBarriersType:$empty,
                       Optional<TileGPU_MBarriersType>:$kept);
  let assemblyFormat = [{
    $full `,` $empty (`,` $kept^)? attr-dict `:` qualified(type($full)) `,`
    qualified(type($empty)) (`,` qualified(type($kept))^)?
  }];
}

/// Of the mbarrier of a number among those in sequence.
class TileGPU_MBarrierOp<string name, dag more, string syntax>
    : TileGPU_Op<name> {
  let arguments = !con((ins TileGPU_MBarriersType:$barriers, I32:$index), more);
  let assemblyFormat = "$barriers `[` $index `]` " # syntax #
                       " attr-dict `:` qualified(type($barriers))";
}

def TileGPU_MBarrierWaitOp : TileGPU_MBarrierOp<"mbarrier_wait",
    (ins I32:$parity), "`parity` $parity"> {
  let summary = "wait for a phase of an mbarrier to complete";
  let description = [{
    The phase of this parity, 0 for the first one.

    Example:

    ```mlir
    tile_gpu.mbarrier_wait %full[%stage] parity %phase : !tile_gpu.mbarriers<4>
    ```
  }];
}

def TileGPU_MBarrierExpectOp : TileGPU_MBarrierOp<"mbarrier_expect",
    (ins I64Attr:$bytes, UnitAttr:$elect), "`bytes` $bytes (`elect` $elect^)?"> {
  let summary = "arrive at an mbarrier and expect bytes";
  let description = [{
    The thread does, or with `elect` the first one of the producer's warps.

    Example:

    ```mlir
    tile_gpu.mbarrier_expect %full[%stage] bytes 16384 : !tile_gpu.mbarriers<4>
    ```
  }];
}

def TileGPU_MBarrierArriveOp : TileGPU_MBarrierOp<"mbarrier_arrive",
    (ins Optional<I1>:$condition, UnitAttr:$copies, UnitAttr:$each),
    "(`if` $condition^)? (`copies` $copies^)? (`each` $each^)?"> {
  let summary = "consumer release: a warp has read a stage";
  let description = [{
    One thread arrives for the warp once all have read, if the condition holds.
    With `each` every thread arrives, where a producer's threads copy to the stage:
    racecheck orders these copies after what a thread read before its own arrival.
    With `copies` each thread of a producer's first warp arrives when what it
    copies has arrived.

    Example:

    ```mlir
    tile_gpu.mbarrier_arrive %empty[%stage] if %later : !tile_gpu.mbarriers<4>
    ```
  }];
}

def TileGPU_TmaLoadOp : Op<TileGPU_Dialect, "tma_load", [AttrSizedOperandSegments]> {
  let summary = "load a tile by TMA to a buffer, or to a stage of it";
  let description = [{
    By the tensor map of this number in `nsa.tensor_maps` of the kernel, from
    coordinates that begin with the innermost one. Its bytes arrive at an
    mbarrier. `evict_last` is the L2 eviction policy.

    With `rows` a box has so many rows of the tile: the lanes of a warp gather
    one each, from coordinates of their own. Where the producer has several,
    `warps` names the one that loads the boxes of each swizzle atom column.

    Example:

    ```mlir
    tile_gpu.tma_load map 0[%c0, %head, %key, %batch] to %k stage %s signals %full[%stage] evict_last
        : !tile_gpu.memdesc<64x64xbf16>, !tile_gpu.mbarriers<4>
    ```
  }];
  let arguments = (ins I64Attr:$map, Variadic<I32>:$start,
                       Arg<TileGPU_MemDescType, "", [MemWrite]>:$buffer,
                       Optional<I32>:$stage, TileGPU_MBarriersType:$barriers,
                       I32:$index, UnitAttr:$evict_last,
                       OptionalAttr<I64Attr>:$rows,
                       OptionalAttr<DenseI64ArrayAttr>:$warps);
  let assemblyFormat = [{
    `map` $map `[` $start `]` `to` $buffer (`stage` $stage^)? `signals`
    $barriers `[` $index `]` (`evict_last` $evict_last^)? (`rows` $rows^)?
    (`warps` $warps^)? attr-dict `:` qualified(type($buffer)) `,`
    qualified(type($barriers))
  }];
}

def TileGPU_ToLanesOp : Op<TileGPU_Dialect, "to_lanes", [Pure]> {
  let summary = "elements of a row or a column, one for each lane";
  let description = [{
    Lane `k` has element `k * group`, lanes beyond the end the last of these.

    Example:

    ```mlir
    %own = tile_gpu.to_lanes %query group 16 : !tile.tile<64x1xi32, #tile.rematerialized>
    ```
  }];
  let arguments = (ins Tile_I32Tile:$tile,
                       ConfinedAttr<I64Attr, [IntPositive]>:$group);
  let results = (outs I32:$own);
  let assemblyFormat = "$tile `group` $group attr-dict `:` qualified(type($tile))";
}

def TileGPU_FromLanesOp : Op<TileGPU_Dialect, "from_lanes", [Pure]> {
  let summary = "a row or a column of what lanes have";
  let description = [{
    Element `k` is what lane `k / group` has: a shuffle of the whole warp where
    it is used.

    Example:

    ```mlir
    %query = tile_gpu.from_lanes %own group 16 : !tile.tile<64x1xi32, #tile.rematerialized>
    ```
  }];
  let arguments = (ins I32:$own, ConfinedAttr<I64Attr, [IntPositive]>:$group);
  let results = (outs Tile_I32Tile:$tile);
  let assemblyFormat = "$own `group` $group attr-dict `:` qualified(type($tile))";
}

def TileGPU_WarpSpecializeOp : TileGPU_Op<"warp_specialize", [
    NoTerminator, NoRegionArguments, SingleBlock]> {
  let summary = "roles of the producer and the consumer warpgroups";
  let description = [{
    A thread of the producer runs the first region, with `warps` all of so many
    of its warps, and all threads of the others the second one; `blocks` are to run on a
    multiprocessor at once. With register
    reallocation, a thread has `launch` registers at launch, then those of its
    role.

    Example:

    ```mlir
    tile_gpu.warp_specialize blocks 1 launch 168 registers [24, 240] producer {
      tile_gpu.mbarrier_expect %full[%stage] bytes 16384 : !tile_gpu.mbarriers<4>
    } consumer {
      tile_gpu.mbarrier_wait %full[%stage] parity %phase : !tile_gpu.mbarriers<4>
    }
    ```
  }];
  let arguments = (ins I64Attr:$blocks, OptionalAttr<I64Attr>:$launch_registers,
                       OptionalAttr<DenseI64ArrayAttr>:$registers,
                       OptionalAttr<ConfinedAttr<I64Attr,
                           [IntMinValue<1>, IntMaxValue<4>]>>:$warps);
  let regions = (region SizedRegion<1>:$producer, SizedRegion<1>:$consumer);
  let assemblyFormat = [{
    `blocks` $blocks (`launch` $launch_registers^ `registers` $registers)?
    `producer` (`warps` $warps^)? $producer `consumer` $consumer attr-dict
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Synchronization
//===----------------------------------------------------------------------===//

def TileGPU_BarrierOp : TileGPU_Op<"barrier"> {
  let summary = "all threads of the block wait for each other";
  let description = [{
    In the consumer region of a warp-specialized kernel only the consumers take
    part.

    Example:

    ```mlir
    tile_gpu.barrier
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def TileGPU_AnyThreadOp : TileGPU_Op<"any_thread"> {
  let summary = "a barrier that ors a condition over the threads";
  let description = [{
    Example:

    ```mlir
    %some = tile_gpu.any_thread %own
    ```
  }];
  let arguments = (ins I1:$condition);
  let results = (outs I1:$result);
  let assemblyFormat = "$condition attr-dict";
}

def TileGPU_AsyncCommitOp : TileGPU_Op<"async_commit"> {
  let summary = "commits a group of asynchronous copies of each thread";
  let description = [{
    Example:

    ```mlir
    tile_gpu.async_commit
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def TileGPU_AsyncWaitOp : TileGPU_Op<"async_wait"> {
  let summary = "waits for all but the newest copy groups of the thread";
  let description = [{
    Example:

    ```mlir
    tile_gpu.async_wait pending 1
    ```
  }];
  let arguments = (ins ConfinedAttr<I32Attr, [IntNonNegative]>:$pending);
  let assemblyFormat = "`pending` $pending attr-dict";
}

def TileGPU_FenceAsyncOp : TileGPU_Op<"fence_async"> {
  let summary = "makes the thread's shared-memory writes visible to wgmma";
  let description = [{
    Warpgroups read shared memory through the async proxy, threads write it
    through the generic one.

    Example:

    ```mlir
    tile_gpu.fence_async
    ```
  }];
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Groups of wgmma
//===----------------------------------------------------------------------===//

class TileGPU_PassThroughOp<string name> : TileGPU_Op<name, [
    RangedTypesMatchWith<"results have the types of the operands", "values",
                         "results", "$_self">,
    PredOpTrait<"there are sums", CPred<"$_op.getNumResults() > 0">>]> {
  let results = (outs Variadic<AnyType>:$results);
}

def TileGPU_WgmmaCommitOp : TileGPU_PassThroughOp<"wgmma_commit"> {
  let summary = "commits a group of wgmma, whose sums are in flight";
  let description = [{
    The results are the sums, which may be used after a `wgmma_wait` only.

    Example:

    ```mlir
    %r:2 = tile_gpu.wgmma_commit %a, %b : f32, f32
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def TileGPU_WgmmaWaitOp : TileGPU_PassThroughOp<"wgmma_wait"> {
  let summary = "waits for all but the newest groups of wgmma";
  let description = [{
    Of tiles, or of what a thread holds of them.

    Example:

    ```mlir
    %r:2 = tile_gpu.wgmma_wait pending 1 %a, %b : f32, f32
    ```
  }];
  let arguments = (ins ConfinedAttr<I32Attr, [IntNonNegative]>:$pending,
                       Variadic<AnyType>:$values);
  let assemblyFormat = "`pending` $pending $values attr-dict `:` type($values)";
}

#endif // NSA_DIALECTS_TILEGPU_TILEGPUOPS_TD
