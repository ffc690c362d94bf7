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

// -----

func.func @accumulate(
    // expected-error @+1 {{parameter `w` of type 'tensor<4xf32>' cannot be updated by `nn.muon`}}
    %w: tensor<4xf32> {nn.name = "w", nn.optimizer = "muon", nn.role = "parameter"}, %x: tensor<f32>)
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "grad.w"}) {
  return %x, %w : tensor<f32>, tensor<4xf32>
}

// -----

func.func @accumulate(
    // expected-error @+1 {{unknown optimizer `sgd`, expected one of adamw, lion, muon}}
    %w: tensor<4xf32> {nn.name = "w", nn.optimizer = "sgd", nn.role = "parameter"}, %x: tensor<f32>)
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "grad.w"}) {
  return %x, %w : tensor<f32>, tensor<4xf32>
}

// -----

// In @step an argument of this name would be the first moment of `w`.
func.func @accumulate(
    %w: tensor<f32> {nn.name = "w", nn.role = "parameter"},
    // expected-error @+1 {{argument `m.w` of function `accumulate` has the name of a tensor of the optimizer}}
    %x: tensor<f32> {nn.name = "m.w"}) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "grad.w"}) {
  return %x, %w : tensor<f32>, tensor<f32>
}

// -----

func.func @accumulate(
    %w: tensor<f32> {nn.name = "w", nn.role = "parameter"},
    // expected-error @+1 {{argument `hyper` of function `accumulate` has the name of a tensor of the optimizer}}
    %x: tensor<f32> {nn.name = "hyper"}) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "grad.w"}) {
  return %x, %w : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{result `target_fraction` of function `accumulate` has type 'tensor<4xf32>', expected 'tensor<f32>'}}
func.func @accumulate(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}, %x: tensor<f32>)
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "grad.w"}, tensor<4xf32> {nn.name = "target_fraction"}) {
  return %x, %w, %w : tensor<f32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{result `grad_norm` of function `accumulate` has the name of a tensor of the optimizer}}
func.func @accumulate(%w: tensor<f32> {nn.name = "w", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "grad.w"}, tensor<f32> {nn.name = "grad_norm"}) {
  return %w, %w, %w : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

func.func @accumulate(
    %x: tensor<f32>,
    // expected-error @+1 {{parameter `w` of type 'tensor<4xf32>' has a gradient of type 'tensor<f32>'}}
    %w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "grad.w"}) {
  return %x, %x : tensor<f32>, tensor<f32>
}
