// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// A vector of candidates is looked at closely only if one of them enters; the
// list moves by whole vectors, the part at the end first.
// CHECK-LABEL: func.func @top_n(
// CHECK: %[[ENTERS:.*]] = arith.cmpf ogt, {{.*}} : vector<8xf32>
// CHECK: %[[BITS:.*]] = llvm.bitcast %[[ENTERS]] : vector<8xi1> to i8
// CHECK: %[[ANY:.*]] = arith.cmpi ne, %[[BITS]]
// CHECK: scf.if %[[ANY]] {
// CHECK: arith.cmpf ogt, {{.*}} : f32
// CHECK: arith.select {{.*}} : vector<8xi1>, vector<8xf32>
// CHECK: vector.shuffle {{.*}} [8, 0, 1, 2, 3, 4, 5, 6]
// CHECK-LABEL: func.func @sort(
// CHECK: arith.maxui
// CHECK: arith.minui
tile.kernel private @top_n(%x: memref<4x32xf32>, %y: memref<4x16xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %none = arith.constant -1 : i32
  %minus = arith.constant -1.0 : f32
  %r = tile.range %c0 : !tile.tile<4x1xi32>
  %c = tile.range %c0 : !tile.tile<1x32xi32>
  %n = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%r, %c] : memref<4x32xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<4x32xf32>
  %v0 = tile.splat %minus : !tile.tile<4x16xf32>
  %i0 = tile.splat %none : !tile.tile<4x16xi32>
  %best, %index = tile.top_n %v, %c0, %v0, %i0 : !tile.tile<4x32xf32>, !tile.tile<4x16xf32>, !tile.tile<4x16xi32>
  tile.store %index, %y[%r, %n] : !tile.tile<4x16xi32>, memref<4x16xi32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
tile.kernel private @sort(%x: memref<4x8xi32>, %y: memref<4x8xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<4x1xi32>
  %c = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%r, %c] : memref<4x8xi32>, (!tile.tile<4x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<4x8xi32>
  %s = tile.sort %v : !tile.tile<4x8xi32>
  tile.store %s, %y[%r, %c] : !tile.tile<4x8xi32>, memref<4x8xi32>, (!tile.tile<4x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}

// Blocks of eight by eight; the rows below the last one repeat it.
// CHECK-LABEL: func.func @transpose(
// CHECK: arith.minui
// CHECK-COUNT-24: vector.shuffle
// CHECK-NOT: vector.shuffle
// CHECK: llvm.store {{.*}} : vector<8xf32>
tile.kernel private @transpose(%x: memref<12x16xf32>, %y: memref<16x12xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<12x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %tr = tile.range %c0 : !tile.tile<16x1xi32>
  %tc = tile.range %c0 : !tile.tile<1x12xi32>
  %v = tile.load %x[%r, %c] : memref<12x16xf32>, (!tile.tile<12x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<12x16xf32>
  %t = tile.transpose %v : !tile.tile<12x16xf32> -> !tile.tile<16x12xf32>
  tile.store %t, %y[%tr, %tc] : !tile.tile<16x12xf32>, memref<16x12xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x12xi32>)
  tile.return
}

// A vote of a column of 12: whole vectors, then the rest without the padding.
// CHECK-LABEL: func.func @any(
// CHECK: %[[WHOLE:.*]] = arith.trunci %{{.*}} : vector<8xi8> to vector<8xi1>
// CHECK: %[[REST:.*]] = arith.trunci %{{.*}} : vector<8xi8> to vector<8xi1>
// CHECK: %[[LAST:.*]] = arith.andi %[[REST]]
// CHECK: %[[ALL:.*]] = arith.ori %[[WHOLE]], %[[LAST]]
// CHECK: llvm.bitcast %[[ALL]] : vector<8xi1> to i8
tile.kernel private @any(%x: memref<12xi32>, %y: memref<1xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<12x1xi32>
  %v = tile.load %x[%r] : memref<12xi32>, (!tile.tile<12x1xi32>) -> !tile.tile<12x1xi32>
  %is = tile.map (%v : !tile.tile<12x1xi32>) -> !tile.tile<12x1xi1> {
  ^bb0(%e: i32):
    %f = arith.cmpi eq, %e, %c0 : i32
    tile.yield %f : i1
  }
  %some = tile.any %is : !tile.tile<12x1xi1>
  %word = arith.extui %some : i1 to i32
  tile.store %word, %y[%c0] : i32, memref<1xi32>, (i32)
  tile.return
}
