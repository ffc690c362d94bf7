// RUN: nsa-opt %s --nsa-optimizer=optimizer=lion | FileCheck %s
// RUN: nsa-opt %s --nsa-optimizer=optimizer=lion --nsa-fuse --nsa-shard-optimizer=ranks=2 | FileCheck %s --check-prefix=SHARD
// RUN: nsa-opt %s --nsa-optimizer=optimizer=muon | FileCheck %s --check-prefix=MUON
// RUN: not nsa-opt %s --nsa-optimizer=optimizer=muon --nsa-fuse --nsa-shard-optimizer=ranks=2 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not nsa-opt %s --nsa-optimizer=optimizer=muon --nsa-fuse --nsa-shard-optimizer="ranks=2 whole-gradients=false" 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: not nsa-opt %s --nsa-optimizer=optimizer=sgd 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// The states are those that the optimizer says.
// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[A:[^:]*]]: tensor<4x8xf32> {{{[^}]*}}nn.name = "a", nn.role = "parameter"}
// CHECK-NOT: nn.name = "m.a"
// CHECK-SAME: %[[EA:[^:]*]]: tensor<4x8xf32> {nn.init = #nn.init<constant, 0{{[^>]*}}>, nn.name = "ema.a", nn.role = "state", nn.state = "ema"}
// CHECK-SAME: nn.name = "ema.b"
// CHECK: nn.lion %[[A]], %[[EA]], {{.*}} : (tensor<4x8xf32>,
// CHECK: nn.lion {{.*}} {decay} :

// SHARD-LABEL: func.func @update(
// SHARD-DAG: %[[E:[^:( ]*]]: tensor<24xf32> {{{[^}]*}}nn.name = "ema.others", nn.role = "state", nn.state = "ema"}
// SHARD-DAG: nn.name = "ema.decayed"
// SHARD-DAG: nn.lion %{{.*}}, %[[E]], {{.*}} : (tensor<24xf32>, tensor<24xf32>, tensor<24xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)

// MUON: nn.name = "momentum.a"
// MUON: nn.muon
// WHOLE: error: 'nn.muon' op is not elementwise, so ranks cannot update a part of the weights each
// PARTS: error: 'nn.muon' op needs the whole gradient of its weight, but each of 2 ranks keeps a part only
// UNKNOWN: error: unknown optimizer `sgd`, expected one of adamw, lion, muon
func.func @accumulate(
    %x: tensor<4x4xf32> {nn.name = "x", nn.role = "input"}, %y: tensor<1x1xf32> {nn.name = "y", nn.role = "input"},
    %a: tensor<4x8xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
    %b: tensor<4x8xf32> {nn.name = "b", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>, nn.decay},
    %c: tensor<1x16xf32> {nn.name = "c", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>, nn.decay},
    %d: tensor<1x16xf32> {nn.name = "d", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "grad.a"}, tensor<4x8xf32> {nn.name = "grad.b"},
        tensor<1x16xf32> {nn.name = "grad.c"}, tensor<1x16xf32> {nn.name = "grad.d"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.matmul %x, %a : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %gb = nn.matmul %x, %b : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %gc = nn.matmul %y, %c : (tensor<1x1xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
  %gd = nn.matmul %y, %d : (tensor<1x1xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
  return %loss, %ga, %gb, %gc, %gd : tensor<f32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<1x16xf32>, tensor<1x16xf32>
}
