// RUN: nsa-opt %s --nsa-tile-to-nvvm --canonicalize --cse | FileCheck %s

// A row in a buffer is read where it is used; one that a loop carries on is in
// registers.
!cols = !tile.tile<1x16xi32, #tile.rematerialized>
!row = !tile.tile<1x16xf32, #tile.mma<warps = 1>>

// CHECK-LABEL: llvm.func @carried
// CHECK: scf.for
// CHECK: %[[PAIR:.*]] = llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK: %[[X:.*]] = llvm.extractelement %[[PAIR]]
// CHECK: scf.yield %[[X]], %{{.*}} : f32, f32, f32, f32
tile.kernel private @carried(%y: memref<1x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 3072 : i64, nsa.shared_bytes = 3072 : i64} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %zero = arith.constant 0.0 : f32
  %c = tile.range %c0 : !cols
  %x = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x16xf32>
  %none = tile.splat %zero : !row
  %last = scf.for %i = %c0 to %c4 step %c1 iter_args(%before = %none) -> (!row) : i32 {
    %0 = tile_gpu.local_load %x stage %i : !tile_gpu.memdesc<1x16xf32> -> !row
    scf.yield %0 : !row
  }
  tile.store %last, %y[%c0, %c] : !row, memref<1x16xf32>, (i32, !cols)
  tile.return
}

// A row of one stage.
// CHECK-LABEL: llvm.func @one_stage
// CHECK: nvvm.cp.async.shared.global
// CHECK: tile_gpu.async_commit
// CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
tile.kernel private @one_stage(%s: memref<4x16xf32>, %y: memref<1x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 3072 : i64, nsa.shared_bytes = 3072 : i64} {
  %c0 = arith.constant 0 : i32
  %c = tile.range %c0 : !cols
  %x = tile_gpu.alloc at 1024 : !tile_gpu.memdesc<1x16xf32>
  tile_gpu.async_copy %s[%c0, %c] to %x width 4 : memref<4x16xf32>, (i32, !cols) to !tile_gpu.memdesc<1x16xf32>
  tile_gpu.async_wait pending 0
  tile_gpu.barrier
  %0 = tile_gpu.local_load %x : !tile_gpu.memdesc<1x16xf32> -> !row
  tile.store %0, %y[%c0, %c] : !row, memref<1x16xf32>, (i32, !cols)
  tile.return
}
