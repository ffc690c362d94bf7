// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// Scores stay in the program: the launch has the indices as its only result.

// CHECK-LABEL: func.func @select
// CHECK: %[[I:.+]] = tile.launch @select_b1s256h4x2d16_l8d4s16n3_f32(
// CHECK-SAME: -> tensor<1x2x256x3xi32>
// CHECK: return %[[I]]
func.func @select(%q: tensor<1x256x4x16xf32>, %k: tensor<1x63x2x16xf32>, %lse: tensor<1x4x256xf32>) -> tensor<1x2x256x3xi32> {
  %indices = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64}
      : (tensor<1x256x4x16xf32>, tensor<1x63x2x16xf32>, tensor<1x4x256xf32>) -> tensor<1x2x256x3xi32>
  return %indices : tensor<1x2x256x3xi32>
}

// CHECK-LABEL: tile.kernel private @select_b1s256h4x2d16_l8d4s16n3_f32
// CHECK-SAME: grid = array<i32: 4, 2, 1>
// CHECK-DAG: %[[MINUS1:.+]] = arith.constant -1 : i32
// CHECK-DAG: %[[NONE:.+]] = arith.constant -1.000000e+00 : f32
// CHECK-DAG: %[[FORCED:.+]] = arith.constant 0x4B800000 : f32
// Weights: 8 selection blocks take 8*4 compressed blocks and 1 before them.
// CHECK: %[[C:.+]] = tile.range %[[MINUS1]] : !tile.tile<33x1xi32>
// CHECK: %[[WEIGHTS:.+]] = tile.map (%[[C]], %{{.+}}) -> !tile.tile<33x8xf32>
// CHECK: arith.minsi
// CHECK: arith.maxsi
// CHECK: arith.subi
// CHECK: scf.for %[[J0:.+]] = {{.*}} iter_args(%[[VALUES:.+]] = %{{.+}}, %[[INDICES:.+]] = %{{.+}})
// All heads of the group, in ascending order, in fp32; sums of products in the
// order of the width, of any number of queries.
// CHECK: %[[COLUMNS:.+]] = tile.transpose
// CHECK: %[[SUMS:.+]] = scf.for
// CHECK: tile.dot %{{.+}}, %[[COLUMNS]],
// CHECK: math.exp
// Invisible blocks and those before the first one give 0, for all heads alike.
// CHECK: %[[P:.+]] = tile.map (%[[SUMS]],
// CHECK: ^bb0(%[[SUM:.+]]: f32, %{{.+}}: i32, %{{.+}}: i32):
// CHECK: %[[INSIDE:.+]] = arith.cmpi sge
// CHECK: %[[COMPLETE:.+]] = arith.cmpi sle
// CHECK: %[[VISIBLE:.+]] = arith.andi %[[INSIDE]], %[[COMPLETE]]
// CHECK: arith.select %[[VISIBLE]], %[[SUM]]
// CHECK: %[[SCORES:.+]] = tile.dot %[[P]], %[[WEIGHTS]],
// Forced blocks beat every score; blocks after the query's own are out.
// CHECK: %[[COMPETING:.+]] = tile.map (%[[SCORES]],
// CHECK: arith.select %{{.+}}, %[[FORCED]]
// CHECK: %[[CANDIDATE:.+]] = arith.cmpi sge
// CHECK: arith.select %[[CANDIDATE]], %{{.+}}, %[[NONE]]
// CHECK: tile.top_n %[[COMPETING]], %[[J0]], %[[VALUES]], %[[INDICES]]
// CHECK: %[[SORTED:.+]] = tile.sort
// CHECK: tile.store %[[SORTED]]
