// RUN: nsa-opt %s --tile-gpu-insert-barriers --allow-unregistered-dialect | FileCheck %s

!a = !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
!b = !tile.tile<16x16xbf16, #tile.shared>
!d = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!p = !tile.tile<16x16xbf16, #tile.mma<warps = 4>>
!buffer = !tile_gpu.memdesc<16x16xbf16>
#wgmma = #tile_gpu.mma<version = 3>

// Warpgroups finish before their sums are used, the older dot first, and before
// a barrier; after it they see what threads stored.
// CHECK-LABEL: @dots
tile.kernel private @dots(%x: memref<1xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 1024 : i64, nsa.shared_bytes = 1024 : i64} {
  %zero = arith.constant 0.0 : f32
  %none = tile.splat %zero : !d
  %a = "test.tile"() : () -> !a
  %p = "test.tile"() : () -> !p
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %v = tile_gpu.local_view %0 : !buffer -> !b
  // CHECK: %[[X:.*]] = tile.dot
  // CHECK-NEXT: %[[Y:.*]] = tile.dot
  %d = tile.dot %a, %v, %none {tile_gpu.mma = #wgmma} : !a, !b, !d
  %e = tile.dot %a, %v, %none {tile_gpu.mma = #wgmma} : !a, !b, !d
  // CHECK-NEXT: %[[XDONE:.*]] = tile_gpu.wgmma_wait pending 1 %[[X]]
  // CHECK-NEXT: "test.use"(%[[XDONE]])
  "test.use"(%d) : (!d) -> ()
  // CHECK-NEXT: tile_gpu.alloc
  // CHECK-NEXT: %[[YDONE:.*]] = tile_gpu.wgmma_wait pending 0 %[[Y]]
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile_gpu.local_store
  %1 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  tile_gpu.local_store %p to %1 : !p to !buffer
  // CHECK-NEXT: tile_gpu.fence_async
  // CHECK-NEXT: tile_gpu.barrier
  tile_gpu.barrier
  // CHECK-NEXT: "test.use"(%[[YDONE]])
  "test.use"(%e) : (!d) -> ()
  tile.return
}

// Where a stage is free again dots have read it; the reads of TMA loads come
// before stores of the consumers.
// CHECK-LABEL: @roles
tile.kernel private @roles(%x: memref<16x16xbf16>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 1024 : i64, nsa.shared_bytes = 1024 : i64,
                nsa.tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 16, 16>, strides = array<i64: 32>,
                                                  box = array<i64: 16, 16>, swizzle = 32>]} {
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %full = tile_gpu.mbarriers arrivals 1 at 512 : !tile_gpu.mbarriers<1>
  %empty = tile_gpu.mbarriers arrivals 4 at 520 : !tile_gpu.mbarriers<1>
  tile_gpu.mbarrier_init %full, %empty : !tile_gpu.mbarriers<1>, !tile_gpu.mbarriers<1>
  tile_gpu.warp_specialize blocks 1 producer {
    // CHECK: producer {
    // CHECK-NOT: tile_gpu.barrier
    %c0 = arith.constant 0 : i32
    tile_gpu.tma_load map 0[%c0, %c0] to %0 signals %full[%c0] : !buffer, !tile_gpu.mbarriers<1>
  } consumer {
    // CHECK: consumer {
    %c0 = arith.constant 0 : i32
    %zero = arith.constant 0.0 : f32
    %none = tile.splat %zero : !d
    %r = tile.range %c0 : !tile.tile<64x1xi32, #tile.rematerialized>
    %c = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
    %a = "test.tile"() : () -> !a
    tile_gpu.mbarrier_wait %full[%c0] parity %c0 : !tile_gpu.mbarriers<1>
    %v = tile_gpu.local_view %0 : !buffer -> !b
    // CHECK: tile.dot
    // CHECK-NEXT: tile_gpu.wgmma_wait pending 0
    // CHECK-NEXT: tile_gpu.mbarrier_arrive
    // CHECK-NEXT: tile_gpu.barrier
    // CHECK-NEXT: tile.store
    %d = tile.dot %a, %v, %none {tile_gpu.mma = #wgmma} : !a, !b, !d
    tile_gpu.mbarrier_arrive %empty[%c0] : !tile_gpu.mbarriers<1>
    tile.store %d, %y[%r, %c] : !d, memref<64x16xf32>, (!tile.tile<64x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
  }
  tile.return
}
