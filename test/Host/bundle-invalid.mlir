// RUN: nsa-opt %s --nsa-buffer --split-input-file --verify-diagnostics

func.func @unnamed(%a: tensor<3xf32>, %loss: tensor<f32>) -> tensor<16xf32> {
  // expected-error @+1 {{'nn.flatten' op names 'missing', which is not an argument}}
  %0 = nn.flatten %a in ["missing"] : (tensor<3xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}

// -----

func.func @elsewhere(
    %a: tensor<4xf32> {nn.name = "a", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>}) -> tensor<3xf32> {
  %zero = nn.fill 0.0 : tensor<3xf32>
  // expected-error @+1 {{'nn.flatten' op has a part of type 'tensor<3xf32>', but 'a' has type 'tensor<4xf32>'}}
  %0 = nn.flatten %zero in ["a"] : (tensor<3xf32>) -> tensor<16xf32>
  return %zero : tensor<3xf32>
}

// -----

func.func @count(%a: tensor<3xf32>) {
  // expected-error @+1 {{'nn.flatten' op has 1 parts, but names 2 tensors}}
  %0 = nn.flatten %a in ["a", "b"] : (tensor<3xf32>) -> tensor<16xf32>
  return
}

// -----

func.func @length(%a: tensor<3xf32>) {
  // expected-error @+1 {{'nn.flatten' op has parts of 16 elements together, but the whole has 3}}
  %0 = nn.flatten %a in ["a"] : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @accumulator(%a: tensor<3x3xf32>, %b: tensor<3xf32>) {
  // expected-error @+1 {{'nn.matmul' op adds 'tensor<3xf32>' to a matmul of type 'tensor<3x3xf32>'}}
  %0 = nn.matmul %a, %a, %b : (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3xf32>) -> tensor<3x3xf32>
  return
}

// -----

rt.tensor gradient @a : memref<3xf32> init #nn.init<constant, 0.0>
rt.entry @f inputs [] outputs [] {
  // expected-error @+1 {{'rt.flat_view' op has type 'memref<3xf32>', but its tensors are memref<16xf32>}}
  %0 = rt.flat_view [@a] : memref<3xf32>
}
