// RUN: nsa-opt %s --nsa-tile-to-nvvm | FileCheck %s

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>

// A thread has two rows of the M-tile of its warp.
// CHECK-LABEL: llvm.func @own(
// CHECK: %[[SOME:.*]] = arith.ori
// CHECK: %[[OWN:.*]] = nvvm.vote.sync any {{.*}}, %[[SOME]]
// CHECK-NEXT: scf.if %[[OWN]] -> (f32, f32) {
// CHECK-COUNT-2: arith.addf
// CHECK: } else {
tile.kernel private @own(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 128 : i32, tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %v = tile.load %x[%r] : memref<64xf32>, (!row) -> !column
  %rows = tile.map (%v : !column) -> !mask {
  ^bb0(%e: f32):
    %b = arith.cmpf ogt, %e, %zero : f32
    tile.yield %b : i1
  }
  %o = tile_gpu.warp_if %rows : !mask -> !column {
    %sum = tile.map (%v : !column) -> !column {
    ^bb0(%e: f32):
      %twice = arith.addf %e, %e : f32
      tile.yield %twice : f32
    }
    tile_gpu.yield %sum : !column
  } else {
    tile_gpu.yield %v : !column
  }
  tile.store %o, %y[%r] : !column, memref<64xf32>, (!row)
  tile.return
}
