// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s

// A branch reads tiles that were copied before it: threads wait for them before
// it.

// CHECK-LABEL: llvm.func @copy_before
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier
// CHECK-NEXT: scf.if
// CHECK-NOT: nvvm.barrier
tile.kernel private @copy_before(%x: memref<64x16xbf16>, %n: memref<1xi32>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %next = tile.range %c16 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x16xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %b = tile.load %x[%next, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %k = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  %some = arith.cmpi sgt, %k, %c0 : i32
  %r = scf.if %some -> !tile.tile<16x16xf32> {
    %d = tile.dot %a, %b, %init {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    scf.yield %d : !tile.tile<16x16xf32>
  } else {
    scf.yield %init : !tile.tile<16x16xf32>
  }
  tile.store %r, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// Each branch waits for the stores of other threads before it, whether or not
// the other one did.

// CHECK-LABEL: llvm.func @store_before
// CHECK: scf.if
// CHECK-NEXT: nvvm.barrier
// CHECK: } else {
// CHECK-NEXT: nvvm.barrier
tile.kernel private @store_before(%x: memref<64x8xf32>, %n: memref<1xi32>, %y: memref<64x8xf32>, %z: memref<64x8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<64x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x8xi32>
  %c63 = arith.constant 63 : i32
  %back = tile.range %c63 {step = -1 : i32} : !tile.tile<64x1xi32>
  %a = tile.load %x[%rows, %cols] : memref<64x8xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<64x8xf32>
  %k = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  tile.store %a, %y[%rows, %cols] : !tile.tile<64x8xf32>, memref<64x8xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x8xi32>)
  %c = arith.cmpi sgt, %k, %c0 : i32
  %r = scf.if %c -> !tile.tile<64x8xf32> {
    %b = tile.load %y[%back, %cols] : memref<64x8xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<64x8xf32>
    scf.yield %b : !tile.tile<64x8xf32>
  } else {
    %b = tile.load %y[%back, %cols] : memref<64x8xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<64x8xf32>
    %s = tile.map (%b : !tile.tile<64x8xf32>) -> !tile.tile<64x8xf32> {
    ^bb0(%e: f32):
      %t = arith.addf %e, %e : f32
      tile.yield %t : f32
    }
    scf.yield %s : !tile.tile<64x8xf32>
  }
  tile.store %r, %z[%rows, %cols] : !tile.tile<64x8xf32>, memref<64x8xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}
