// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @statistics_of_three_branches(%gates: tensor<1x64x4x3xf32>) {
  // expected-error @below {{incompatible with return type(s) of operation}}
  // expected-error @below {{failed to infer returned types}}
  %y = nsa.gate_statistics %gates : (tensor<1x64x4x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @causal_takes_no_indices(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %i: tensor<1x2x64x3xi32>) {
  // expected-error @below {{has indices, but visibility #nsa.causal takes none}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal, %i : tensor<1x2x64x3xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

// -----

func.func @more_indices_than_count(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %i: tensor<1x2x64x3xi32>) {
  // expected-error @below {{indices of a query (3) must be at most count (2)}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 16, count = 2>, %i : tensor<1x2x64x3xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

// -----

func.func @select_clause_count(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{count (0) must be at least 1}}
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>)
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x0xi32>
  return
}

// -----

func.func @select_clause_and_parameters(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      // expected-error @below {{has no attribute `count`}}
      {count = 4 : i64} : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @select_scale_type(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      // expected-error @below {{attribute 'scale' must be a number of type f64, found 2 : i64}}
      {scale = 2 : i64} : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @select_query_rank(%q: tensor<64x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      // expected-error @below {{query must be a tensor of rank 4, found 'tensor<64x16xf32>'}}
      : tensor<64x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return
}

// -----

// One row for each stride, not one for each block of the whole row.
func.func @packed_blocks(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %s: tensor<1x64xi32>) {
  // expected-error @below {{key rows (15) must be equal to strides of the packed sequences (16)}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.compressed<block = 8, stride = 4>) start(%s : tensor<1x64xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>
  return
}

// -----

// expected-error @+1 {{attribute `nsa.stages` must be a number from 1 to 8, or a dictionary of such}}
module attributes {nsa.stages = {window_attention = 9 : i64}} {
}

// -----

func.func @at_shape(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %at: tensor<3x2xi32>) {
  // expected-error @below {{at has shape 3x2, expected 2x2}}
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.causal) at(%at : tensor<3x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>
  return
}

// -----

func.func @at_no_sequence(%q: tensor<2x16x4x16xf32>, %k: tensor<0x64x2x16xf32>, %at: tensor<2x2xi32>) {
  // expected-error @below {{key batch (0) must be at least 1}}
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.causal) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<0x64x2x16xf32>, tensor<0x64x2x16xf32>
  return
}

// -----

func.func @at_value(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %v: tensor<3x32x2x16xf32>, %at: tensor<2x2xi32>) {
  // expected-error @below {{value has shape 3x32x2x16, expected 3x64x2x16}}
  %o, %l = nsa.attention %q, %k, %v visible(#nsa.causal) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x32x2x16xf32>
  return
}

// -----

func.func @at_start_rows(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %s: tensor<2x64xi32>, %at: tensor<2x2xi32>) {
  // expected-error @below {{start has shape 2x64, expected 3x64}}
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.causal) start(%s : tensor<2x64xi32>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>
  return
}

// -----

func.func @at_start_tokens(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %s: tensor<3x60xi32>, %at: tensor<2x2xi32>) {
  // expected-error @below {{key rows (64) must be equal to tokens of start (60)}}
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.causal) start(%s : tensor<3x60xi32>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>
  return
}

// -----

func.func @at_select(%q: tensor<2x16x4x16xf32>, %k: tensor<3x15x2x16xf32>, %l: tensor<2x4x16xf32>, %at: tensor<2x1xi32>) {
  // expected-error @below {{at has shape 2x1, expected 2x2}}
  %i = nsa.select %q, %k, %l at(%at : tensor<2x1xi32>) by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<2x16x4x16xf32>, tensor<3x15x2x16xf32> -> tensor<2x2x16x3xi32>
  return
}

// -----

func.func @at_lse(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %l: tensor<2x4x64xf32>, %at: tensor<2x2xi32>) {
  // expected-error @below {{lse has shape 2x4x64, expected 2x4x16}}
  %dq, %dk, %dv = nsa.attention_backward %q, %q, %k, %k, %q, %l visible(#nsa.causal) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>, tensor<2x16x4x16xf32>, tensor<2x4x64xf32>
  return
}
