// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @pair_stride(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // expected-error @below {{block (8) must be a multiple of stride (3)}}
  %r:2 = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 3 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x19x2x16xf32>, tensor<1x19x2x16xf32>)
  return
}

// -----

func.func @pair_no_keys(%k: tensor<1x64x0x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // expected-error @below {{keys has shape 1x64x0x16 with an empty dimension}}
  %r:2 = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x0x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x15x0x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_no_values(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x0xf32>) {
  // expected-error @below {{values has shape 1x64x2x0 with an empty dimension}}
  %r:2 = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x0xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x0xf32>)
  return
}

// -----

func.func @pair_values(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x1x16xf32>) {
  // expected-error @below {{values has shape 1x64x1x16, expected 1x64x2x16}}
  %r:2 = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x1x16xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x1x16xf32>)
  return
}

// -----

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

// -----

func.func @pair_odd_width(%k: tensor<1x64x2x15xf32>, %v: tensor<1x64x2x16xf32>, %t: tensor<64x7x2xf32>) {
  // expected-error @below {{rotated head width (15) must be a multiple of pair (2)}}
  %r:2 = nsa.compress_key_value mean %k, %v rotary %t {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x15xf32>, tensor<1x64x2x16xf32>, tensor<64x7x2xf32>) -> (tensor<1x15x2x15xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_key_gradient(%dk: tensor<1x16x2x16xf32>, %dv: tensor<1x15x2x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // expected-error @below {{gradient of the compressed keys has shape 1x16x2x16, expected 1x15x2x16}}
  %r:2 = nsa.compress_key_value_backward mean %dk, %dv, %k, %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x16x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @pair_value_gradient(%dk: tensor<1x15x2x16xf32>, %dv: tensor<1x15x2x8xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // expected-error @below {{gradient of the compressed values has shape 1x15x2x8, expected 1x15x2x16}}
  %r:2 = nsa.compress_key_value_backward mean %dk, %dv, %k, %v {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x15x2x8xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_stride(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{block (8) must be a multiple of stride (3)}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 3>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_blocks(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x14x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{compressed key has shape 1x14x2x16, expected 1x15x2x16}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x14x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_groups(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x3x16xf32>, %vc: tensor<1x15x3x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{query heads (4) must be a multiple of key heads (3)}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x3x16xf32>, tensor<1x15x3x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_value(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x1x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{compressed value has shape 1x15x1x16, expected 1x15x2x16}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x1x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_table(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x4x2xf32>) {
  // expected-error @below {{rotary table has shape 64x4x2, expected 64x8x2}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x4x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_table_length(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<63x8x2xf32>) {
  // expected-error @below {{rotary table length (63) must be above the last position (63)}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<63x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_key_rows(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x63x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{rotated key has shape 1x63x2x16, expected 1x64x2x16}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x63x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x63x2x16xf32>)
  return
}

// -----

func.func @rotary_key_heads(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x5x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{rotated key heads (5) must be at most query heads (4)}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x5x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x5x16xf32>)
  return
}

// -----

func.func @rotary_no_rotated_key(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x0x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{rotated key has shape 1x64x0x16 with an empty dimension}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x0x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x0x16xf32>)
  return
}

// -----

func.func @rotary_key_element(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xbf16>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{rotated key has element type 'bf16', expected 'f32'}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xbf16>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xbf16>)
  return
}

// -----

func.func @rotary_no_key_heads(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x0x16xf32>, %vc: tensor<1x15x0x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{key heads (0) must be at least 1}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x0x16xf32>, tensor<1x15x0x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @rotary_no_queries(%q: tensor<1x64x0x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %t: tensor<64x8x2xf32>) {
  // expected-error @below {{query has shape 1x64x0x16 with an empty dimension}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x0x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x64x0x16xf32>, tensor<1x0x64xf32>, tensor<1x64x0x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @pair_start(%k: tensor<1x64x2x16xf32>, %s: tensor<1x32xi32>) {
  // expected-error @below {{start has shape 1x32, expected 1x64}}
  %r:2 = nsa.compress_key_value mean %k, %k start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x32xi32>) -> (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>)
  return
}

// -----

func.func @rotary_attention_start(%q: tensor<1x64x4x16xf32>, %k: tensor<1x16x2x16xf32>, %t: tensor<64x8x2xf32>, %s: tensor<2x64xi32>) {
  // expected-error @below {{start has shape 2x64, expected 1x64}}
  %r:3 = nsa.rotary_attention %q, %k, %k rotary %t start(%s) visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>, tensor<64x8x2xf32>, tensor<2x64xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>)
  return
}
