// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @pair_mean_weight(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{mean compression of keys has 1 parameters, expected 0}}
  %r:2 = nsa.compress_key_value mean %k (%w), %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_linear_weight(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{linear compression of values has 0 parameters, expected 1 or 2}}
  %r:2 = nsa.compress_key_value linear %k (%w), %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_weight_shape(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %w: tensor<2x64x16xf32>, %w1: tensor<2x128x16xf32>) {
  // expected-error @below {{parameter 0 of the keys has shape 2x64x16, expected 2x128x16}}
  %r:2 = nsa.compress_key_value linear %k (%w), %v (%w1) {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x64x16xf32>, tensor<2x128x16xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_weight_type(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %w1: tensor<2x128x16xf32>, %w: tensor<2x128x16xbf16>) {
  // expected-error @below {{parameter 0 of the values has element type 'bf16', expected 'f32'}}
  %r:2 = nsa.compress_key_value linear %k (%w1), %v (%w) {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x128x16xbf16>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_positions(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>, %p: tensor<2x8x16xf32>, %w1: tensor<2x128x16xf32>) {
  // expected-error @below {{parameters of the values (1) must be equal to parameters of the keys (2)}}
  %r:2 = nsa.compress_key_value linear %k (%w, %p), %v (%w1) {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x8x16xf32>, tensor<2x128x16xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}
