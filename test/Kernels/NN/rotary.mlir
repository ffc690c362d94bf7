// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// The angles of a position are read once for all heads and rows of the batch.
// CHECK-LABEL: tile.kernel private @rotary_b2s64h3d16_f32
// CHECK: scf.for %[[T:.*]] =
// CHECK-DAG: %[[COS:.*]] = tile.load %{{.*}}[%[[T]], %[[LOW:.*]], %c0_i32] : memref<64x8x2xf32>
// CHECK-DAG: %[[SIN:.*]] = tile.load %{{.*}}[%[[T]], %[[LOW]], %c1_i32] : memref<64x8x2xf32>
// CHECK: scf.for %[[B:.*]] =
// CHECK-DAG: tile.load %{{.*}}[%[[B]], %[[T]], %{{.*}}, %[[LOW]]] {{.*}} -> !tile.tile<3x8xf32>
// Which product is rounded is written down.
// CHECK: %[[P:.*]] = arith.mulf
// CHECK: %[[N:.*]] = arith.negf %[[P]]
// CHECK: math.fma %{{.*}}, %{{.*}}, %[[N]]
// CHECK: %[[Q:.*]] = arith.mulf
// CHECK: math.fma %{{.*}}, %{{.*}}, %[[Q]]
// CHECK-COUNT-2: tile.store
func.func @forward(%x: tensor<2x64x3x16xf32>, %table: tensor<64x8x2xf32>) -> tensor<2x64x3x16xf32> {
  %y = nn.rotary %x, %table : (tensor<2x64x3x16xf32>, tensor<64x8x2xf32>) -> tensor<2x64x3x16xf32>
  return %y : tensor<2x64x3x16xf32>
}

// -----

// Compressed rows stand `stride` positions apart; the inverse turns back.
// CHECK-LABEL: tile.kernel private @rotary_inverse_b1s15h2d16_f32
// CHECK: scf.for %[[T:.*]] =
// CHECK: %[[POSITION:.*]] = arith.muli %[[T]], %c4_i32
// CHECK: tile.load %{{.*}}[%[[POSITION]], %{{.*}}, %c0_i32]
// CHECK: arith.negf
func.func @strided(%x: tensor<1x15x2x16xf32>, %table: tensor<64x8x2xf32>) -> tensor<1x15x2x16xf32> {
  %y = nn.rotary %x, %table {stride = 4 : i64, inverse} : (tensor<1x15x2x16xf32>, tensor<64x8x2xf32>) -> tensor<1x15x2x16xf32>
  return %y : tensor<1x15x2x16xf32>
}

// -----

// No rows, one idle program.
// CHECK-LABEL: tile.kernel private @rotary_b1s0h2d16_f32
// CHECK-SAME: grid = array<i32: 1, 1, 1>
func.func @empty(%x: tensor<1x0x2x16xf32>, %table: tensor<64x8x2xf32>) -> tensor<1x0x2x16xf32> {
  %y = nn.rotary %x, %table : (tensor<1x0x2x16xf32>, tensor<64x8x2xf32>) -> tensor<1x0x2x16xf32>
  return %y : tensor<1x0x2x16xf32>
}
