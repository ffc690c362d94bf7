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

// -----

func.func @partial_sums(%x: tensor<2x3x4xf32>, %w: tensor<4xf32>, %r: tensor<2x3xf32>) {
  // expected-error @+1 {{partial sums (7) must be at most rows (6)}}
  %dx, %p = nn.rms_norm_backward %x, %x, %w, %r {partial_sums = 7 : i64}
      : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<4xf32>, tensor<2x3xf32>) -> (tensor<2x3x4xf32>, tensor<7x4xf32>)
  return
}

// -----

func.func @split_rows(%x: tensor<2x64x16xf32>) {
  // expected-error @+1 {{rows of the parts (127) must be equal to rows of the whole (128)}}
  %a, %b = nn.split_rows %x : (tensor<2x64x16xf32>) -> (tensor<32x16xf32>, tensor<95x16xf32>)
  return
}

// -----

func.func @concat_rows(%x: tensor<2x16xf32>, %y: tensor<2x15xf32>) {
  // expected-error @+1 {{width of a part (15) must be equal to width of the whole (16)}}
  %z = nn.concat_rows %x, %y : (tensor<2x16xf32>, tensor<2x15xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @concat_types(%x: tensor<2x16xf32>) {
  // expected-error @+1 {{has a part of type 'tensor<2x16xf32>', but the whole has 'tensor<2x16xbf16>'}}
  %z = nn.concat_rows %x : (tensor<2x16xf32>) -> tensor<2x16xbf16>
  return
}

// -----

func.func @chunk_rows(%l: tensor<32x8xf32>, %t: tensor<2x20xi32>, %c: tensor<f32>) {
  // expected-error @+1 {{has 32 rows from token 9 on, but there are 40 targets}}
  %s = nn.cross_entropy_chunk %l, %t, %c {first = 9 : i64} : (tensor<32x8xf32>, tensor<2x20xi32>, tensor<f32>) -> tensor<32xf32>
  return
}

// -----

func.func @chunk_far(%l: tensor<32x8xf32>, %t: tensor<2x20xi32>, %c: tensor<f32>) {
  // expected-error @+1 {{has 32 rows from token 9223372036854775807 on, but there are 40 targets}}
  %s = nn.cross_entropy_chunk %l, %t, %c {first = 9223372036854775807 : i64} : (tensor<32x8xf32>, tensor<2x20xi32>, tensor<f32>) -> tensor<32xf32>
  return
}
