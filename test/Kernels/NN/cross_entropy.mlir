// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// Online log-sum-exp over tiles of the vocabulary, then one program that adds
// the parts.
// CHECK-LABEL: func.func @forward
// CHECK: %[[PARTS:.*]]:3 = tile.launch @cross_entropy_t128x50304_f32({{.*}} -> (tensor<2x64xf32>, tensor<128xf32>, tensor<128xf32>)
// CHECK: tile.launch @cross_entropy_mean_n128_f32(%[[PARTS]]#1, %[[PARTS]]#2)
// CHECK: tile.kernel private @cross_entropy_t128x50304_f32
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %c0_i32 to %c131_i32 {{.*}} -> (!tile.tile<1x1xf32>, !tile.tile<1x1xf32>)
// CHECK: tile.load %{{.*}} -> !tile.tile<1x384xf32>
// CHECK-NOT: arith.select
// CHECK: tile.reduce max
// CHECK: math.exp
// CHECK: tile.reduce add
// CHECK: scf.yield
// CHECK: math.log
// CHECK: tile.kernel private @cross_entropy_mean_n128_f32
func.func @forward(%logits: tensor<2x64x50304xf32>, %targets: tensor<2x64xi32>) -> tensor<f32> {
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<2x64x50304xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// -----

// A vocabulary without a fitting divisor: columns past its end are masked.
// CHECK-LABEL: tile.kernel private @cross_entropy_t128x50257_bf16
// CHECK: tile.load %{{.*}} -> !tile.tile<1x2048xbf16>
// CHECK: arith.cmpi slt, %{{.*}}, %c50257_i32
// CHECK: tile.reduce max
// CHECK: math.exp
// CHECK: arith.cmpi slt, %{{.*}}, %c50257_i32
// CHECK: tile.reduce add
func.func @masked(%logits: tensor<2x64x50257xbf16>, %targets: tensor<2x64xi32>) -> tensor<f32> {
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<2x64x50257xbf16>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// -----

// Each tile is read just before it is written, so dlogits may be in the memory
// of the logits.
// CHECK-LABEL: tile.kernel private @cross_entropy_backward_t128x256_bf16
// CHECK-DAG: %[[LOGITS:.*]] = tile.view %arg1
// CHECK-DAG: %[[GRADS:.*]] = tile.view %arg5
// CHECK: %[[X:.*]] = tile.load %[[LOGITS]][%[[ROW:.*]], %[[COLS:.*]]]
// CHECK: tile.map (%[[X]], %[[COLS]]
// CHECK: tile.store %{{.*}}, %[[GRADS]][%[[ROW]], %[[COLS]]]
func.func @backward(%dloss: tensor<f32>, %logits: tensor<2x64x256xbf16>, %targets: tensor<2x64xi32>,
                    %lse: tensor<2x64xf32>, %count: tensor<f32>) -> tensor<2x64x256xbf16> {
  %d = nn.cross_entropy_backward %dloss, %logits, %targets, %lse, %count
      : (tensor<f32>, tensor<2x64x256xbf16>, tensor<2x64xi32>, tensor<2x64xf32>, tensor<f32>) -> tensor<2x64x256xbf16>
  return %d : tensor<2x64x256xbf16>
}
