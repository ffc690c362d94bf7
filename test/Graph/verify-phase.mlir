// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-verify-phase=phase=optimizer
// RUN: not nsa-opt %s --split-input-file --nsa-verify-phase=phase=kernel 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: not nsa-opt %s --split-input-file --nsa-verify-phase=phase=buffer 2>&1 | FileCheck %s --check-prefix=BUFFER
// RUN: not nsa-opt %s --nsa-verify-phase=phase=dessert 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: dessert

// expected-error @+1 {{after phase optimizer, `func.func` may no longer be marked nn.train}}
func.func @model(%x: tensor<f32>) -> tensor<f32> attributes {nn.train} {
  return %x : tensor<f32>
}

// -----

// expected-error @+1 {{after phase optimizer, `func.func` may no longer have the result 0 marked nn.objective}}
func.func @objective(%x: tensor<f32>) -> (tensor<f32> {nn.objective}) {
  return %x : tensor<f32>
}

// -----

func.func @foreign(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{after phase optimizer, `math.exp` may no longer be in a function}}
  %0 = math.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{after phase optimizer, `func.func` has a value of type 'tensor<?xf32>' without a static shape}}
func.func @dynamic(%x: tensor<?xf32>) {
  return
}

// -----

func.func @first(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>}) {
  return
}
// expected-error @+1 {{argument 0 (`w`) of function `second` is a parameter of type 'tensor<5xf32>' that starts from #nn.init<constant, 1}}
func.func @second(%w: tensor<5xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>}) {
  return
}

// -----

// expected-error @+1 {{argument 0 (`w`) of function `uninitialised` is a parameter without nn.init}}
func.func @uninitialised(%w: tensor<4xf32> {nn.name = "w", nn.role = "parameter"}) {
  return
}

// -----

// Matmuls, views and fills stay after the kernel phase, nothing else does.
// KERNEL-NOT: `nn.matmul` may
// KERNEL: error: after phase kernel, `nn.silu` may no longer be in a function
// KERNEL-NOT: `nn.matmul` may
// BUFFER: error: after phase buffer, `nn.matmul` may no longer be in a function
// BUFFER: error: after phase buffer, `func.func` may no longer have a value of type 'tensor<4x4xf32>'
func.func @graph(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = nn.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = nn.silu %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// -----

func.func @cast(%x: tensor<f32>) -> f32 {
  // expected-error @+1 {{after phase optimizer, `builtin.unrealized_conversion_cast` may no longer be in a function}}
  %0 = builtin.unrealized_conversion_cast %x : tensor<f32> to f32
  return %0 : f32
}

// -----

// KERNEL: error: attribute `nsa.stages`: no kernel's name begins with 'window_attn'; nsa-compile --report names them
module attributes {nsa.stages = {window_attn = 2 : i64}} {
}
