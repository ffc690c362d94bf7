// RUN: nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=2 | FileCheck %s

// The moments of a parameter `others` have the name of the new state: they go,
// what is new stays.
// CHECK-LABEL: func.func @update(
// CHECK-NOT: tensor<4x4xf32> {{{[^}]*}}nn.name = "m.
// CHECK: tensor<16xf32> {{{[^}]*}}nn.name = "m.others", nn.role = "state", nn.state = "m"}
// CHECK-SAME: tensor<16xf32> {{{[^}]*}}nn.name = "v.others", nn.role = "state", nn.state = "v"}
// CHECK-SAME: -> {{.*}}tensor<16xf32> {nn.alias = "m.others"}, tensor<16xf32> {nn.alias = "v.others"})
// CHECK: nn.adamw {{.*}} : (tensor<16xf32>,
func.func @accumulate(%a: tensor<4x4xf32> {nn.name = "others", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
                      %b: tensor<4x4xf32> {nn.name = "decayed", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>})
    -> (tensor<f32> {nn.name = "loss"},
        tensor<4x4xf32> {nn.name = "grad.others"}, tensor<4x4xf32> {nn.name = "grad.decayed"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gb = nn.matmul %b, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %loss, %ga, %gb : tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>
}
