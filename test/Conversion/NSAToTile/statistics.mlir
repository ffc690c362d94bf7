// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @statistics
// CHECK: tile.launch @gate_statistics_n256_f32
// CHECK: tile.launch @selection_statistics_b1s64h2n3_f32
func.func @statistics(%gates: tensor<1x64x4x3xf32>, %indices: tensor<1x2x64x3xi32>) -> (tensor<4xf32>, tensor<3xf32>) {
  %g = nsa.gate_statistics %gates : (tensor<1x64x4x3xf32>) -> tensor<4xf32>
  %s = nsa.selection_statistics %indices {select_block = 16 : i64} : (tensor<1x2x64x3xi32>) -> tensor<3xf32>
  return %g, %s : tensor<4xf32>, tensor<3xf32>
}

// One program, so the order of every sum is fixed.
// CHECK-LABEL: tile.kernel private @gate_statistics
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK: math.log

// A block counts once for all queries of a block; queries behind the end count nothing.
// CHECK-LABEL: tile.kernel private @selection_statistics
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK: tile.reduce max
