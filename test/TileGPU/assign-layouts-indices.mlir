// RUN: nsa-opt %s --nsa-assign-layouts | FileCheck %s

// Rows by number: shared memory is filled from coordinates that are computed on
// demand; where MMA tiles use them too, they are read into registers once.

// CHECK-LABEL: tile.kernel private @gather
// CHECK-SAME: %[[LIST:[^:]*]]: memref<64xi32>
tile.kernel private @gather(%list: memref<64xi32>, %x: memref<64x16xbf16>, %l: memref<64xf32>, %z: memref<64x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c7 = arith.constant 7 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<64x1xi32>
  %across = tile.range %c0 : !tile.tile<1x64xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  // CHECK: %[[ROWS:.*]] = tile.load %[[LIST]]{{.*}} -> !tile.tile<64x1xi32, #tile.rematerialized>
  %row_list = tile.load %list[%rows] : memref<64xi32>, (!tile.tile<64x1xi32>) -> !tile.tile<64x1xi32>
  // CHECK: %[[NUMBERS:.*]] = tile.map (%[[ROWS]] : {{.*}}) -> !tile.tile<64x1xi32, #tile.rematerialized>
  %numbers = tile.map (%row_list : !tile.tile<64x1xi32>) -> !tile.tile<64x1xi32> {
  ^bb0(%i: i32):
    %j = arith.remsi %i, %c7 : i32
    tile.yield %j : i32
  }
  // CHECK: %[[ACROSS:.*]] = tile.load %[[LIST]]{{.*}} -> !tile.tile<1x64xi32, #tile.mma<warps = 4>>
  %col_list = tile.load %list[%across] : memref<64xi32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xi32>
  // CHECK: tile.load %{{.*}}[%[[NUMBERS]], %{{.*}}] {{.*}} -> !tile.tile<64x16xbf16, #tile.shared>
  %b = tile.load %x[%numbers, %cols] : memref<64x16xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  // CHECK: tile.load %{{.*}}[%[[ACROSS]]] {{.*}} -> !tile.tile<1x64xf32, #tile.mma<warps = 4>>
  %lse = tile.load %l[%col_list] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %acc = tile.splat %zero : !tile.tile<64x64xf32>
  %d = tile.dot %a, %b, %acc {transpose_b} : !tile.tile<64x16xbf16>, !tile.tile<64x16xbf16>, !tile.tile<64x64xf32>
  // CHECK: tile.map (%{{.*}}, %{{.*}}, %[[ACROSS]] :
  %e = tile.map (%d, %lse, %col_list : !tile.tile<64x64xf32>, !tile.tile<1x64xf32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32> {
  ^bb0(%s: f32, %m: f32, %i: i32):
    %y = arith.subf %s, %m : f32
    %seen = arith.cmpi sge, %i, %c7 : i32
    %r = arith.select %seen, %y, %zero : f32
    tile.yield %r : f32
  }
  tile.store %e, %z[%rows, %across] : !tile.tile<64x64xf32>, memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// What the kernel writes is read where it was read: indices become a tile in the MMA layout,
// and b goes through registers.
// CHECK-LABEL: tile.kernel private @written
// CHECK-SAME: %{{.*}}: memref<16x16xbf16>, %[[LIST:.*]]: memref<16xi32>,
tile.kernel private @written(%x: memref<16x16xbf16>, %list: memref<16xi32>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  // CHECK: %[[NUMBERS:.*]] = tile.load %[[LIST]]{{.*}} -> !tile.tile<16x1xi32>
  // CHECK: %[[MOVED:.*]] = tile.convert %[[NUMBERS]] : !tile.tile<16x1xi32> -> !tile.tile<16x1xi32, #tile.mma<warps = 1>>
  %numbers = tile.load %list[%rows] : memref<16xi32>, (!tile.tile<16x1xi32>) -> !tile.tile<16x1xi32>
  tile.store %c0, %list[%c0] : i32, memref<16xi32>, (i32)
  %a = tile.load %x[%rows, %cols] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  // CHECK: %[[B:.*]] = tile.load %{{.*}}[%[[MOVED]], %{{.*}}] {{.*}} -> !tile.tile<16x16xbf16, #tile.mma<warps = 1>>
  // CHECK: %[[SHARED:.*]] = tile.convert %[[B]] : !tile.tile<16x16xbf16, #tile.mma<warps = 1>> -> !tile.tile<16x16xbf16, #tile.shared>
  %b = tile.load %x[%numbers, %cols] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  // CHECK: tile.dot %{{.*}}, %[[SHARED]],
  %d = tile.dot %a, %b, %acc : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
  tile.store %d, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
