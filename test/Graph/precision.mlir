// RUN: nsa-opt %s --nsa-precision=precision=bf16 --remarks-filter=nsa-precision 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.err
// RUN: nsa-opt %s --nsa-precision | FileCheck %s --check-prefix=FP32
// RUN: nsa-opt %s --nsa-precision=precision=fp16 | FileCheck %s --check-prefix=FP16

// REMARK: [Passed] Narrowed {{.*}}Function=model {{.*}}computes in bf16 with 4 casts

// FP32-NOT: bf16
// FP32-NOT: loss_scale

// The gradient of the loss is a scale that lasts.
// FP16-LABEL: func @model(
// FP16-SAME: tensor<f32> {nn.init = #nn.init<constant, 6.553600e+04>, nn.name = "loss_scale", nn.role = "state", nn.seed})
// FP16: nn.embedding {{.*}} -> tensor<1x16x8xf16>
// FP16-LABEL: func @plain(
// FP16-SAME: tensor<4xf32>) ->

// CHECK-LABEL: func @model(
// CHECK-SAME: %[[TABLE:[^:]*]]: tensor<32x8xf32>
// CHECK-SAME: %[[NORM:[^:]*]]: tensor<8xf32>
// CHECK-SAME: %[[W:[^:]*]]: tensor<8x8xf32>
// CHECK-SAME: -> (tensor<f32> {{.*}}, tensor<1x16x32xf32>
func.func @model(
    %ids: tensor<1x16xi32> {nn.name = "tokens", nn.role = "input"},
    %targets: tensor<1x16xi32> {nn.name = "targets", nn.role = "input"},
    %table: tensor<32x8xf32> {nn.name = "table", nn.role = "parameter"},
    %norm: tensor<8xf32> {nn.name = "norm", nn.role = "parameter"},
    %w: tensor<8x8xf32> {nn.name = "w", nn.role = "parameter"},
    %bias: tensor<6xf32> {nn.name = "bias", nn.role = "parameter"},
    %wg: tensor<8x6xf32> {nn.name = "wg", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss"}, tensor<1x16x32xf32> {nn.name = "logits"},
        tensor<1x16x2x3xf32> {nn.name = "gates"}) attributes {nn.train} {
  // A parameter is cast before its first user and only once.
  // CHECK: %[[TABLE_BF16:.*]] = nn.cast %[[TABLE]] to bf16
  // CHECK-NEXT: nn.embedding %[[TABLE_BF16]], {{.*}} -> tensor<1x16x8xbf16>
  %x = nn.embedding %table, %ids : (tensor<32x8xf32>, tensor<1x16xi32>) -> tensor<1x16x8xf32>
  // Weights of norms and statistics are full.
  // CHECK-NEXT: nn.rms_norm %{{.*}}, %[[NORM]] {{.*}} : (tensor<1x16x8xbf16>, tensor<8xf32>) -> (tensor<1x16x8xbf16>, tensor<1x16xf32>)
  %h, %rstd = nn.rms_norm %x, %norm {eps = 1.0e-5 : f64} : (tensor<1x16x8xf32>, tensor<8xf32>) -> (tensor<1x16x8xf32>, tensor<1x16xf32>)
  // CHECK-NEXT: %[[W_BF16:.*]] = nn.cast %[[W]] to bf16
  // CHECK-NEXT: nn.matmul %{{.*}}, %[[W_BF16]] : (tensor<1x16x8xbf16>, tensor<8x8xbf16>) -> tensor<1x16x8xbf16>
  %y = nn.matmul %h, %w : (tensor<1x16x8xf32>, tensor<8x8xf32>) -> tensor<1x16x8xf32>
  // Gates are fp32 whatever the logits are, and so is a bias.
  // CHECK: nn.gate sigmoid {{.*}} : (tensor<1x16x6xbf16>, tensor<6xf32>) -> tensor<1x16x2x3xf32>
  %z = nn.matmul %y, %wg : (tensor<1x16x8xf32>, tensor<8x6xf32>) -> tensor<1x16x6xf32>
  %g = nn.gate sigmoid %z, %bias : (tensor<1x16x6xf32>, tensor<6xf32>) -> tensor<1x16x2x3xf32>
  // CHECK: %[[LOGITS:.*]] = nn.matmul %{{.*}}, %[[TABLE_BF16]] {transpose_rhs}
  %logits = nn.matmul %y, %table {transpose_rhs} : (tensor<1x16x8xf32>, tensor<32x8xf32>) -> tensor<1x16x32xf32>
  // The loss reads bf16 logits: they are not stored in fp32 for it.
  // CHECK: nn.cross_entropy %[[LOGITS]]
  %loss, %lse, %count = nn.cross_entropy %logits, %targets : (tensor<1x16x32xf32>, tensor<1x16xi32>) -> (tensor<f32>, tensor<1x16xf32>, tensor<f32>)
  // CHECK: %[[FULL:.*]] = nn.cast %[[LOGITS]] to f32
  // CHECK: return %{{.*}}, %[[FULL]], %{{.*}} : tensor<f32>, tensor<1x16x32xf32>, tensor<1x16x2x3xf32>
  return %loss, %logits, %g : tensor<f32>, tensor<1x16x32xf32>, tensor<1x16x2x3xf32>
}

// A function that is no model keeps the types it is written with.
// CHECK-LABEL: func @plain
// CHECK-NEXT: nn.silu %{{.*}} : (tensor<4xf32>) -> tensor<4xf32>
func.func @plain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
