// RUN: nsa-opt %s --nsa-optimizer | FileCheck %s
// RUN: nsa-opt %s --nsa-optimizer --nsa-verify-phase=phase=optimizer -o /dev/null

// Gradients of a scaled loss: what updates read is divided by the scale, which
// follows norm and loss; the scaled norm still tells whether all is finite.
// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[HYPER:[^:]*]]: tensor<8xf32> {nn.name = "hyper"
// CHECK-SAME: %[[SCALE:[^:]*]]: tensor<f32> {nn.init = #nn.init<constant, 6.553600e+04>, nn.name = "loss_scale", nn.role = "state"}
// CHECK-SAME: %[[STREAK:[^:]*]]: tensor<f32> {{{[^}]*}}nn.name = "loss_scale_streak", nn.role = "state"}
// CHECK-SAME: %[[SKIPPED:[^:]*]]: tensor<f32> {{{[^}]*}}nn.name = "skipped_updates", nn.role = "state"}
// CHECK-SAME: nn.alias = "loss_scale"
// CHECK-SAME: nn.alias = "loss_scale_streak"
// CHECK-SAME: nn.alias = "skipped_updates"
// CHECK-SAME: nn.name = "loss_scale_out"
// CHECK-SAME: nn.name = "skipped_updates_out"
// CHECK-SAME: nn.name = "grad_norm"
// CHECK: %[[LOSS:.*]] = nn.all_reduce %{{.*}} : (tensor<f32>)
// CHECK: %[[FRACTION:.*]] = nn.all_reduce
// CHECK: %[[NORM:.*]] = nn.gradient_norm
// CHECK: %[[MEAN:.*]], %{{.*}} = nn.average_step %[[HYPER]], %[[LOSS]], %[[FRACTION]]
// CHECK: %[[NEW:hyper.*]], %[[UNSCALED:.*]], %[[S:.*]], %[[K:.*]], %[[D:.*]] = nn.update_loss_scale %[[MEAN]], %[[NORM]], %[[LOSS]], %[[SCALE]], %[[STREAK]], %[[SKIPPED]] {growth_interval = 2000 : i64}
// CHECK: nn.adamw {{.*}} %[[NORM]], %{{[^,]*}}, %[[NEW]] :
// CHECK: return %[[S]], %[[K]], %[[D]], %[[S]], %[[D]], %[[UNSCALED]],

// The scale is the seed of @accumulate, which leaves it alone.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: nn.name = "loss_scale", nn.role = "state", nn.seed
func.func @accumulate(
    %x: tensor<4xf32> {nn.name = "x", nn.role = "input"},
    %a: tensor<4xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
    %scale: tensor<f32> {nn.init = #nn.init<constant, 65536.0>, nn.name = "loss_scale", nn.role = "state", nn.seed})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "grad.a"}) {
  %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %scale, %0 : tensor<f32>, tensor<4xf32>
}
