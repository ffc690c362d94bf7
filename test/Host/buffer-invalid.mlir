// RUN: nsa-opt %s --nsa-buffer --split-input-file --verify-diagnostics

// Two entries must agree about a tensor.
// expected-note @below {{it was first seen here}}
func.func @a(%w: tensor<4xf32> {nn.name = "w", nn.role = "state"}) {
  return
}
// expected-error @below {{'w' is 'memref<8xf32>' in 'b' but 'memref<4xf32>' elsewhere}}
func.func @b(%w: tensor<8xf32> {nn.name = "w", nn.role = "state"}) {
  return
}

// -----

// expected-note @below {{it was first seen here}}
func.func @a(%w: tensor<4xf32> {nn.name = "w", nn.role = "state"}) {
  return
}
// expected-error @below {{'w' is gradient in 'b' but state elsewhere}}
func.func @b(%w: tensor<4xf32> {nn.name = "w", nn.role = "gradient"}) {
  return
}

// -----

// expected-note @below {{it was first seen here}}
func.func @a(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 1.0>}) {
  return
}
// expected-error @below {{'w' is #nn.init<normal, 2.000000e+00> in 'b' but #nn.init<normal, 1.000000e+00> elsewhere}}
func.func @b(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 2.0>}) {
  return
}

// -----

// expected-note @below {{it was first seen here}}
func.func @a(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter", nn.decay, nn.init = #nn.init<normal, 1.0>}) {
  return
}
// expected-error @below {{'w' is not decaying in 'b' but decaying elsewhere}}
func.func @b(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 1.0>}) {
  return
}

// -----

// Memory that nothing fills is an error, not garbage.
// expected-error @below {{parameter 'w' has no initial value}}
func.func @a(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}) {
  return
}

// -----

// expected-error @below {{argument 0 of 'a' has role state but no name}}
func.func @a(%w: tensor<4xf32> {nn.role = "state"}) {
  return
}

// -----

// expected-error @below {{'a' is the name of a tensor and of a func.func}}
func.func @a(%w: tensor<4xf32> {nn.name = "a", nn.role = "state"}) {
  return
}

// -----

// expected-error @below {{'arg0' has type 'tensor<4xf64>', which the runtime cannot hold}}
func.func @a(%x: tensor<4xf64>) {
  return
}

// -----

// expected-error @below {{'arg0' has type 'tensor<1048576x67108864xf32>', which the runtime cannot hold}}
func.func @a(%x: tensor<1048576x67108864xf32>) {
  return
}

// -----

// expected-error @below {{'arg0' has type 'f32', which the runtime cannot hold}}
func.func @a(%x: f32) {
  return
}

// -----

func.func @a(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{has no runtime command}}
  %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @below {{is called 'init', the name of the entry of initial values}}
func.func @init(%s: tensor<4xf32> {nn.name = "s", nn.role = "state"}) {
  return
}

// -----


// expected-error @below {{has 2 blocks, but an entry is made of 1}}
func.func @blocks() {
  cf.br ^bb1
^bb1:
  return
}

// -----

func.func @scalar(%x: tensor<4xf32> {nn.name = "x", nn.role = "input"}) -> (tensor<4xf32> {nn.name = "y"}) {
  // expected-error @below {{computes a value of type 'i32', but an entry computes tensors of static shape}}
  %n = tile.program_id 0 : i32
  return %x : tensor<4xf32>
}
