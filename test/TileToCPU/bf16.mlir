// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// Rounding to nearest even and widening are integer arithmetic; NaN stays NaN.
// No bf16 is left for LLVM.
// CHECK-NOT: bf16
// CHECK-LABEL: func.func @convert(
// CHECK: %[[X:.*]] = llvm.load {{.*}} -> vector<8xi16>
// CHECK: %[[W:.*]] = arith.extui %[[X]] : vector<8xi16> to vector<8xi32>
// CHECK: %[[S:.*]] = arith.shli %[[W]]
// CHECK: %[[F:.*]] = arith.bitcast %[[S]] : vector<8xi32> to vector<8xf32>
// CHECK: %[[D:.*]] = arith.addf %[[F]], %[[F]]
// CHECK: %[[B:.*]] = arith.bitcast %[[D]] : vector<8xf32> to vector<8xi32>
// CHECK: %[[KEPT:.*]] = arith.shrui %[[B]]
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[D]], %[[D]]
// CHECK: arith.select %[[NAN]]
// CHECK: arith.trunci {{.*}} : vector<8xi32> to vector<8xi16>
tile.kernel private @convert(%x: memref<64xbf16>, %y: memref<64xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xbf16>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xbf16>
  %w = tile.map (%v : !tile.tile<1x64xbf16>) -> !tile.tile<1x64xbf16> {
  ^bb0(%e: bf16):
    %f = arith.extf %e : bf16 to f32
    %s = arith.addf %f, %f : f32
    %t = arith.truncf %s : f32 to bf16
    tile.yield %t : bf16
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xbf16>, memref<64xbf16>, (!tile.tile<1x64xi32>)
  tile.return
}

// The operands of a dot become f32 as they are loaded, outside its loops.
// CHECK-LABEL: func.func @product(
// CHECK: llvm.load {{.*}} -> vector<8xi16>
// CHECK: arith.extui
// CHECK: llvm.store {{.*}} : vector<8xf32>
// CHECK: llvm.intr.fmuladd
// CHECK-NOT: arith.extui
tile.kernel private @product(%x: memref<8x8xbf16>, %y: memref<8x8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<8x1xi32>
  %c = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%r, %c] : memref<8x8xbf16>, (!tile.tile<8x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<8x8xbf16>
  %z = tile.splat %f0 : !tile.tile<8x8xf32>
  %p = tile.dot %v, %v, %z : !tile.tile<8x8xbf16>, !tile.tile<8x8xbf16>, !tile.tile<8x8xf32>
  tile.store %p, %y[%r, %c] : !tile.tile<8x8xf32>, memref<8x8xf32>, (!tile.tile<8x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}
