// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// The product is rounded before the sum reads it: it may not become part of a
// multiply-add. Inside the map products may.
// CHECK-LABEL: func.func @rounded(
// CHECK: %[[SQUARE:.*]] = arith.mulf %{{.*}} fastmath<contract> : vector<8xf32>
// CHECK: %[[SUM:.*]] = arith.addf %[[SQUARE]], %{{.*}} fastmath<contract> : vector<8xf32>
// CHECK: %[[RESULT:.*]] = arith.mulf %[[SUM]], %{{[^ ]*}} : vector<8xf32>
// CHECK: arith.addf %[[RESULT]], %{{.*}} fastmath<contract> : vector<8xf32>
tile.kernel private @rounded(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) {tile.rounded} -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %e : f32
    %t = arith.addf %s, %e : f32
    %u = arith.mulf %t, %e : f32
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
