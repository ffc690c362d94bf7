// RUN: nsa-opt %s --nsa-build-entries | FileCheck %s

// A state that is written but never read stays where a result updates it.
// CHECK-LABEL: func.func @forward(
// CHECK-NOT: nn.name = "last"
// CHECK: return
// CHECK-LABEL: func.func @eval(
// CHECK-SAME: nn.name = "last"
// CHECK-SAME: nn.alias = "last"
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: nn.name = "last"
// CHECK-SAME: nn.alias = "last"
func.func @model(
    %x: tensor<4x4xf32> {nn.name = "x", nn.role = "input"},
    %targets: tensor<4xi32> {nn.name = "targets", nn.role = "input"},
    %w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"},
    %last: tensor<4x4xf32> {nn.name = "last", nn.role = "state"})
    -> (tensor<4x8xf32> {nn.name = "logits"}, tensor<f32> {nn.name = "loss"},
        tensor<4x4xf32> {nn.alias = "last"}) attributes {nn.train} {
  %logits = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %logits, %loss, %x : tensor<4x8xf32>, tensor<f32>, tensor<4x4xf32>
}
