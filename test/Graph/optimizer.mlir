// RUN: nsa-opt %s --nsa-optimizer --remarks-filter=nsa-optimizer 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.err
// RUN: nsa-opt %s --nsa-optimizer --nsa-verify-phase=phase=optimizer -o /dev/null

// REMARK: [Analysis] Update {{.*}}2 parameters, 1 with weight decay

// Gradients are summed where they are computed. The plain results come first.
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: %[[GRAD_A:[^:]*]]: tensor<4xf32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "grad.a", nn.role = "gradient"}
// CHECK-SAME: %[[GRAD_B:[^:]*]]: tensor<4x4xf32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "grad.b", nn.role = "gradient"}
// CHECK-SAME: %[[LOSS_SUM:[^:]*]]: tensor<f32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "loss_sum", nn.role = "state"}
// CHECK-SAME: %[[FRACTIONS:[^:]*]]: tensor<f32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "target_fraction_sum", nn.role = "state"}
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "statistic"},
// CHECK-SAME: tensor<4xf32> {nn.alias = "grad.a"}, tensor<4x4xf32> {nn.alias = "grad.b"}, tensor<f32> {nn.alias = "target_fraction_sum"}, tensor<f32> {nn.alias = "loss_sum"})
// CHECK: %[[LOSS:.*]] = nn.fill 5.0
// CHECK-NEXT: %[[LOSS_NEW:.*]] = nn.add %[[LOSS_SUM]], %[[LOSS]]
// CHECK: %[[GA:.*]] = nn.silu
// CHECK-NEXT: %[[A:.*]] = nn.add %[[GRAD_A]], %[[GA]]
// CHECK: %[[GB:.*]] = nn.silu
// CHECK-NEXT: %[[B:.*]] = nn.add %[[GRAD_B]], %[[GB]]
// CHECK: %[[FRACTION:.*]] = nn.fill 2.5
// CHECK-NEXT: %[[FRACTIONS_NEW:.*]] = nn.add %[[FRACTIONS]], %[[FRACTION]]
// CHECK: return %[[LOSS]], %{{.*}}, %[[A]], %[[B]], %[[FRACTIONS_NEW]], %[[LOSS_NEW]]

// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4xf32> {nn.init = #nn.init<constant, 1{{[^>]*}}>, nn.name = "a", nn.role = "parameter"}
// CHECK-SAME: %[[B:[^:]*]]: tensor<4x4xf32> {nn.decay, nn.init = #nn.init<normal, 2{{[^>]*}}>, nn.name = "b", nn.role = "parameter"}
// CHECK-SAME: %[[MA:[^:]*]]: tensor<4xf32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "m.a", nn.role = "state", nn.state = "m"}
// CHECK-SAME: %[[MB:[^:]*]]: tensor<4x4xf32> {{{[^}]*}}nn.name = "m.b", nn.role = "state", nn.state = "m"}
// CHECK-SAME: %[[VA:[^:]*]]: tensor<4xf32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "v.a", nn.role = "state", nn.state = "v"}
// CHECK-SAME: %[[VB:[^:]*]]: tensor<4x4xf32> {{{[^}]*}}nn.name = "v.b", nn.role = "state", nn.state = "v"}
// CHECK-SAME: %[[GA:[^:]*]]: tensor<4xf32> {{{[^}]*}}nn.name = "grad.a"
// CHECK-SAME: %[[GB:[^:]*]]: tensor<4x4xf32> {{{[^}]*}}nn.name = "grad.b"
// CHECK-SAME: %[[SUM:[^:]*]]: tensor<f32> {{{[^}]*}}nn.name = "loss_sum"
// CHECK-SAME: %[[FRACTIONS:[^:]*]]: tensor<f32> {{{[^}]*}}nn.name = "target_fraction_sum"
// CHECK-SAME: %[[HYPER:[^:]*]]: tensor<8xf32> {nn.name = "hyper", nn.role = "input"}
// CHECK-SAME: -> (tensor<f32> {nn.name = "grad_norm"}, tensor<f32> {nn.name = "loss_sum_out"}, tensor<f32> {nn.name = "target_fraction_sum_out"},
// CHECK: %[[MEANA:.*]] = nn.all_reduce %[[GA]]
// CHECK: %[[MEANB:.*]] = nn.all_reduce %[[GB]]
// CHECK: %[[LOSS:.*]] = nn.all_reduce %[[SUM]]
// CHECK: %[[FRACTION:.*]] = nn.all_reduce %[[FRACTIONS]]
// CHECK: %[[NORM:.*]] = nn.gradient_norm %[[MEANA]], %[[MEANB]]
// CHECK-NEXT: %[[H:.*]], %[[MEANLOSS:.*]] = nn.average_step %[[HYPER]], %[[LOSS]], %[[FRACTION]]
// CHECK-NOT: decay
// CHECK: nn.adamw %[[A]], %[[MA]], %[[VA]], %[[MEANA]], %[[NORM]], %[[MEANLOSS]], %[[H]] :
// CHECK: nn.adamw %[[B]], %[[MB]], %[[VB]], %[[MEANB]], %[[NORM]], %[[MEANLOSS]], %[[H]] {decay} :
// CHECK-COUNT-4: nn.fill 0.0
// CHECK: return %[[NORM]], %[[LOSS]], %[[FRACTION]],

// The update of @step reads the means of the sums that its first half makes.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: nn.name = "x"
// CHECK-SAME: nn.name = "a"
// CHECK-SAME: nn.name = "grad.a"
// CHECK-SAME: nn.name = "loss_sum"
// CHECK-SAME: nn.name = "m.a"
// CHECK-SAME: nn.name = "hyper"
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss"}
// CHECK-SAME: nn.alias = "grad.a"
// CHECK-SAME: nn.alias = "loss_sum"
// CHECK-SAME: nn.name = "loss_sum_out"
// CHECK-SAME: nn.alias = "a"
// CHECK-SAME: nn.alias = "m.a"
// CHECK: %[[SUM:.*]] = nn.add {{.*}} : (tensor<f32>, tensor<f32>)
// CHECK: %[[GA:.*]] = nn.add {{.*}} : (tensor<4xf32>, tensor<4xf32>)
// CHECK: %[[GB:.*]] = nn.add {{.*}} : (tensor<4x4xf32>, tensor<4x4xf32>)
// CHECK: %[[MEANA:.*]] = nn.all_reduce %[[GA]]
// CHECK: %[[MEANB:.*]] = nn.all_reduce %[[GB]]
// CHECK: %[[LOSS:.*]] = nn.all_reduce %[[SUM]]
// CHECK: %[[NORM:.*]] = nn.gradient_norm %[[MEANA]], %[[MEANB]]
// CHECK: %{{.*}}, %[[MEANLOSS:.*]] = nn.average_step %{{[^,]*}}, %[[LOSS]],
// CHECK: nn.adamw %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[MEANA]], %[[NORM]], %[[MEANLOSS]]
// CHECK: %[[ZERO:.*]] = nn.fill 0.0{{.*}} : tensor<4xf32>
// CHECK: return %{{[^,]*}}, %{{[^,]*}}, %[[ZERO]], {{.*}}, %[[NORM]], %[[LOSS]],

// Initial values are the attributes above; there is no function for them.
// CHECK-NOT: @init

func.func @accumulate(
    %x: tensor<4xf32> {nn.name = "x", nn.role = "input"},
    %a: tensor<4xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
    %b: tensor<4x4xf32> {nn.name = "b", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "statistic"},
        tensor<4xf32> {nn.name = "grad.a"}, tensor<4x4xf32> {nn.name = "grad.b"}, tensor<f32> {nn.name = "target_fraction"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.silu %a : (tensor<4xf32>) -> tensor<4xf32>
  %gb = nn.silu %b : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %fraction = nn.fill 2.5 : tensor<f32>
  return %loss, %x, %ga, %gb, %fraction : tensor<f32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<f32>
}
