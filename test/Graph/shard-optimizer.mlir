// RUN: nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=2 | FileCheck %s
// RUN: nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=1 | FileCheck %s --check-prefix=ONE
// RUN: nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=2 | nsa-opt --nsa-verify-phase=phase=optimizer -o /dev/null

// Moments of a rank are those of half of the elements, with decay and without.
// CHECK-LABEL: func.func @update(
// CHECK-NOT: nn.name = "m.a"
// CHECK-DAG: %[[MD:[^:( ]*]]: tensor<16xf32> {{{[^}]*}}nn.name = "m.decayed", nn.role = "state", nn.state = "m"}
// CHECK-DAG: %[[VD:[^:( ]*]]: tensor<16xf32> {{{[^}]*}}nn.name = "v.decayed", nn.role = "state", nn.state = "v"}
// CHECK-DAG: %[[MO:[^:( ]*]]: tensor<16xf32> {{{[^}]*}}nn.name = "m.others", nn.role = "state", nn.state = "m"}
// CHECK-DAG: %[[VO:[^:( ]*]]: tensor<16xf32> {{{[^}]*}}nn.name = "v.others", nn.role = "state", nn.state = "v"}
// CHECK-DAG: %[[GO:.*]] = nn.slice_shard %{{.*}} {shard = 1 : i64} : tensor<32xf32> -> tensor<16xf32>
// CHECK-DAG: %[[GD:.*]] = nn.slice_shard %{{.*}} {shard = 0 : i64} : tensor<32xf32> -> tensor<16xf32>
// CHECK: %[[SUM:.*]] = nn.gradient_norm %{{.*}}, %{{.*}} {squared} : (tensor<16xf32>, tensor<16xf32>)
// CHECK-NEXT: %[[MEAN:.*]] = nn.all_reduce %[[SUM]]
// CHECK-NEXT: %[[NORM:.*]] = nn.root_of_mean %[[MEAN]] {ranks = 2 : i64}
// CHECK: nn.adamw %{{.*}}, %[[MO]], %[[VO]], %[[GO]], %[[NORM]], {{.*}} : (tensor<16xf32>,
// CHECK: nn.all_gather %{{.*}} {shard = 1 : i64} : tensor<16xf32> -> tensor<32xf32>
// CHECK: nn.adamw %{{.*}}, %[[MD]], %[[VD]], %[[GD]], %[[NORM]], {{.*}} {decay} : (tensor<16xf32>,
// CHECK: nn.all_gather %{{.*}} {shard = 0 : i64} : tensor<16xf32> -> tensor<32xf32>

// CHECK-LABEL: func.func @step(
// CHECK-NOT: nn.name = "v.b"
// CHECK-COUNT-2: nn.all_gather

// ONE-NOT: nn.slice_shard
func.func @accumulate(%a: tensor<4x4xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
                      %b: tensor<4x4xf32> {nn.name = "b", nn.role = "parameter", nn.init = #nn.init<normal, 2.0>, nn.decay},
                      %c: tensor<4x4xf32> {nn.name = "c", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
                      %d: tensor<4x4xf32> {nn.name = "d", nn.role = "parameter", nn.init = #nn.init<normal, 2.0>, nn.decay})
    -> (tensor<f32> {nn.name = "loss"},
        tensor<4x4xf32> {nn.name = "grad.a"}, tensor<4x4xf32> {nn.name = "grad.b"},
        tensor<4x4xf32> {nn.name = "grad.c"}, tensor<4x4xf32> {nn.name = "grad.d"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gb = nn.matmul %b, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gc = nn.matmul %c, %c : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %gd = nn.matmul %d, %d : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %loss, %ga, %gb, %gc, %gd : tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
