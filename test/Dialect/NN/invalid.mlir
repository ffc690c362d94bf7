// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @cast_result(%a: tensor<2x3xf32>) {
  // expected-error @below {{incompatible with return type(s) of operation}}
  // expected-error @below {{failed to infer returned types}}
  %y = nn.cast %a to bf16 : (tensor<2x3xf32>) -> tensor<2x3xf16>
  return
}

// -----

// expected-error @below {{result 0 is an alias of `v`, which is no argument}}
func.func @alias(%a: tensor<4xf32> {nn.name = "w"}) -> (tensor<4xf32> {nn.alias = "v"}) {
  return %a : tensor<4xf32>
}

// -----

// expected-error @below {{result 0 of type 'tensor<4xf32>' is an alias of `v` of type 'tensor<5xf32>'}}
func.func @alias_type(%a: tensor<4xf32>, %b: tensor<5xf32> {nn.name = "v"}) -> (tensor<4xf32> {nn.alias = "v"}) {
  return %a : tensor<4xf32>
}

// -----

// expected-error @below {{results 0 and 1 are both aliases of `w`}}
func.func @alias_twice(%a: tensor<4xf32> {nn.name = "w"})
    -> (tensor<4xf32> {nn.alias = "w"}, tensor<4xf32> {nn.alias = "w"}) {
  return %a, %a : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @below {{objective has type 'tensor<4xi32>', expected a tensor of floating-point values}}
func.func @objective(%a: tensor<4xi32>) -> (tensor<4xi32> {nn.objective}) {
  return %a : tensor<4xi32>
}

// -----

func.func @fill_scalar() {
  // expected-error @below {{fills 'f32', which is no tensor of static shape}}
  %0 = nn.fill 0.0 : f32
  return
}

// -----

func.func @fill_fraction() {
  // expected-error @below {{fills 'tensor<4xi32>' with 5.000000e-01, which is no 32-bit integer}}
  %0 = nn.fill 0.5 : tensor<4xi32>
  return
}

// -----

func.func @fill_large() {
  // expected-error @below {{fills 'tensor<4xi32>' with 2.147484e+09, which is no 32-bit integer}}
  %0 = nn.fill 2147483648.0 : tensor<4xi32>
  return
}

// -----

func.func @fused_without_output(%x: tensor<4xf32>) {
  // expected-error @below {{'nn.fused' op must have at least one output}}
  "nn.fused"(%x) ({
  ^bb0(%0: tensor<4xf32>):
    "nn.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @gather_odd_rows(%x: tensor<3x16x2x8xf32>) {
  // expected-error @below {{chunks (3) must be a multiple of chunks of a sequence on each rank (2)}}
  %0 = nn.gather_sequence %x {ranks = 2 : i64} : (tensor<3x16x2x8xf32>) -> tensor<1x64x2x8xf32>
  return
}

// -----

func.func @scatter_odd_tokens(%x: tensor<1x66x2x8xf32>) {
  // expected-error @below {{tokens (66) must be a multiple of chunks of a sequence (4)}}
  %0 = nn.reduce_scatter_sequence %x {ranks = 2 : i64} : (tensor<1x66x2x8xf32>) -> tensor<2x16x2x8xf32>
  return
}
