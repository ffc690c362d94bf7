// RUN: nsa-opt %s --nsa-assign-layouts | FileCheck %s

// A dot of a dot: maps, reductions, loops, branches and selects hand
// MMA tiles on, a that stays is loaded once, b of the loop is shared.

// CHECK-LABEL: tile.kernel private @chain
// CHECK-SAME: %[[Q:.*]]: memref<48x32xbf16>, %[[K:.*]]: memref<256x32xbf16>, %[[W:.*]]: memref<48xf32>
tile.kernel private @chain(%q: memref<48x32xbf16>, %k: memref<256x32xbf16>, %w: memref<48xf32>, %flag: memref<1xi32>, %o: memref<48x32xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c256 = arith.constant 256 : i32
  %zero = arith.constant 0.0 : f32
  // CHECK-DAG: %[[ROWS:.*]] = tile.range %{{.*}} : !tile.tile<48x1xi32, #tile.rematerialized>
  %rows = tile.range %c0 : !tile.tile<48x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x32xi32>
  // CHECK: %[[A:.*]] = tile.load %[[Q]]{{.*}} -> !tile.tile<48x32xbf16, #tile.mma<warps = 3>>
  %a = tile.load %q[%rows, %cols] : memref<48x32xbf16>, (!tile.tile<48x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<48x32xbf16>
  // CHECK: %[[WEIGHTS:.*]] = tile.load %[[W]]{{.*}} -> !tile.tile<48x1xf32, #tile.mma<warps = 3>>
  %weights = tile.load %w[%rows] : memref<48xf32>, (!tile.tile<48x1xi32>) -> !tile.tile<48x1xf32>
  %none = tile.splat %zero : !tile.tile<48x1xf32>
  %acc = tile.splat %zero : !tile.tile<48x32xf32>
  %scores0 = tile.splat %zero : !tile.tile<48x16xf32>
  %f = tile.load %flag[%c0] : memref<1xi32>, (i32) -> i32
  %some = arith.cmpi ne, %f, %c0 : i32
  // CHECK: scf.for
  // CHECK-SAME: -> (!tile.tile<48x1xf32, #tile.mma<warps = 3>>, !tile.tile<48x32xf32, #tile.mma<warps = 3>>)
  %sums:2 = scf.for %i = %c0 to %c256 step %c16 iter_args(%sum = %none, %out = %acc) -> (!tile.tile<48x1xf32>, !tile.tile<48x32xf32>) : i32 {
    %keys = tile.range %i : !tile.tile<16x1xi32>
    // CHECK: %[[B:.*]] = tile.load %[[K]]{{.*}} -> !tile.tile<16x32xbf16, #tile.shared>
    %b = tile.load %k[%keys, %cols] : memref<256x32xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<16x32xbf16>
    // CHECK: %[[S:.*]] = tile.dot %[[A]], %[[B]],
    %s = tile.dot %a, %b, %scores0 {transpose_b} : !tile.tile<48x32xbf16>, !tile.tile<16x32xbf16>, !tile.tile<48x16xf32>
    // CHECK: %[[P:.*]] = tile.map (%[[S]], %[[WEIGHTS]], %[[ROWS]] : !tile.tile<48x16xf32, #tile.mma<warps = 3>>, !tile.tile<48x1xf32, #tile.mma<warps = 3>>, !tile.tile<48x1xi32, #tile.rematerialized>) -> !tile.tile<48x16xf32, #tile.mma<warps = 3>>
    %p = tile.map (%s, %weights, %rows : !tile.tile<48x16xf32>, !tile.tile<48x1xf32>, !tile.tile<48x1xi32>) -> !tile.tile<48x16xf32> {
    ^bb0(%x: f32, %weight: f32, %row: i32):
      %y = arith.mulf %x, %weight : f32
      %seen = arith.cmpi sge, %row, %i : i32
      %z = arith.select %seen, %y, %zero : f32
      tile.yield %z : f32
    }
    // CHECK: tile.reduce add %[[P]] {{.*}} -> !tile.tile<48x1xf32, #tile.mma<warps = 3>>
    %r = tile.reduce add %p {axis = 1 : i32} : !tile.tile<48x16xf32> -> !tile.tile<48x1xf32>
    // CHECK: %[[NARROW:.*]] = tile.map {{.*}} -> !tile.tile<48x16xbf16, #tile.mma<warps = 3>>
    %narrow = tile.map (%p : !tile.tile<48x16xf32>) -> !tile.tile<48x16xbf16> {
    ^bb0(%x: f32):
      %y = arith.truncf %x : f32 to bf16
      tile.yield %y : bf16
    }
    // CHECK: tile.dot %[[NARROW]], %[[B]],
    %next = tile.dot %narrow, %b, %out : !tile.tile<48x16xbf16>, !tile.tile<16x32xbf16>, !tile.tile<48x32xf32>
    // CHECK: scf.if %{{.*}} -> (!tile.tile<48x1xf32, #tile.mma<warps = 3>>)
    %either = scf.if %some -> (!tile.tile<48x1xf32>) {
      scf.yield %r : !tile.tile<48x1xf32>
    } else {
      scf.yield %none : !tile.tile<48x1xf32>
    }
    // CHECK: arith.select {{.*}} : !tile.tile<48x1xf32, #tile.mma<warps = 3>>
    %chosen = arith.select %some, %either, %sum : !tile.tile<48x1xf32>
    scf.yield %chosen, %next : !tile.tile<48x1xf32>, !tile.tile<48x32xf32>
  }
  %result = tile.map (%sums#1, %sums#0 : !tile.tile<48x32xf32>, !tile.tile<48x1xf32>) -> !tile.tile<48x32xbf16> {
  ^bb0(%x: f32, %sum: f32):
    %y = arith.divf %x, %sum : f32
    %z = arith.truncf %y : f32 to bf16
    tile.yield %z : bf16
  }
  // CHECK-NOT: tile.convert
  // CHECK: tile.store {{.*}} : !tile.tile<48x32xbf16, #tile.mma<warps = 3>>
  tile.store %result, %o[%rows, %cols] : !tile.tile<48x32xbf16>, memref<48x32xbf16>, (!tile.tile<48x1xi32>, !tile.tile<1x32xi32>)
  tile.return
}
