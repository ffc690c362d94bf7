// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm | FileCheck %s

// Rows of 26 pieces are copied by 26 of the 32 threads: each has pieces of one
// column, whose addresses are constants apart.

// CHECK-LABEL: llvm.func @long_rows
// CHECK-DAG: %[[PIECES:.*]] = arith.constant 26 : i32
// CHECK: arith.cmpi slt, %{{.*}}, %[[PIECES]]
// CHECK: nvvm.cp.async.shared.global
tile.kernel private @long_rows(%x: memref<64x208xbf16>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %out = tile.range %c0 : !tile.tile<1x16xi32>
  %cols = tile.range %c0 : !tile.tile<1x208xi32>
  %init = tile.splat %zero : !tile.tile<16x16xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x208xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x208xi32>) -> !tile.tile<16x208xbf16>
  %b = tile.load %x[%rows, %cols] : memref<64x208xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x208xi32>) -> !tile.tile<16x208xbf16>
  %d = tile.dot %a, %b, %init {transpose_b} : !tile.tile<16x208xbf16>, !tile.tile<16x208xbf16>, !tile.tile<16x16xf32>
  tile.store %d, %z[%rows, %out] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// The rows that shared memory has for padding have no entry in the list of 8.

// CHECK-LABEL: llvm.func @gathered_rows
// CHECK-DAG: %[[LAST:.*]] = arith.constant 7 : i32
// CHECK: %[[ROW:.*]] = arith.minsi %{{.*}}, %[[LAST]]
// CHECK: llvm.getelementptr {{.*}}[%[[ROW]]]
tile.kernel private @gathered_rows(%list: memref<8xi32>, %x: memref<64x16xbf16>, %z: memref<16x8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %few = tile.range %c0 : !tile.tile<8x1xi32>
  %out = tile.range %c0 : !tile.tile<1x8xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x8xf32>
  %places = tile.load %list[%few] : memref<8xi32>, (!tile.tile<8x1xi32>) -> !tile.tile<8x1xi32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %b = tile.load %x[%places, %cols] : memref<64x16xbf16>, (!tile.tile<8x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<8x16xbf16>
  %d = tile.dot %a, %b, %init {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<8x16xbf16>, !tile.tile<16x8xf32>
  tile.store %d, %z[%rows, %out] : !tile.tile<16x8xf32>, memref<16x8xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}
