// RUN: nsa-opt %s --nsa-assign-layouts --nsa-tile-to-nvvm --split-input-file | FileCheck %s

// A branch reads tiles that were copied before it: threads wait for them in
// front of it.

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
