// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @inputs(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{has inputs of types 'tensor<4xf32>', but its body takes 'tensor<5xf32>'}}
  %y = nn.fused %x : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<5xf32>):
    %0 = nn.fill 0.0 : tensor<4xf32>
    nn.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @outputs(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.fused %x : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %0 = nn.cast %a to bf16 : (tensor<4xf32>) -> tensor<4xbf16>
    // expected-error @+1 {{gives values of types 'tensor<4xbf16>', but the results have 'tensor<4xf32>'}}
    nn.yield %0 : tensor<4xbf16>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @twice(%x: tensor<4xf32>) {
  %y, %z = nn.fused %x : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    %0 = nn.silu %a : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @+1 {{gives one value twice}}
    nn.yield %0, %0 : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @foreign(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = nn.fused %x : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    // expected-error @+1 {{cannot be fused}}
    %0 = nn.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    nn.yield %0 : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
}

// -----

func.func @two_roots(%x: tensor<4x4xf32>, %w: tensor<4xf32>) -> tensor<4x4xf32> {
  %y = nn.fused %x, %w : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<4xf32>):
    // expected-error @+1 {{is not elementwise and cannot share a kernel}}
    %0, %r = nn.rms_norm %a, %b {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    // expected-note @+1 {{with this one}}
    %1, %s = nn.rms_norm %0, %b {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    nn.yield %1 : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
}

// -----

func.func @apart(%x: tensor<4x4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %y, %z = nn.fused %x, %w : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<4xf32>):
    %0, %r = nn.rms_norm %a, %b {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    // expected-error @+1 {{has no elements in common with the kernel of nn.rms_norm}}
    %1 = nn.silu %b : (tensor<4xf32>) -> tensor<4xf32>
    nn.yield %0, %1 : tensor<4x4xf32>, tensor<4xf32>
  }
  return %z : tensor<4xf32>
}

// -----

func.func @shapes(%x: tensor<4x4xf32>, %w: tensor<5xf32>) -> tensor<5xf32> {
  %y, %z = nn.fused %x, %w : (tensor<4x4xf32>, tensor<5xf32>) -> (tensor<4x4xf32>, tensor<5xf32>) {
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<5xf32>):
    %0 = nn.silu %a : (tensor<4x4xf32>) -> tensor<4x4xf32>
    // expected-error @+1 {{has a result of shape 5 in a kernel of shape 4x4}}
    %1 = nn.silu %b : (tensor<5xf32>) -> tensor<5xf32>
    nn.yield %0, %1 : tensor<4x4xf32>, tensor<5xf32>
  }
  return %z : tensor<5xf32>
}

// -----

func.func @statistic(%x: tensor<4x4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.fused %x, %w : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<4xf32>):
    %1, %r = nn.rms_norm %a, %b {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
    // expected-error @+1 {{operand 0 is not passed on element by element}}
    %2 = nn.silu %r : (tensor<4xf32>) -> tensor<4xf32>
    nn.yield %2 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

func.func @rows(%g: tensor<4xf32>, %p: tensor<2x5xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{adds rows of 5 elements to sum 0 of 4}}
  %s = nn.accumulate_rows %g, %p : (tensor<4xf32>, tensor<2x5xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}
