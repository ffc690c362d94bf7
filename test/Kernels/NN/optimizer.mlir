// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// Every gradient has 64 partial sums, whatever its shape; one program adds
// them. Gradients of the same shape share a kernel.
// CHECK-LABEL: func.func @norm
// CHECK: %[[A:.*]] = tile.launch @gradient_norm_squares_512x256_f32(%arg0) : (tensor<512x256xf32>) -> tensor<64xf32>
// CHECK: %[[B:.*]] = tile.launch @gradient_norm_squares_7_f32(%arg1) : (tensor<7xf32>) -> tensor<64xf32>
// CHECK: %[[C:.*]] = tile.launch @gradient_norm_squares_512x256_f32(%arg2)
// CHECK: tile.launch @gradient_norm_n3_f32(%[[A]], %[[B]], %[[C]])
// CHECK: tile.kernel private @gradient_norm_squares_512x256_f32{{.*}}grid = array<i32: 64, 1, 1>
// CHECK: tile.kernel private @gradient_norm_n3_f32{{.*}}grid = array<i32: 1, 1, 1>
// CHECK-COUNT-3: tile.load
// CHECK: tile.reduce add
// CHECK: math.sqrt
func.func @norm(%a: tensor<512x256xf32>, %b: tensor<7xf32>, %c: tensor<512x256xf32>) -> tensor<f32> {
  %norm = nn.gradient_norm %a, %b, %c : (tensor<512x256xf32>, tensor<7xf32>, tensor<512x256xf32>) -> tensor<f32>
  return %norm : tensor<f32>
}

// -----

// The weight decays only where asked; results are selected, never scaled, when
// norm or loss is not finite.
// CHECK-LABEL: func.func @adamw
// CHECK: tile.launch @adamw_decay_n4096_f32
// CHECK: tile.launch @adamw_n4096_f32
// CHECK: tile.kernel private @adamw_decay_n4096_f32
// CHECK-COUNT-2: math.absf
// CHECK: %[[FINITE:.*]] = arith.andi
// CHECK-DAG: %[[W:.*]] = tile.view %arg0
// CHECK-DAG: %[[OUT:.*]] = tile.view %arg7
// CHECK: scf.for
// CHECK: tile.load %[[W]][%[[I:.*]]]
// CHECK: tile.map
// CHECK-COUNT-3: arith.select %[[FINITE]]
// CHECK: tile.store %{{.*}}, %[[OUT]][%[[I]]]
// CHECK-COUNT-2: tile.store
func.func @adamw(%w: tensor<64x64xf32>, %m: tensor<64x64xf32>, %v: tensor<64x64xf32>, %g: tensor<64x64xf32>,
                 %norm: tensor<f32>, %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %w1, %m1, %v1 = nn.adamw %w, %m, %v, %g, %norm, %loss, %hyper {decay}
      : (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>)
  %w2, %m2, %v2 = nn.adamw %w, %m, %v, %g, %norm, %loss, %hyper
      : (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>)
  return %w1, %w2 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

// One program decides about the loss scale; nothing comes to the host for it.
// CHECK-LABEL: func.func @loss_scale
// CHECK: tile.launch @update_loss_scale_every2000_f32
// CHECK: tile.kernel private @update_loss_scale_every2000_f32{{.*}}grid = array<i32: 1, 1, 1>
// CHECK: arith.constant 2.000000e+03
// CHECK-COUNT-2: math.absf
func.func @loss_scale(%hyper: tensor<8xf32>, %norm: tensor<f32>, %loss: tensor<f32>,
                      %scale: tensor<f32>, %streak: tensor<f32>, %skipped: tensor<f32>)
    -> (tensor<8xf32>, tensor<f32>) {
  %h, %n, %s, %k, %d = nn.update_loss_scale %hyper, %norm, %loss, %scale, %streak, %skipped {growth_interval = 2000 : i64}
      : (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
      -> (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
  return %h, %s : tensor<8xf32>, tensor<f32>
}
