// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// Inside of a map a product that only a sum reads becomes part of it. A product
// that is a result is rounded: what is around a map never changes what it gives.
// Nothing is left for LLVM to contract as it sees fit.
// CHECK-LABEL: func.func @rounded(
// CHECK: %[[V:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK-NOT: fastmath
// CHECK: %[[SUM:.*]] = math.fma %[[V]], %[[V]], %[[V]] : vector<8xf32>
// CHECK: %[[MINUS:.*]] = arith.negf %[[V]] : vector<8xf32>
// CHECK: %[[LESS:.*]] = math.fma %[[MINUS]], %[[SUM]], %[[SUM]] : vector<8xf32>
// CHECK: %[[RESULT:.*]] = arith.mulf %[[LESS]], %[[V]] : vector<8xf32>
// CHECK: arith.addf %[[RESULT]], %[[V]] : vector<8xf32>
tile.kernel private @rounded(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %e : f32
    %t = arith.addf %s, %e : f32
    %p = arith.mulf %e, %t : f32
    %d = arith.subf %t, %p : f32
    %u = arith.mulf %d, %e : f32
    tile.yield %u : f32
  }
  %z = tile.map (%w, %v : !tile.tile<1x64xf32>, !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32, %f: f32):
    %s = arith.addf %e, %f : f32
    tile.yield %s : f32
  }
  tile.store %z, %y[%i] : !tile.tile<1x64xf32>, memref<64xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// A difference that is an exponent of 2 is rounded like its product: that of
// equal numbers is 0. Shortcuts are left.
// CHECK-LABEL: func.func @exponent(
// CHECK-NOT: math.fma %{{.*}} : vector<8xf32>
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[W:.*]], %{{.*}} : vector<8xf32>
// CHECK: arith.subf %[[PRODUCT]], %{{.*}} : vector<8xf32>
tile.kernel private @exponent(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %factor = arith.constant 1.25 : f32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %factor : f32
    %d = arith.subf %s, %e : f32
    %isSmall = arith.cmpf olt, %e, %factor : f32
    %once = math.fma %e, %factor, %e : f32
    %either = arith.select %isSmall, %once, %d {nsa.shortcut} : f32
    %p = math.exp2 %either : f32
    tile.yield %p : f32
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xf32>, memref<64xf32>, (!tile.tile<1x64xi32>)
  tile.return
}
