// RUN: nsa-opt %s --verify-roundtrip

func.func @buffers(%x: memref<16x64xbf16>, %i: i32, %rows: !tile.tile<16x64xi32, #tile.rematerialized>, %tile: !tile.tile<16x64xbf16>) -> !tile.tile<16x64xbf16, #tile.shared> {
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.async_copy %x[%rows, %i] to %0 width 8 : memref<16x64xbf16>, (!tile.tile<16x64xi32, #tile.rematerialized>, i32) to !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.local_store %tile to %0 : !tile.tile<16x64xbf16> to !tile_gpu.memdesc<16x64xbf16>
  %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x64xbf16> -> !tile.tile<16x64xbf16, #tile.shared>
  return %1 : !tile.tile<16x64xbf16, #tile.shared>
}

func.func @accesses(%x: memref<8xf32>) {
  tile_gpu.global_access read %x : memref<8xf32>
  tile_gpu.global_access write %x owners 3 : memref<8xf32>
  tile_gpu.shared_access arrive 512 bytes at 1024
  tile_gpu.reuse
  return
}

func.func @synchronization(%x: i1, %y: f32) {
  tile_gpu.barrier threads 128
  %0 = tile_gpu.any_thread %x threads 128
  tile_gpu.async_commit
  tile_gpu.async_wait pending 1
  tile_gpu.fence_async
  %1:2 = tile_gpu.wgmma_commit %y, %y : f32, f32
  %2:2 = tile_gpu.wgmma_wait pending 0 %1#0, %1#1 : f32, f32
  tile_gpu.wgmma_use %1#0 : f32
  tile_gpu.wgmma_use
  return
}
