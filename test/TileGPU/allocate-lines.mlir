// RUN: nsa-opt %s --tile-gpu-allocate-shared-memory=stages=3 | FileCheck %s

// A row that a loop with copies ahead loads gets a buffer after its tiles, and
// is copied too; one that depends on an iteration's result stays a load.

!rows = !tile.tile<16x1xi32, #tile.rematerialized>
!cols = !tile.tile<1x16xi32, #tile.rematerialized>
!row = !tile.tile<1x16xf32, #tile.mma<warps = 1>>

// CHECK: #[[PIPELINE:.*]] = #tile_gpu.pipeline<stages = 3, bytes = 2048, offset = 0>
// CHECK: tile.kernel private @loop
tile.kernel private @loop(%x: memref<64x16xbf16>, %s: memref<4x16xf32>, %list: memref<4xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %r = tile.range %c0 : !rows
  %c = tile.range %c0 : !cols
  %last = scf.for %i = %c0 to %c4 step %c1 iter_args(%before = %c0) -> (i32) : i32 {
    // CHECK: tile_gpu.alloc swizzle 32 at 0 : !tile_gpu.memdesc<16x16xbf16>
    %0 = tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<16x16xbf16>
    tile_gpu.async_copy %x[%r, %c] to %0 width 8 : memref<64x16xbf16>, (!rows, !cols) to !tile_gpu.memdesc<16x16xbf16>
    %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x16xbf16> -> !tile.tile<16x16xbf16, #tile.shared>
    // CHECK: %[[LINE:.*]] = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x16xf32>
    // CHECK-NEXT: tile_gpu.async_copy %{{.*}} to %[[LINE]] width 4
    // CHECK: tile_gpu.local_load %[[LINE]]
    %2 = tile.load %s[%i, %c] : memref<4x16xf32>, (i32, !cols) -> !row
    // CHECK: tile.load %{{.*}} : memref<4x16xf32>
    %3 = tile.load %s[%before, %c] : memref<4x16xf32>, (i32, !cols) -> !row
    %4 = tile.map (%2, %3 : !row, !row) -> !row {
    ^bb0(%a: f32, %b: f32):
      %sum = arith.addf %a, %b : f32
      tile.yield %sum : f32
    }
    %next = tile.load %list[%i] : memref<4xi32>, (i32) -> i32
    scf.yield %next : i32
  }
  // CHECK: tile_gpu.pipeline = #[[PIPELINE]]
  tile.return
}
