// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @statistics
// CHECK: %[[GATES:.+]] = tile.launch @gate_statistics_parts_n16388_f32
// CHECK: tile.launch @gate_statistics_n16388_f32(%[[GATES]])
// CHECK: %[[PARTS:.+]] = tile.launch @selection_statistics_parts_b1s64h2n3_f32
// CHECK: tile.launch @selection_statistics_b1s64h2n3_f32(%[[PARTS]])
func.func @statistics(%gates: tensor<1x4097x4x3xf32>, %indices: tensor<1x2x64x3xi32>) -> (tensor<4xf32>, tensor<3xf32>) {
  %g = nsa.gate_statistics %gates : (tensor<1x4097x4x3xf32>) -> tensor<4xf32>
  %s = nsa.selection_statistics %indices {select_block = 16 : i64} : (tensor<1x2x64x3xi32>) -> tensor<3xf32>
  return %g, %s : tensor<4xf32>, tensor<3xf32>
}

// A program for each 4,096 rows; one adds their sums, so that the order is fixed.
// CHECK-LABEL: tile.kernel private @gate_statistics_parts
// CHECK-SAME: grid = array<i32: 5, 1, 1>
// CHECK: math.log
// CHECK-LABEL: tile.kernel private @gate_statistics_n16388_f32
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK: tile.load {{.*}}memref<4x5xf32>

// A program for each block of queries, head and row of the batch. A block counts
// once for all queries of a block; queries past the end count nothing. Up to
// 32 blocks are marked at once, as bits of a number.
// CHECK-LABEL: tile.kernel private @selection_statistics_parts
// CHECK-SAME: grid = array<i32: 4, 2, 1>
// CHECK: tile.reduce add
// CHECK: arith.shli
// CHECK: tile.reduce max

// One program adds what these found.
// CHECK-LABEL: tile.kernel private @selection_statistics_b1s64h2n3_f32
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK: tile.load {{.*}}memref<3x8xf32>
