// RUN: nsa-opt %s --nsa-assign-layouts | FileCheck %s

// Where operands of dots come from.

// b that maps also read is converted after its load; a result as b goes to
// shared memory; a that changes in every iteration is shared; a transposed a is
// shared wherever it comes from.
// CHECK-LABEL: tile.kernel private @operands
tile.kernel private @operands(%x: memref<64x16xbf16>, %z: memref<16x16xf32>, %s: memref<1xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  // CHECK: %[[B:.*]] = tile.load {{.*}} -> !tile.tile<16x16xbf16, #tile.shared>
  // CHECK: %[[READ:.*]] = tile.convert %[[B]] : !tile.tile<16x16xbf16, #tile.shared> -> !tile.tile<16x16xbf16, #tile.mma<warps = 1>>
  %b = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  // CHECK: tile.map (%[[READ]] :
  %c = tile.map (%b : !tile.tile<16x16xbf16>) -> !tile.tile<16x16xbf16> {
  ^bb0(%e: bf16):
    %f = arith.negf %e : bf16
    tile.yield %f : bf16
  }
  // CHECK: %[[C:.*]] = tile.convert %{{.*}} : !tile.tile<16x16xbf16, #tile.mma<warps = 1>> -> !tile.tile<16x16xbf16, #tile.shared>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  // CHECK: scf.for
  %sum = scf.for %i = %c0 to %c64 step %c16 iter_args(%carried = %acc) -> (!tile.tile<16x16xf32>) : i32 {
    %own = tile.range %i : !tile.tile<16x1xi32>
    // CHECK: %[[A:.*]] = tile.load {{.*}} -> !tile.tile<16x16xbf16, #tile.shared>
    %a = tile.load %x[%own, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
    // CHECK: tile.dot %[[A]], %[[B]],
    %d = tile.dot %a, %b, %carried : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    // CHECK: tile.dot %[[C]], %[[C]], %{{.*}} {transpose_a}
    %e = tile.dot %c, %c, %d {transpose_a} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    scf.yield %e : !tile.tile<16x16xf32>
  }
  tile.store %sum, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// Transposition, sorting and what no MMA tile touches have no layout.
// CHECK-LABEL: tile.kernel private @apart
tile.kernel private @apart(%x: memref<16x16xbf16>, %z: memref<16x16xf32>, %l: memref<16x4xi32>, %u: memref<36xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 3 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%rows, %cols] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  // CHECK: %[[DOT:.*]] = tile.dot
  // CHECK: %[[PLAIN:.*]] = tile.convert %[[DOT]] : !tile.tile<16x16xf32, #tile.mma<warps = 1>> -> !tile.tile<16x16xf32>
  %d = tile.dot %a, %a, %acc {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
  // CHECK: %[[T:.*]] = tile.transpose %[[PLAIN]]
  // CHECK: %[[BACK:.*]] = tile.convert %[[T]] : !tile.tile<16x16xf32> -> !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  %t = tile.transpose %d : !tile.tile<16x16xf32> -> !tile.tile<16x16xf32>
  // CHECK: tile.map (%[[DOT]], %[[BACK]] :
  %sum = tile.map (%d, %t : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>) -> !tile.tile<16x16xf32> {
  ^bb0(%e: f32, %f: f32):
    %g = arith.addf %e, %f : f32
    tile.yield %g : f32
  }
  tile.store %sum, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  %four = tile.range %c0 : !tile.tile<1x4xi32>
  %list = tile.load %l[%rows, %four] : memref<16x4xi32>, (!tile.tile<16x1xi32>, !tile.tile<1x4xi32>) -> !tile.tile<16x4xi32>
  // CHECK: tile.sort %{{.*}} : !tile.tile<16x4xi32>
  %sorted = tile.sort %list : !tile.tile<16x4xi32>
  // CHECK: tile.store {{.*}} (!tile.tile<16x1xi32>, !tile.tile<1x4xi32>)
  tile.store %sorted, %l[%rows, %four] : !tile.tile<16x4xi32>, memref<16x4xi32>, (!tile.tile<16x1xi32>, !tile.tile<1x4xi32>)
  %wide = tile.range %c0 : !tile.tile<1x36xi32>
  // CHECK: tile.load {{.*}} -> !tile.tile<1x36xf32>
  %v = tile.load %u[%wide] : memref<36xf32>, (!tile.tile<1x36xi32>) -> !tile.tile<1x36xf32>
  tile.store %v, %u[%wide] : !tile.tile<1x36xf32>, memref<36xf32>, (!tile.tile<1x36xi32>)
  tile.return
}
