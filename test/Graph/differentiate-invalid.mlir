// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-differentiate

func.func @no_adjoint(%x: tensor<4xf32> {nn.differentiate}) -> (tensor<4xf32> {nn.objective}) {
  // expected-error @+1 {{'math.exp' op lies between a parameter and the objective but has no adjoint}}
  %0 = math.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @unreached(
    %x: tensor<4xf32> {nn.name = "x", nn.role = "parameter"},
    // expected-error @+1 {{argument 1 (`y`) of function `unreached` does not reach the objective}}
    %y: tensor<4xf32> {nn.name = "y", nn.role = "parameter"}) -> (tensor<4xf32> {nn.objective}) {
  return %x : tensor<4xf32>
}

// -----

// A parameter that only decides which blocks are selected learns nothing.
func.func @selection_only(
    %q: tensor<1x16x2x4xf32>, %k: tensor<1x16x1x4xf32>,
    // expected-error @+1 {{argument 2 (`c`) of function `selection_only` does not reach the objective}}
    %c: tensor<1x3x1x4xf32> {nn.name = "c", nn.role = "parameter"},
    %lse: tensor<1x2x16xf32>) -> (tensor<1x16x2x4xf32> {nn.objective}) {
  %i = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 8 : i64, count = 1 : i64}
      : (tensor<1x16x2x4xf32>, tensor<1x3x1x4xf32>, tensor<1x2x16xf32>) -> tensor<1x1x16x1xi32>
  %o, %l = nsa.selected_attention %q, %k, %k, %i {select_block = 8 : i64}
      : (tensor<1x16x2x4xf32>, tensor<1x16x1x4xf32>, tensor<1x16x1x4xf32>, tensor<1x1x16x1xi32>) -> (tensor<1x16x2x4xf32>, tensor<1x2x16xf32>)
  return %o : tensor<1x16x2x4xf32>
}

// -----

// expected-error @+1 {{function `two` has 2 objectives, expected 1}}
func.func @two(%x: tensor<4xf32> {nn.differentiate})
    -> (tensor<4xf32> {nn.objective}, tensor<4xf32> {nn.objective}) {
  return %x, %x : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{function `none` has an objective but no parameter to differentiate with respect to}}
func.func @none(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.objective}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{argument 0 of function `no_objective` is marked nn.differentiate, but no result is marked nn.objective}}
func.func @no_objective(%x: tensor<4xf32> {nn.differentiate}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{argument 0 of type 'tensor<4xi32>' has no gradient}}
func.func @integer(%x: tensor<4xi32> {nn.differentiate}, %y: tensor<4xf32>) -> (tensor<4xf32> {nn.objective}) {
  return %y : tensor<4xf32>
}

// -----

// expected-error @+1 {{function `blocks` has 2 blocks, expected 1}}
func.func @blocks(%x: tensor<4xf32> {nn.differentiate}) -> (tensor<4xf32> {nn.objective}) {
  cf.br ^next
^next:
  return %x : tensor<4xf32>
}

// -----

// A gradient that arrives at a statistic is refused by the operation.
func.func @statistic(%x: tensor<4x4xf32> {nn.differentiate}, %w: tensor<4xf32>) -> (tensor<4xf32> {nn.objective}) {
  // expected-error @+1 {{has no gradient with respect to result 1}}
  %y, %rstd = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  return %rstd : tensor<4xf32>
}

// -----

// The gradient flows through a value that is no tensor.
func.func @scalar(%x: tensor<f32> {nn.differentiate}) -> (tensor<f32> {nn.objective}) {
  %0 = builtin.unrealized_conversion_cast %x : tensor<f32> to f32
  // expected-error @+1 {{'builtin.unrealized_conversion_cast' op lies between a parameter and the objective but has no adjoint}}
  %1 = builtin.unrealized_conversion_cast %0 : f32 to tensor<f32>
  %2 = nn.add %x, %1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A region reads what has a gradient.
func.func @captured(%x: tensor<4xf32> {nn.differentiate}, %c: i1) -> (tensor<4xf32> {nn.objective}) {
  // expected-error @+1 {{'scf.if' op lies between a parameter and the objective but has no adjoint}}
  %0 = scf.if %c -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    %1 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  %2 = nn.add %x, %0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

func.func @seed_of_another_shape(
    %x: tensor<4xf32> {nn.differentiate},
    // expected-error @+1 {{argument 1 of type 'tensor<f32>' is marked nn.seed, but the objective has type 'tensor<4xf32>'}}
    %s: tensor<f32> {nn.seed}) -> (tensor<4xf32> {nn.objective}) {
  return %x : tensor<4xf32>
}
