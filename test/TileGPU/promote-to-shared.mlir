// RUN: nsa-opt %s --tile-gpu-promote-to-shared | FileCheck %s

// A load becomes a buffer, a copy to it and what its uses read; 33 columns lie
// in no two pieces of 16 bits that are aligned, so that threads copy each, and
// in rows of 96 bytes, which 32 divide. So does a convert, which stores.

!row = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x64xi32, #tile.rematerialized>
!odd = !tile.tile<1x33xi32, #tile.rematerialized>
!shared = !tile.tile<16x64xbf16, #tile.shared>
!mma = !tile.tile<16x64xbf16, #tile.mma<warps = 1>>

// CHECK-LABEL: tile.kernel private @promote
tile.kernel private @promote(%x: memref<16x64xbf16>, %y: memref<16x33xbf16>, %z: memref<16x64xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %d = tile.range %c0 : !odd
  // CHECK: %[[BUFFER:.*]] = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  // CHECK-NEXT: tile_gpu.async_copy %{{.*}}[%{{.*}}, %{{.*}}] to %[[BUFFER]] width 8
  // CHECK: %[[VIEW:.*]] = tile_gpu.local_view %[[BUFFER]]
  %a = tile.load %x[%r, %c] : memref<16x64xbf16>, (!row, !col) -> !shared
  // CHECK: tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<16x33xbf16>
  // CHECK-NEXT: tile_gpu.async_copy {{.*}} width 1
  %b = tile.load %y[%r, %d] : memref<16x33xbf16>, (!row, !odd) -> !tile.tile<16x33xbf16, #tile.shared>
  %f = tile.convert %b : !tile.tile<16x33xbf16, #tile.shared> -> !tile.tile<16x33xbf16, #tile.mma<warps = 1>>
  // Nothing reads this one.
  // CHECK-NOT: tile_gpu.alloc
  // CHECK: %[[X:.*]] = tile.load %{{.*}}
  %dead = tile.load %x[%r, %c] : memref<16x64xbf16>, (!row, !col) -> !shared
  // CHECK: %[[OTHER:.*]] = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  // CHECK: tile_gpu.local_store %[[X]] to %[[OTHER]] : !tile.tile<16x64xbf16, #tile.mma<warps = 1>> to
  // CHECK: %[[STORED:.*]] = tile_gpu.local_view %[[OTHER]]
  // CHECK: tile.convert %[[STORED]]
  %g = tile.load %x[%r, %c] : memref<16x64xbf16>, (!row, !col) -> !mma
  %h = tile.convert %g : !mma -> !shared
  %j = tile.convert %h : !shared -> !mma
  tile.store %j, %z[%r, %c] : !mma, memref<16x64xbf16>, (!row, !col)
  // CHECK: tile.convert %[[VIEW]]
  %e = tile.convert %a : !shared -> !mma
  tile.store %e, %z[%r, %c] : !mma, memref<16x64xbf16>, (!row, !col)
  tile.return
}
