// RUN: nsa-opt %s --nsa-differentiate | FileCheck %s

// The gradient of the loss is the argument that is marked, not 1.
// CHECK-LABEL: func.func @scaled(
// CHECK-SAME: %[[SCALE:[^:]*]]: tensor<f32> {nn.name = "loss_scale", nn.seed}
// CHECK-NOT: nn.fill
// CHECK: nn.cross_entropy_backward %[[SCALE]],
func.func @scaled(%w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"},
                  %ids: tensor<4xi32>,
                  %scale: tensor<f32> {nn.name = "loss_scale", nn.seed})
    -> (tensor<f32> {nn.name = "loss", nn.objective}) {
  %loss, %lse, %count = nn.cross_entropy %w, %ids : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// It takes the type of the objective.
// CHECK-LABEL: func.func @narrow_objective(
// CHECK-SAME: %[[SEED:[^:]*]]: tensor<f32> {nn.seed}
// CHECK: nn.cast %[[SEED]] to bf16
func.func @narrow_objective(%x: tensor<bf16> {nn.differentiate}, %seed: tensor<f32> {nn.seed}) -> (tensor<bf16> {nn.objective}) {
  %0 = nn.silu %x : (tensor<bf16>) -> tensor<bf16>
  return %0 : tensor<bf16>
}
