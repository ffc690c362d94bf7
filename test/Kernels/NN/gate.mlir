// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel private @gate_sigmoid_t64x12_bf16
// CHECK: tile.load %{{.*}} : memref<12xf32>
// CHECK: scf.for
// CHECK: tile.load %{{.*}} -> !tile.tile<16x12xbf16>
// CHECK: math.exp
// CHECK: tile.store %{{.*}} : !tile.tile<16x12xf32>, memref<64x12xf32>
func.func @sigmoid(%logits: tensor<1x64x12xbf16>, %bias: tensor<12xf32>) -> tensor<1x64x4x3xf32> {
  %g = nn.gate sigmoid %logits, %bias : (tensor<1x64x12xbf16>, tensor<12xf32>) -> tensor<1x64x4x3xf32>
  return %g : tensor<1x64x4x3xf32>
}

// -----

// The three gates of a head meet in one map over the heads.
// CHECK-LABEL: tile.kernel private @gate_softmax_t64x12_f32
// CHECK: tile.range %c0_i32 {step = 3 : i32} : !tile.tile<1x4xi32>
// CHECK: tile.range %c1_i32 {step = 3 : i32} : !tile.tile<1x4xi32>
// CHECK: tile.range %c2_i32 {step = 3 : i32} : !tile.tile<1x4xi32>
// CHECK: tile.map {{.*}} -> !tile.tile<16x4xf32>, !tile.tile<16x4xf32>, !tile.tile<16x4xf32>
// CHECK-COUNT-3: math.exp
func.func @softmax(%logits: tensor<1x64x12xf32>) -> tensor<1x64x4x3xf32> {
  %g = nn.gate softmax %logits : (tensor<1x64x12xf32>) -> tensor<1x64x4x3xf32>
  return %g : tensor<1x64x4x3xf32>
}

// -----

// CHECK-LABEL: tile.kernel private @gate_softmax_t64x12_f32
// CHECK-COUNT-4: tile.range %{{.*}} {step = 4 : i32} : !tile.tile<1x3xi32>
// CHECK-COUNT-4: math.exp
func.func @four_branches(%logits: tensor<1x64x12xf32>) -> tensor<1x64x3x4xf32> {
  %g = nn.gate softmax %logits {branches = 4 : i64} : (tensor<1x64x12xf32>) -> tensor<1x64x3x4xf32>
  return %g : tensor<1x64x3x4xf32>
}

// -----

// CHECK-LABEL: func.func @backward
// CHECK: %[[PARTS:.*]]:2 = tile.launch @gate_backward_sigmoid_t2048x12_bf16({{.*}} -> (tensor<2x1024x12xbf16>, tensor<2x12xf32>)
// CHECK: tile.launch @gate_backward_sum_t2x12_bf16(%[[PARTS]]#1)
// CHECK: tile.kernel private @gate_backward_sigmoid_t2048x12_bf16
// CHECK: scf.for {{.*}} -> (!tile.tile<1x12xf32>)
// CHECK: tile.reduce add %{{.*}} {axis = 0 : i32}
func.func @backward(%dg: tensor<2x1024x4x3xf32>, %g: tensor<2x1024x4x3xf32>) -> (tensor<2x1024x12xbf16>, tensor<12xf32>) {
  %dl, %db = nn.gate_backward sigmoid %dg, %g {logits_type = bf16}
      : (tensor<2x1024x4x3xf32>, tensor<2x1024x4x3xf32>) -> (tensor<2x1024x12xbf16>, tensor<12xf32>)
  return %dl, %db : tensor<2x1024x12xbf16>, tensor<12xf32>
}
