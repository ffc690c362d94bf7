// RUN: nsa-opt %s | nsa-opt | FileCheck %s

// CHECK-LABEL: func.func @buffers
func.func @buffers(%x: memref<16x64xbf16>, %i: i32, %rows: !tile.tile<16x64xi32, #tile.rematerialized>, %tile: !tile.tile<16x64xbf16>) -> !tile.tile<16x64xbf16, #tile.shared> {
  // CHECK: %[[BUFFER:.*]] = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  // CHECK-NEXT: tile_gpu.async_copy %{{.*}}[%{{.*}}, %{{.*}}] to %[[BUFFER]] width 8
  // CHECK: : memref<16x64xbf16>, (!tile.tile<{{.*}}>, i32) to !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.async_copy %x[%rows, %i] to %0 width 8 : memref<16x64xbf16>, (!tile.tile<16x64xi32, #tile.rematerialized>, i32) to !tile_gpu.memdesc<16x64xbf16>
  // CHECK: tile_gpu.local_store %{{.*}} to %[[BUFFER]] : !tile.tile<16x64xbf16> to !tile_gpu.memdesc<16x64xbf16>
  tile_gpu.local_store %tile to %0 : !tile.tile<16x64xbf16> to !tile_gpu.memdesc<16x64xbf16>
  // CHECK: tile_gpu.local_view %[[BUFFER]] : !tile_gpu.memdesc<16x64xbf16> -> !tile.tile<16x64xbf16, #{{.*}}>
  %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x64xbf16> -> !tile.tile<16x64xbf16, #tile.shared>
  return %1 : !tile.tile<16x64xbf16, #tile.shared>
}

// CHECK-LABEL: func.func @accesses
func.func @accesses(%x: memref<8xf32>) {
  // CHECK-NEXT: tile_gpu.global_access read %{{.*}} : memref<8xf32>
  // CHECK-NEXT: tile_gpu.global_access write %{{.*}} owners 3 : memref<8xf32>
  tile_gpu.global_access read %x : memref<8xf32>
  tile_gpu.global_access write %x owners 3 : memref<8xf32>
  // CHECK-NEXT: tile_gpu.shared_access arrive 512 bytes at 1024
  // CHECK-NEXT: tile_gpu.reuse
  tile_gpu.shared_access arrive 512 bytes at 1024
  tile_gpu.reuse
  return
}

// CHECK-LABEL: func.func @synchronization
func.func @synchronization(%x: i1, %y: f32) {
  // CHECK-NEXT: tile_gpu.barrier threads 128
  // CHECK-NEXT: tile_gpu.any_thread %{{.*}} threads 128
  // CHECK-NEXT: tile_gpu.async_commit{{$}}
  // CHECK-NEXT: tile_gpu.async_wait pending 1
  // CHECK-NEXT: tile_gpu.fence_async
  tile_gpu.barrier threads 128
  %0 = tile_gpu.any_thread %x threads 128
  tile_gpu.async_commit
  tile_gpu.async_wait pending 1
  tile_gpu.fence_async
  // CHECK-NEXT: %[[R:.*]]:2 = tile_gpu.wgmma_commit %{{.*}}, %{{.*}} : f32, f32
  // CHECK-NEXT: tile_gpu.wgmma_wait pending 0 %[[R]]#0, %[[R]]#1 : f32, f32
  // CHECK-NEXT: tile_gpu.wgmma_use %[[R]]#0 : f32
  // CHECK-NEXT: tile_gpu.wgmma_use{{$}}
  %1:2 = tile_gpu.wgmma_commit %y, %y : f32, f32
  %2:2 = tile_gpu.wgmma_wait pending 0 %1#0, %1#1 : f32, f32
  tile_gpu.wgmma_use %1#0 : f32
  tile_gpu.wgmma_use
  return
}
