// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --split-input-file --remarks-filter="tile-gpu-assign-layouts" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS

// Branches that each warp takes for its own rows, where it needs nothing of the
// others.

!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>
!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>

// CHECK-LABEL: llvm.func @alone(
// CHECK-NOT: nvvm.barrier
// CHECK: %[[OWN:.+]] = nvvm.vote.sync any
// CHECK-NEXT: scf.if %[[OWN]]
// CHECK-NOT: nvvm.barrier
// CHECK: } else {
tile.kernel private @alone(%x: memref<64xf32>, %y: memref<64xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %v = tile.load %x[%r] : memref<64xf32>, (!row) -> !column
  %isLarge = tile.map (%v : !column) -> !mask {
  ^bb0(%e: f32):
    %b = arith.cmpf ogt, %e, %zero : f32
    tile.yield %b : i1
  }
  %some = tile.any %isLarge warp_uniform : !mask
  %o = scf.if %some -> (!column) {
    %sum = tile.map (%v : !column) -> !column {
    ^bb0(%e: f32):
      %twice = arith.addf %e, %e : f32
      %m = arith.maxnumf %twice, %e : f32
      tile.yield %m : f32
    }
    scf.yield %sum : !column
  } else {
    scf.yield %v : !column
  }
  tile.store %o, %y[%r] : !column, memref<64xf32>, (!row)
  tile.return
}

// -----

!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>
!one = !tile.tile<1x1xf32, #tile.mma<warps = 4>>
!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>

// The sum of a column is one of all warps.
// REMARKS: remark: [Missed] Branch | Category:tile-gpu-assign-layouts | Function=together | Reason="not for each warp alone: warps do 'tile.reduce' in its branch together"
// CHECK-LABEL: llvm.func @together(
// CHECK-NOT: nvvm.vote.sync any
// CHECK: nvvm.barrier #nvvm.reduction<or>
// CHECK: scf.if
tile.kernel private @together(%x: memref<64xf32>, %y: memref<64xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %v = tile.load %x[%r] : memref<64xf32>, (!row) -> !column
  %isLarge = tile.map (%v : !column) -> !mask {
  ^bb0(%e: f32):
    %b = arith.cmpf ogt, %e, %zero : f32
    tile.yield %b : i1
  }
  %some = tile.any %isLarge warp_uniform : !mask
  %o = scf.if %some -> (!column) {
    %sum = tile.reduce add %v {axis = 0 : i32} : !column -> !one
    %shifted = tile.map (%v, %sum : !column, !one) -> !column {
    ^bb0(%e: f32, %s: f32):
      %m = arith.maxnumf %s, %e : f32
      tile.yield %m : f32
    }
    scf.yield %shifted : !column
  } else {
    scf.yield %v : !column
  }
  tile.store %o, %y[%r] : !column, memref<64xf32>, (!row)
  tile.return
}
