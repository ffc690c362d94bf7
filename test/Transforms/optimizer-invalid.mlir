// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-optimizer

// expected-error @+1 {{function `accumulate` has no result named `loss`}}
func.func @accumulate(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @accumulate(
    %x: tensor<f32>,
    // expected-error @+1 {{parameter `w` has no result `grad.w` in function `accumulate`}}
    %w: tensor<f32> {nn.name = "w", nn.role = "parameter"}) -> (tensor<f32> {nn.name = "loss"}) {
  return %x : tensor<f32>
}

// -----

func.func @accumulate(
    %x: tensor<f32>,
    // expected-error @+1 {{parameter at position 1 of function `accumulate` has no nn.name}}
    %w: tensor<f32> {nn.role = "parameter"}) -> (tensor<f32> {nn.name = "loss"}) {
  return %x : tensor<f32>
}

// -----

func.func @accumulate(%x: tensor<f32>) -> (tensor<f32> {nn.name = "loss"}) {
  return %x : tensor<f32>
}
// expected-error @+1 {{symbol `step` has the name of an entry that is made here}}
func.func @step() {
  return
}
