// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-build-entries

// expected-error @+1 {{function `m` has no result named `logits`}}
func.func @m(%x: tensor<f32>) -> (tensor<f32> {nn.name = "loss"}) attributes {nn.train} {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{function `m` has no result named `loss`}}
func.func @m(%x: tensor<f32>) -> (tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{result `loss` of function `m` has type 'tensor<4xf32>', expected 'tensor<f32>'}}
func.func @m(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.name = "loss"}) attributes {nn.train} {
  return %x : tensor<4xf32>
}

// -----

// expected-note @+1 {{the first is here}}
func.func @m(%x: tensor<f32>) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x, %x : tensor<f32>, tensor<f32>
}
// expected-error @+1 {{function `n` is the second marked nn.train}}
func.func @n(%x: tensor<f32>) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{symbol `eval` has the name of an entry that is made from `m`}}
func.func @eval(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func @m(%x: tensor<f32>) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{function `m` is marked nn.train but has no body}}
func.func private @m(tensor<f32>) -> tensor<f32> attributes {nn.train}

// -----

// expected-error @+1 {{result 0 of function `model` is marked nn.objective, but the objective of a function marked nn.train is its `loss`}}
func.func @model(%x: tensor<f32> {nn.name = "x", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss", nn.objective}, tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{argument 0 of function `model` is marked nn.differentiate, but a function marked nn.train is differentiated with respect to its parameters}}
func.func @model(%x: tensor<f32> {nn.name = "x", nn.role = "parameter", nn.differentiate})
    -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "logits"}) attributes {nn.train} {
  return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @+1 {{the loss is no nn.cross_entropy, nor a sum of those of the same targets, so micro-batches cannot be averaged over their targets}}
func.func @m(%x: tensor<4x8xf32> {nn.name = "x", nn.role = "parameter"}, %t: tensor<4xi32>, %u: tensor<4xi32>)
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "logits"}) attributes {nn.train} {
  %a, %la, %ca = nn.cross_entropy %x, %t : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  %b, %lb, %cb = nn.cross_entropy %x, %u : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  %sum = nn.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %sum, %x : tensor<f32>, tensor<4x8xf32>
}

// -----

// expected-error @+1 {{result `target_fraction` has the name of one that is made here}}
func.func @m(%x: tensor<4x8xf32> {nn.name = "x", nn.role = "parameter"}, %t: tensor<4xi32>)
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "logits"}, tensor<f32> {nn.name = "target_fraction"})
    attributes {nn.train} {
  %a, %la, %ca = nn.cross_entropy %x, %t : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %a, %x, %ca : tensor<f32>, tensor<4x8xf32>, tensor<f32>
}
