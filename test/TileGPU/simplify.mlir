// RUN: nsa-opt %s --tile-simplify | FileCheck %s

// The sums of a loop start with what is added to them; the f32 result is rounded
// in the map that makes it; w is loaded after the loop, the row after the
// dot.
// CHECK-LABEL: tile.kernel private @sums
// CHECK: %[[X:.*]] = tile.load %arg1
// CHECK-NOT: tile.load %arg3
// CHECK: %[[SUM:[0-9]+]]:2 = scf.for {{.*}} iter_args(%[[ACC:.*]] = %[[X]],
// CHECK-NOT: tile.load %arg2
// CHECK: tile.dot %{{.*}}, %{{.*}}, %[[ACC]]
// CHECK-NEXT: tile.load %arg2
// CHECK: tile.load %arg3
// CHECK-NEXT: %[[Y:.*]] = tile.map (%[[SUM]]#0, %{{.*}}) -> !tile.tile<16x16xbf16> {
// CHECK: arith.mulf
// CHECK-NEXT: arith.truncf
// CHECK-NOT: tile.map
// CHECK: tile.store %[[Y]]
tile.kernel private @sums(%a: memref<16x16xbf16>, %x: memref<16x16xf32>, %row: memref<16xf32>, %w: memref<16x16xf32>, %y: memref<16x16xbf16>, %z: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %at = tile.load %a[%r, %c] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %xt = tile.load %x[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %wt = tile.load %w[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %none = tile.splat %zero : !tile.tile<16x16xf32>
  %lines = tile.splat %zero : !tile.tile<1x16xf32>
  %s:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %none, %line = %lines) -> (!tile.tile<16x16xf32>, !tile.tile<1x16xf32>) : i32 {
    %l = tile.load %row[%c] : memref<16xf32>, (!tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
    %d = tile.dot %at, %at, %acc : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    %more = tile.map (%line, %l : !tile.tile<1x16xf32>, !tile.tile<1x16xf32>) -> !tile.tile<1x16xf32> {
    ^bb0(%e: f32, %f: f32):
      %g = arith.addf %e, %f : f32
      tile.yield %g : f32
    }
    scf.yield %d, %more : !tile.tile<16x16xf32>, !tile.tile<1x16xf32>
  }
  %sum = tile.map (%s#0, %xt : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>) -> !tile.tile<16x16xf32> {
  ^bb0(%e: f32, %f: f32):
    %g = arith.addf %e, %f : f32
    tile.yield %g : f32
  }
  %scaled = tile.map (%sum, %wt, %s#1 : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<1x16xf32>) -> !tile.tile<16x16xf32> {
  ^bb0(%e: f32, %f: f32, %l: f32):
    %h = arith.addf %f, %l : f32
    %g = arith.mulf %e, %h : f32
    tile.yield %g : f32
  }
  %half = tile.map (%scaled : !tile.tile<16x16xf32>) -> !tile.tile<16x16xbf16> {
  ^bb0(%e: f32):
    %g = arith.truncf %e : f32 to bf16
    tile.yield %g : bf16
  }
  tile.store %half, %y[%r, %c] : !tile.tile<16x16xbf16>, memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.store %s#1, %z[%c] : !tile.tile<1x16xf32>, memref<16xf32>, (!tile.tile<1x16xi32>)
  tile.return
}

// A kernel without dots of 16 bits does not change.
// CHECK-LABEL: tile.kernel private @without
// CHECK-COUNT-2: tile.map
tile.kernel private @without(%x: memref<16xf32>, %y: memref<16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %xt = tile.load %x[%c] : memref<16xf32>, (!tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
  %e = tile.map (%xt : !tile.tile<1x16xf32>) -> !tile.tile<1x16xf32> {
  ^bb0(%f: f32):
    %g = arith.negf %f : f32
    tile.yield %g : f32
  }
  %h = tile.map (%e : !tile.tile<1x16xf32>) -> !tile.tile<1x16xbf16> {
  ^bb0(%f: f32):
    %g = arith.truncf %f : f32 to bf16
    tile.yield %g : bf16
  }
  tile.store %h, %y[%c] : !tile.tile<1x16xbf16>, memref<16xbf16>, (!tile.tile<1x16xi32>)
  tile.return
}

// Nor does one whose dots tensor cores cannot make, here of 12 columns.
// CHECK-LABEL: tile.kernel private @narrow
// CHECK: tile.dot
// CHECK-COUNT-2: tile.map
tile.kernel private @narrow(%a: memref<16x16xbf16>, %b: memref<16x12xbf16>, %y: memref<16x12xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %k = tile.range %c0 : !tile.tile<1x16xi32>
  %c = tile.range %c0 : !tile.tile<1x12xi32>
  %at = tile.load %a[%r, %k] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %bt = tile.load %b[%r, %c] : memref<16x12xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x12xi32>) -> !tile.tile<16x12xbf16>
  %none = tile.splat %zero : !tile.tile<16x12xf32>
  %d = tile.dot %at, %bt, %none : !tile.tile<16x16xbf16>, !tile.tile<16x12xbf16>, !tile.tile<16x12xf32>
  %e = tile.map (%d : !tile.tile<16x12xf32>) -> !tile.tile<16x12xf32> {
  ^bb0(%f: f32):
    %g = arith.negf %f : f32
    tile.yield %g : f32
  }
  %h = tile.map (%e : !tile.tile<16x12xf32>) -> !tile.tile<16x12xbf16> {
  ^bb0(%f: f32):
    %g = arith.truncf %f : f32 to bf16
    tile.yield %g : bf16
  }
  tile.store %h, %y[%r, %c] : !tile.tile<16x12xbf16>, memref<16x12xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x12xi32>)
  tile.return
}
