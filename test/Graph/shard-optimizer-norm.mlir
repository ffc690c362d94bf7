// RUN: nsa-opt %s --nsa-fuse --nsa-shard-optimizer=ranks=2 --split-input-file --verify-diagnostics
// RUN: nsa-opt %s --nsa-fuse --split-input-file | FileCheck %s

// Ranks compute the norm from the gradients of updates: it has to be theirs.
func.func @half(
    %w1: tensor<16xf32> {nn.name = "w1", nn.role = "parameter"}, %w2: tensor<16xf32> {nn.name = "w2", nn.role = "parameter"},
    %m1: tensor<16xf32> {nn.name = "m1", nn.role = "state", nn.state = "m"}, %m2: tensor<16xf32> {nn.name = "m2", nn.role = "state", nn.state = "m"},
    %v1: tensor<16xf32> {nn.name = "v1", nn.role = "state", nn.state = "v"}, %v2: tensor<16xf32> {nn.name = "v2", nn.role = "state", nn.state = "v"},
    %g1: tensor<16xf32> {nn.name = "g1", nn.role = "gradient"}, %g2: tensor<16xf32> {nn.name = "g2", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<16xf32> {nn.alias = "w1"}, tensor<16xf32> {nn.alias = "m1"}, tensor<16xf32> {nn.alias = "v1"}, tensor<16xf32> {nn.alias = "w2"}, tensor<16xf32> {nn.alias = "m2"}, tensor<16xf32> {nn.alias = "v2"}) {
  // expected-error @+1 {{'nn.gradient_norm' op is not that of the gradients of all updates}}
  %norm = nn.gradient_norm %g1 : (tensor<16xf32>) -> tensor<f32>
  %u:3 = nn.adamw %w1, %m1, %v1, %g1, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  %v:3 = nn.adamw %w2, %m2, %v2, %g2, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %u#0, %u#1, %u#2, %v#0, %v#1, %v#2
      : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// -----

// A gradient that counts twice does so when updates are fused, too.
// CHECK-LABEL: func.func @twice
// CHECK: nn.gradient_norm %{{.*}}, %{{.*}}, %{{.*}} :
func.func @twice(
    %w1: tensor<16xf32> {nn.name = "w1", nn.role = "parameter"}, %w2: tensor<16xf32> {nn.name = "w2", nn.role = "parameter"},
    %m1: tensor<16xf32> {nn.name = "m1", nn.role = "state", nn.state = "m"}, %m2: tensor<16xf32> {nn.name = "m2", nn.role = "state", nn.state = "m"},
    %v1: tensor<16xf32> {nn.name = "v1", nn.role = "state", nn.state = "v"}, %v2: tensor<16xf32> {nn.name = "v2", nn.role = "state", nn.state = "v"},
    %g1: tensor<16xf32> {nn.name = "g1", nn.role = "gradient"}, %g2: tensor<16xf32> {nn.name = "g2", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<16xf32> {nn.alias = "w1"}, tensor<16xf32> {nn.alias = "m1"}, tensor<16xf32> {nn.alias = "v1"}, tensor<16xf32> {nn.alias = "w2"}, tensor<16xf32> {nn.alias = "m2"}, tensor<16xf32> {nn.alias = "v2"}) {
  // expected-error @+1 {{'nn.gradient_norm' op is not that of the gradients of all updates}}
  %norm = nn.gradient_norm %g1, %g1, %g2 : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<f32>
  %u:3 = nn.adamw %w1, %m1, %v1, %g1, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  %v:3 = nn.adamw %w2, %m2, %v2, %g2, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %u#0, %u#1, %u#2, %v#0, %v#1, %v#2
      : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}
