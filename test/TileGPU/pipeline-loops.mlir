// RUN: nsa-opt %s --allow-unregistered-dialect --tile-gpu-pipeline | FileCheck %s

// A loop of three stages, of a tile and a row. Two iterations' copies begin
// before it, each if there is such an iteration; in the loop those of the
// second next begin when its own are there, to the stage before its own. What
// their indices are computed from is computed again.

!rows = !tile.tile<16x1xi32, #tile.rematerialized>
!cols = !tile.tile<1x16xi32, #tile.rematerialized>
!mma = !tile.tile<16x16xbf16, #tile.mma<warps = 1>>
!row = !tile.tile<1x16xf32, #tile.mma<warps = 1>>

// CHECK-LABEL: tile.kernel private @loop
tile.kernel private @loop(%x: memref<64x16xbf16>, %s: memref<4x16xf32>, %n: memref<1xi32>, %z: memref<16x16xbf16>, %y: memref<1x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 3072 : i64, nsa.shared_bytes = 3072 : i64} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c16 = arith.constant 16 : i32
  // CHECK: %[[COUNT:[^ ]*]] = tile.load %{{.*}} -> i32
  %count = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  %r = tile.range %c0 : !rows
  %c = tile.range %c0 : !cols
  // CHECK: %[[TILE:[^ ]*]] = tile_gpu.alloc swizzle 32 at 0 : !tile_gpu.memdesc<16x16xbf16>
  // CHECK: %[[LINE:[^ ]*]] = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x16xf32>
  // CHECK: %[[ANY:[^ ]*]] = arith.cmpi sgt, %[[COUNT]], %{{.*}} : i32
  // CHECK: tile_gpu.copy_if %[[ANY]]
  // CHECK: tile_gpu.iteration %{{.*}} from %{{.*}} to %[[COUNT]]
  // CHECK: tile_gpu.async_copy %{{.*}} to %[[TILE]] stage %{{.*}} width 8
  // CHECK: tile_gpu.async_copy %{{.*}} to %[[LINE]] stage %{{.*}} width 4
  // CHECK: tile_gpu.async_commit
  // CHECK: tile_gpu.copy_if
  // CHECK: tile_gpu.async_commit
  // CHECK: scf.for %[[I:[^ ]*]] = {{.*}} iter_args(%[[STAGE:[^ ]*]] =
  scf.for %i = %c0 to %count step %c1 : i32 {
    // CHECK: tile_gpu.async_wait pending 1
    // CHECK: tile_gpu.barrier
    // CHECK: %[[NEXT:[^ ]*]] = arith.addi %[[I]], %{{.*}}
    // CHECK: %[[MORE:[^ ]*]] = arith.cmpi slt, %[[NEXT]], %[[COUNT]]
    // CHECK: tile_gpu.copy_if %[[MORE]] {
    // CHECK: %[[J:[^ ]*]] = tile_gpu.iteration %[[NEXT]]
    // CHECK: arith.muli %[[J]]
    // CHECK: tile_gpu.async_commit
    %first = arith.muli %i, %c16 : i32
    %at = tile.range %first : !rows
    %0 = tile_gpu.alloc swizzle 32 at 0 : !tile_gpu.memdesc<16x16xbf16>
    tile_gpu.async_copy %x[%at, %c] to %0 width 8 : memref<64x16xbf16>, (!rows, !cols) to !tile_gpu.memdesc<16x16xbf16>
    // CHECK: tile_gpu.local_view %[[TILE]] stage %[[STAGE]]
    %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x16xbf16> -> !tile.tile<16x16xbf16, #tile.shared>
    %2 = tile.convert %1 : !tile.tile<16x16xbf16, #tile.shared> -> !mma
    // CHECK: tile_gpu.local_load %[[LINE]] stage %[[STAGE]]
    %line = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x16xf32>
    tile_gpu.async_copy %s[%i, %c] to %line width 4 : memref<4x16xf32>, (i32, !cols) to !tile_gpu.memdesc<1x16xf32>
    %3 = tile_gpu.local_load %line : !tile_gpu.memdesc<1x16xf32> -> !row
    "test.use"(%2, %3) : (!mma, !row) -> ()
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 3, bytes = 1024, offset = 0>}
  tile.return
}

// Loops that a producer copies for stay as they are; others of its kernel, whose
// copies TMA cannot make, do not.
// CHECK-LABEL: tile.kernel private @beside
tile.kernel private @beside(%x: memref<64x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 4096 : i64, nsa.shared_bytes = 4096 : i64,
                tile_gpu.producer = #tile_gpu.producer<barriers = 3072, blocks = 1>} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %c = tile.range %c0 : !cols
  // CHECK: scf.for
  // CHECK-NOT: tile_gpu.async_wait
  // CHECK: tile_gpu.async_copy {{.*}} width 8
  // CHECK: {tile_gpu.pipeline = #pipeline
  scf.for %i = %c0 to %c64 step %c16 : i32 {
    %at = tile.range %i : !rows
    %0 = tile_gpu.alloc swizzle 32 at 0 : !tile_gpu.memdesc<16x16xbf16>
    tile_gpu.async_copy %x[%at, %c] to %0 width 8 : memref<64x16xbf16>, (!rows, !cols) to !tile_gpu.memdesc<16x16xbf16>
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 2, bytes = 1024, offset = 0, producer = true>}
  // CHECK: tile_gpu.copy_if
  // CHECK: scf.for
  // CHECK: tile_gpu.async_wait pending 0
  // CHECK-NOT: tile_gpu.pipeline
  scf.for %i = %c0 to %c64 step %c16 : i32 {
    %at = tile.range %i {step = 2 : i32} : !rows
    %0 = tile_gpu.alloc swizzle 32 at 2048 : !tile_gpu.memdesc<16x16xbf16>
    tile_gpu.async_copy %x[%at, %c] to %0 width 8 : memref<64x16xbf16>, (!rows, !cols) to !tile_gpu.memdesc<16x16xbf16>
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 2, bytes = 512, offset = 2048>}
  tile.return
}
