// RUN: nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=64 | FileCheck %s

// Norms and biases of which ranks cannot have equal parts are updated by each.
// CHECK-LABEL: func.func @update(
// CHECK-DAG: nn.name = "m.decayed"
// CHECK-DAG: nn.name = "m.a"
// CHECK: %[[PARTS:.*]] = nn.root_of_mean %{{.*}} {ranks = 64 : i64}
// CHECK-NEXT: %[[G:.*]] = nn.flatten %{{.*}} in ["grad.a", "grad.c"]
// CHECK-NEXT: %[[OWN:.*]] = nn.gradient_norm %[[G]] : (tensor<32xf32>)
// CHECK-NEXT: %[[NORM:.*]] = nn.gradient_norm %[[PARTS]], %[[OWN]]
// CHECK: nn.adamw {{.*}}%[[G]], %[[NORM]], {{.*}} : (tensor<32xf32>,
// CHECK: nn.adamw {{.*}}%[[NORM]], {{.*}} {decay} : (tensor<1xf32>,
func.func @accumulate(%a: tensor<4x4xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
                      %b: tensor<4x8xf32> {nn.name = "b", nn.role = "parameter", nn.init = #nn.init<normal, 2.0>, nn.decay},
                      %c: tensor<4x4xf32> {nn.name = "c", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
                      %d: tensor<4x8xf32> {nn.name = "d", nn.role = "parameter", nn.init = #nn.init<normal, 2.0>, nn.decay})
    -> (tensor<f32> {nn.name = "loss"},
        tensor<4x4xf32> {nn.name = "grad.a"}, tensor<4x8xf32> {nn.name = "grad.b"},
        tensor<4x4xf32> {nn.name = "grad.c"}, tensor<4x8xf32> {nn.name = "grad.d"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gb = nn.matmul %a, %b : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %gc = nn.matmul %c, %c : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gd = nn.matmul %c, %d : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %loss, %ga, %gb, %gc, %gd : tensor<f32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x8xf32>
}
