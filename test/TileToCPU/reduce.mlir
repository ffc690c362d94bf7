// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// What a reduction consumes is computed in its loop; the row's sum is one
// vector until the row ends, and columns past the end do not count.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for
// CHECK: %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[S:.*]] = %{{.*}}) -> (vector<8xf32>)
// CHECK: %[[X:.*]] = arith.mulf {{.*}} : vector<8xf32>
// CHECK: arith.addf %[[S]], %[[X]] : vector<8xf32>
// CHECK: arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<8xi1>, vector<8xf32>
// CHECK: vector.shuffle {{.*}} [0, 1, 2, 3]
// CHECK: vector.shuffle {{.*}} [0, 1]
// CHECK: vector.shuffle {{.*}} [0]
// CHECK: llvm.store %{{.*}} : f32
tile.kernel private @rows(%x: memref<4x20xf32>, %y: memref<4xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %rows = tile.range %c0 : !tile.tile<4x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x20xi32>
  %v = tile.load %x[%rows, %cols] : memref<4x20xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x20xi32>) -> !tile.tile<4x20xf32>
  %w = tile.map (%v : !tile.tile<4x20xf32>) -> !tile.tile<4x20xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %e : f32
    tile.yield %s : f32
  }
  %m = tile.reduce add %w {axis = 1 : i32} : !tile.tile<4x20xf32> -> !tile.tile<4x1xf32>
  tile.store %m, %y[%rows] : !tile.tile<4x1xf32>, memref<4xf32>, (!tile.tile<4x1xi32>)
  tile.return
}

// Vectors of a long row go to four sums in turn.
// CHECK-LABEL: func.func @long(
// CHECK: %[[SUMS:.*]]:4 = scf.for {{.*}} iter_args(%[[S0:.*]] = %{{.*}}, %[[S1:.*]] = %{{.*}}, %[[S2:.*]] = %{{.*}}, %[[S3:.*]] = %{{.*}}) ->
// CHECK-DAG: %[[N0:.*]] = arith.addf %[[S0]], %{{.*}} : vector<8xf32>
// CHECK-DAG: %[[N1:.*]] = arith.addf %[[S1]], %{{.*}} : vector<8xf32>
// CHECK-DAG: %[[N2:.*]] = arith.addf %[[S2]], %{{.*}} : vector<8xf32>
// CHECK-DAG: %[[N3:.*]] = arith.addf %[[S3]], %{{.*}} : vector<8xf32>
// CHECK: scf.yield %[[N0]], %[[N1]], %[[N2]], %[[N3]]
// CHECK: %[[A:.*]] = arith.addf %[[SUMS]]#0, %[[SUMS]]#2
// CHECK: %[[B:.*]] = arith.addf %[[SUMS]]#1, %[[SUMS]]#3
// CHECK: arith.addf %[[A]], %[[B]]
tile.kernel private @long(%x: memref<4x128xf32>, %y: memref<4xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %rows = tile.range %c0 : !tile.tile<4x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x128xi32>
  %v = tile.load %x[%rows, %cols] : memref<4x128xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x128xi32>) -> !tile.tile<4x128xf32>
  %m = tile.reduce add %v {axis = 1 : i32} : !tile.tile<4x128xf32> -> !tile.tile<4x1xf32>
  tile.store %m, %y[%rows] : !tile.tile<4x1xf32>, memref<4xf32>, (!tile.tile<4x1xi32>)
  tile.return
}

// Down the columns, vectors of columns are combined row after row.
// CHECK-LABEL: func.func @columns(
// CHECK-DAG: %[[LOWEST:.*]] = arith.constant dense<0xFF800000> : vector<8xf32>
// CHECK: llvm.store %[[LOWEST]], %[[BEST:[0-9a-z]+]]
// CHECK: scf.for
// CHECK: %[[NEW:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: %[[OLD:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: %[[WINS:.*]] = arith.cmpf ogt, %[[NEW]], %[[OLD]]
// CHECK: %[[BOTH:.*]] = arith.select %[[WINS]], %[[NEW]], %[[OLD]]
// CHECK: llvm.store %[[BOTH]]
tile.kernel private @columns(%x: memref<4x8xf32>, %y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %rows = tile.range %c0 : !tile.tile<4x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%rows, %cols] : memref<4x8xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<4x8xf32>
  %m = tile.reduce max %v {axis = 0 : i32} : !tile.tile<4x8xf32> -> !tile.tile<1x8xf32>
  tile.store %m, %y[%cols] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}

// A map that others use too is written once; its reductions join its loop.
// CHECK-LABEL: func.func @shared(
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<8xf32>, vector<8xf32>)
// CHECK: %[[E:.*]] = math.exp {{.*}} : vector<8xf32>
// CHECK: llvm.store %[[E]]
// CHECK: arith.addf %{{.*}}, %[[E]]
tile.kernel private @shared(%x: memref<1x16xf32>, %y: memref<16x16xf32>, %s: memref<2xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %zero = tile.range %c0 : !tile.tile<1x1xi32>
  %v = tile.load %x[%c0, %cols] : memref<1x16xf32>, (i32, !tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
  %w = tile.map (%v : !tile.tile<1x16xf32>) -> !tile.tile<1x16xf32> {
  ^bb0(%e: f32):
    %r = math.exp %e : f32
    tile.yield %r : f32
  }
  %a = tile.reduce add %w {axis = 1 : i32} : !tile.tile<1x16xf32> -> !tile.tile<1x1xf32>
  %m = tile.reduce max %w {axis = 1 : i32} : !tile.tile<1x16xf32> -> !tile.tile<1x1xf32>
  %none = tile.splat %f0 : !tile.tile<16x16xf32>
  %p = tile.dot %w, %w, %none {transpose_a} : !tile.tile<1x16xf32>, !tile.tile<1x16xf32>, !tile.tile<16x16xf32>
  tile.store %p, %y[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.store %a, %s[%zero] : !tile.tile<1x1xf32>, memref<2xf32>, (!tile.tile<1x1xi32>)
  tile.store %m, %s[%zero] : !tile.tile<1x1xf32>, memref<2xf32>, (!tile.tile<1x1xi32>)
  tile.return
}
