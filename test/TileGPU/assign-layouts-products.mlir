// RUN: nsa-opt %s --nsa-assign-layouts | FileCheck %s
// RUN: nsa-opt %s --nsa-assign-layouts --remarks-filter-missed=nsa-assign-layouts -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED
// RUN: nsa-opt %s --nsa-assign-layouts --remarks-filter-passed=nsa-assign-layouts -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSED

// Dots that tensor cores can do get layouts; a kernel without any does not
// change.

// PASSED: 1 of 1 dots on tensor cores, 4 M-tiles of 16 rows for 4 warps
// PASSED: 1 of 2 dots on tensor cores, 2 M-tiles of 16 rows for 2 warps
// MISSED: its 12 columns are no multiple of 8
// MISSED: the 8 elements of each sum are no multiple of 16
// MISSED: its operands are f32, not bf16 or f16
// MISSED: its 4 rows fill less than half of the 16 of an M-tile

// CHECK-LABEL: tile.kernel private @fits
// CHECK: %[[A:.*]] = tile.load %arg0{{.*}} -> !tile.tile<64x32xbf16, #tile.mma<warps = 4>>
// CHECK: %[[B:.*]] = tile.load %arg1{{.*}} -> !tile.tile<32x16xbf16, #tile.shared>
// CHECK: %[[ACC:.*]] = tile.splat %{{.*}} : !tile.tile<64x16xf32, #tile.mma<warps = 4>>
// CHECK: %[[DOT:.*]] = tile.dot %[[A]], %[[B]], %[[ACC]]
// CHECK: tile.store %[[DOT]], {{.*}} (!tile.tile<64x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
tile.kernel private @fits(%x: memref<64x32xbf16>, %y: memref<32x16xbf16>, %z: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %m = tile.range %c0 : !tile.tile<64x1xi32>
  %k0 = tile.range %c0 : !tile.tile<1x32xi32>
  %k1 = tile.range %c0 : !tile.tile<32x1xi32>
  %n = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%m, %k0] : memref<64x32xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<64x32xbf16>
  %b = tile.load %y[%k1, %n] : memref<32x16xbf16>, (!tile.tile<32x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<32x16xbf16>
  %acc = tile.splat %zero : !tile.tile<64x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<64x32xbf16>, !tile.tile<32x16xbf16>, !tile.tile<64x16xf32>
  tile.store %d, %z[%m, %n] : !tile.tile<64x16xf32>, memref<64x16xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// CHECK-LABEL: tile.kernel private @columns
// CHECK-NOT: #tile
tile.kernel private @columns(%x: memref<16x16xbf16>, %y: memref<16x12xbf16>, %z: memref<16x12xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %m = tile.range %c0 : !tile.tile<16x1xi32>
  %k = tile.range %c0 : !tile.tile<1x16xi32>
  %n = tile.range %c0 : !tile.tile<1x12xi32>
  %a = tile.load %x[%m, %k] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %b = tile.load %y[%m, %n] : memref<16x12xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x12xi32>) -> !tile.tile<16x12xbf16>
  %acc = tile.splat %zero : !tile.tile<16x12xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<16x16xbf16>, !tile.tile<16x12xbf16>, !tile.tile<16x12xf32>
  tile.store %d, %z[%m, %n] : !tile.tile<16x12xf32>, memref<16x12xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x12xi32>)
  tile.return
}

// CHECK-LABEL: tile.kernel private @sums
// CHECK-NOT: #tile
tile.kernel private @sums(%x: memref<16x8xbf16>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %m = tile.range %c0 : !tile.tile<16x1xi32>
  %k = tile.range %c0 : !tile.tile<1x8xi32>
  %n = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%m, %k] : memref<16x8xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<16x8xbf16>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  %d = tile.dot %a, %a, %acc {transpose_b} : !tile.tile<16x8xbf16>, !tile.tile<16x8xbf16>, !tile.tile<16x16xf32>
  tile.store %d, %z[%m, %n] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// Between the two dots of one kernel stands a conversion.
// CHECK-LABEL: tile.kernel private @both
// CHECK: %[[DOT:.*]] = tile.dot {{.*}} !tile.tile<32x16xf32, #tile.mma<warps = 2>>
// CHECK: %[[MOVED:.*]] = tile.convert %[[DOT]] : !tile.tile<32x16xf32, #tile.mma<warps = 2>> -> !tile.tile<32x16xf32>
// CHECK: %[[PLAIN:.*]] = tile.dot %[[MOVED]], %[[MOVED]], %{{.*}} : !tile.tile<32x16xf32>, !tile.tile<32x16xf32>, !tile.tile<32x32xf32>
// CHECK: tile.store %[[PLAIN]], {{.*}} (!tile.tile<32x1xi32>, !tile.tile<1x32xi32>)
tile.kernel private @both(%x: memref<32x16xbf16>, %y: memref<16x16xbf16>, %z: memref<32x32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %m = tile.range %c0 : !tile.tile<32x1xi32>
  %k = tile.range %c0 : !tile.tile<1x16xi32>
  %k1 = tile.range %c0 : !tile.tile<16x1xi32>
  %n = tile.range %c0 : !tile.tile<1x32xi32>
  %a = tile.load %x[%m, %k] : memref<32x16xbf16>, (!tile.tile<32x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<32x16xbf16>
  %b = tile.load %y[%k1, %k] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<32x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<32x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<32x16xf32>
  %acc2 = tile.splat %zero : !tile.tile<32x32xf32>
  %e = tile.dot %d, %d, %acc2 {transpose_b} : !tile.tile<32x16xf32>, !tile.tile<32x16xf32>, !tile.tile<32x32xf32>
  tile.store %e, %z[%m, %n] : !tile.tile<32x32xf32>, memref<32x32xf32>, (!tile.tile<32x1xi32>, !tile.tile<1x32xi32>)
  tile.return
}

// CHECK-LABEL: tile.kernel private @rows
// CHECK-NOT: #tile
tile.kernel private @rows(%x: memref<4x16xbf16>, %y: memref<16x16xbf16>, %z: memref<4x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %m = tile.range %c0 : !tile.tile<4x1xi32>
  %k = tile.range %c0 : !tile.tile<1x16xi32>
  %k1 = tile.range %c0 : !tile.tile<16x1xi32>
  %a = tile.load %x[%m, %k] : memref<4x16xbf16>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<4x16xbf16>
  %b = tile.load %y[%k1, %k] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<4x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<4x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<4x16xf32>
  tile.store %d, %z[%m, %k] : !tile.tile<4x16xf32>, memref<4x16xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
