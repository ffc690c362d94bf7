// RUN: nsa-opt %s --verify-roundtrip

func.func @buffers(%x: memref<16x64xbf16>, %i: i32, %rows: !tile.tile<16x64xi32, #tile.rematerialized>, %tile: !tile.tile<16x64xbf16>) -> !tile.tile<16x64xbf16, #tile.shared> {
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.async_copy %x[%rows, %i] to %0 width 8 : memref<16x64xbf16>, (!tile.tile<16x64xi32, #tile.rematerialized>, i32) to !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.local_store %tile to %0 : !tile.tile<16x64xbf16> to !tile_gpu.memdesc<16x64xbf16>
  %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x64xbf16> -> !tile.tile<16x64xbf16, #tile.shared>
  return %1 : !tile.tile<16x64xbf16, #tile.shared>
}

func.func @lines(%x: memref<16x64xf32>, %i: i32, %cols: !tile.tile<1x64xi32>, %stage: i32, %more: i1) -> !tile.tile<1x64xf32> {
  %0 = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x64xf32>
  tile_gpu.copy_if %more {
    %1 = tile_gpu.iteration %i from %i to %stage
    tile_gpu.async_copy %x[%1, %cols] to %0 stage %stage width 4 : memref<16x64xf32>, (i32, !tile.tile<1x64xi32>) to !tile_gpu.memdesc<1x64xf32>
  }
  %2 = tile_gpu.local_load %0 stage %stage : !tile_gpu.memdesc<1x64xf32> -> !tile.tile<1x64xf32>
  return %2 : !tile.tile<1x64xf32>
}

func.func @roles(%i: i32, %phase: i32, %later: i1) {
  %0 = tile_gpu.alloc swizzle 128 at 0 : !tile_gpu.memdesc<16x64xbf16>
  %full = tile_gpu.mbarriers arrivals 1 at 2048 : !tile_gpu.mbarriers<2>
  %empty = tile_gpu.mbarriers arrivals 4 at 2064 : !tile_gpu.mbarriers<2>
  tile_gpu.mbarrier_init %full, %empty : !tile_gpu.mbarriers<2>, !tile_gpu.mbarriers<2>
  tile_gpu.warp_specialize blocks 2 producer {
    tile_gpu.mbarrier_expect %full[%i] bytes 2048 : !tile_gpu.mbarriers<2>
    tile_gpu.tma_load map 0[%i, %i] to %0 signals %full[%i] : !tile_gpu.memdesc<16x64xbf16>, !tile_gpu.mbarriers<2>
  } consumer {
    tile_gpu.mbarrier_wait %full[%i] parity %phase : !tile_gpu.mbarriers<2>
    tile_gpu.mbarrier_arrive %empty[%i] if %later : !tile_gpu.mbarriers<2>
  }
  return
}

func.func @synchronization(%x: i1, %y: f32) {
  tile_gpu.barrier
  %0 = tile_gpu.any_thread %x
  tile_gpu.async_commit
  tile_gpu.async_wait pending 1
  tile_gpu.fence_async
  %1:2 = tile_gpu.wgmma_commit %y, %y : f32, f32
  %2:2 = tile_gpu.wgmma_wait pending 0 %1#0, %1#1 : f32, f32
  return
}
