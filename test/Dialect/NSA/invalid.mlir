// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @stride_divides_block(%x: tensor<1x64x2x16xf32>) {
  // expected-error @below {{block (10) must be a multiple of stride (4)}}
  %y = nsa.compress mean %x {block = 10 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>) -> tensor<1x14x2x16xf32>
  return
}

// -----

func.func @mean_takes_no_weight(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{mean compression takes no weight, found 1 parameter}}
  %y = nsa.compress mean %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @weight_shape(%x: tensor<1x64x2x16xf32>, %w: tensor<2x64x16xf32>) {
  // expected-error @below {{weight has shape 2x64x16, expected 2x128x16}}
  %y = nsa.compress linear %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x64x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @weight_type(%x: tensor<1x64x2x16xbf16>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{weight has element type 'f32', expected 'bf16'}}
  %y = nsa.compress linear %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xbf16>
  return
}

// -----

func.func @mlp_takes_two_weights(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{mlp compression takes 2 weights and at most one tensor of positions, found 1 parameter}}
  %y = nsa.compress mlp %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @one_tensor_of_positions(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>, %p: tensor<2x8x16xf32>) {
  // expected-error @below {{linear compression takes a weight and at most one tensor of positions, found 3 parameters}}
  %y = nsa.compress linear %x, %w, %p, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @output_weight_shape(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{output weight has shape 2x128x16, expected 2x16x16}}
  %y = nsa.compress mlp %x, %w, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @positions_shape(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>, %p: tensor<2x4x16xf32>) {
  // expected-error @below {{positions has shape 2x4x16, expected 2x8x16}}
  %y = nsa.compress linear %x, %w, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x4x16xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @positions_type(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>, %p: tensor<2x8x16xbf16>) {
  // expected-error @below {{positions has element type 'bf16', expected 'f32'}}
  %y = nsa.compress linear %x, %w, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x8x16xbf16>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @compress_backward_rows(%dy: tensor<1x16x2x16xf32>, %x: tensor<1x64x2x16xf32>) {
  // expected-error @below {{output gradient has shape 1x16x2x16, expected 1x15x2x16}}
  %dx = nsa.compress_backward mean %dy, %x {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x16x2x16xf32>, tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32>
  return
}

// -----

func.func @compress_backward_results(%dy: tensor<1x15x2x16xf32>, %x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // expected-error @below {{has 1 results, expected 2}}
  %dx = nsa.compress_backward linear %dy, %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x64x2x16xf32>
  return
}

// -----

func.func @compressed_rows(%q: tensor<1x64x4x16xf32>, %k: tensor<1x16x2x16xf32>) {
  // expected-error @below {{key rows (16) must be equal to compressed blocks of the sequence (15)}}
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @no_key_heads(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x0x16xf32>) {
  // expected-error @below {{key heads (0) must be at least 1}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x0x16xf32>, tensor<1x64x0x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @empty_query(%q: tensor<1x0x4x16xf32>, %k: tensor<1x0x2x16xf32>) {
  // expected-error @below {{query has shape 1x0x4x16 with an empty dimension}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x0x4x16xf32>, tensor<1x0x2x16xf32>, tensor<1x0x2x16xf32>)
      -> (tensor<1x0x4x16xf32>, tensor<1x4x0xf32>)
  return
}

// -----

func.func @batch(%q: tensor<2x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{key batch (1) must be equal to query batch (2)}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<2x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<2x64x4x16xf32>, tensor<2x4x64xf32>)
  return
}

// -----

func.func @sequence(%q: tensor<1x64x4x16xf32>, %k: tensor<1x63x2x16xf32>) {
  // expected-error @below {{key rows (63) must be equal to query rows (64)}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x63x2x16xf32>, tensor<1x63x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @head_width(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x24xf32>) {
  // expected-error @below {{key head width (24) must be equal to query head width (16)}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x24xf32>, tensor<1x64x2x24xf32>)
      -> (tensor<1x64x4x24xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @value_heads(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x4x16xf32>) {
  // expected-error @below {{value has shape 1x64x4x16, expected 1x64x2x16}}
  %o, %lse = nsa.window_attention %q, %k, %v {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @value_width(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x0xf32>) {
  // expected-error @below {{value head width (0) must be at least 1}}
  %o, %lse = nsa.window_attention %q, %k, %v {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x0xf32>)
      -> (tensor<1x64x4x0xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @element_types(%q: tensor<1x64x4x16xbf16>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{failed to verify that all of {query, key, value} have same element type}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xbf16>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xbf16>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @lse_is_fp32(%q: tensor<1x64x4x16xbf16>, %k: tensor<1x64x2x16xbf16>) {
  // expected-error @below {{result #1 must be statically shaped 3D tensor of 32-bit float values}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x16xbf16>)
      -> (tensor<1x64x4x16xbf16>, tensor<1x4x64xbf16>)
  return
}

// -----

func.func @static_shapes(%q: tensor<?x64x4x16xf32>, %k: tensor<?x64x2x16xf32>) {
  // expected-error @below {{operand #0 must be statically shaped 4D tensor}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<?x64x4x16xf32>, tensor<?x64x2x16xf32>, tensor<?x64x2x16xf32>)
      -> (tensor<?x64x4x16xf32>, tensor<?x4x64xf32>)
  return
}

// -----

func.func @window_backward_output(%do: tensor<1x64x4x16xf32>, %o: tensor<1x64x4x24xf32>, %k: tensor<1x64x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{output has shape 1x64x4x24, expected 1x64x4x16}}
  %dq, %dk, %dv = nsa.window_attention_backward %do, %do, %k, %k, %o, %lse {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x4x24xf32>, tensor<1x4x64xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @window_backward_gradient(%do: tensor<1x32x4x16xf32>, %o: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{output gradient has shape 1x32x4x16, expected 1x64x4x16}}
  %dq, %dk, %dv = nsa.window_attention_backward %do, %o, %k, %k, %o, %lse {window = 16 : i64}
      : (tensor<1x32x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @select_stride_divides_select_block(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{select_block (18) must be a multiple of stride (4)}}
  %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 18 : i64, count = 3 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @select_block_at_least_block(%q: tensor<1x64x4x16xf32>, %k: tensor<1x13x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{block (16) must be at most select_block (12)}}
  %i = nsa.select %q, %k, %lse {block = 16 : i64, stride = 4 : i64, select_block = 12 : i64, count = 3 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x13x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @select_own_block_is_local(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{attribute 'local' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64, local = 0 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @select_lse(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x2x64xf32>) {
  // expected-error @below {{lse has shape 1x2x64, expected 1x4x64}}
  %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x2x64xf32>) -> tensor<1x2x64x3xi32>
  return
}

// -----

// One list for each group of heads, not for each query head.
func.func @indices_per_group(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %i: tensor<1x4x64x3xi32>) {
  // expected-error @below {{indices has shape 1x4x64x3, expected 1x2x64x3}}
  %o, %lse = nsa.selected_attention %q, %k, %k, %i {select_block = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x4x64x3xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @gate_branches(%g: tensor<1x64x4x2xf32>, %x: tensor<1x64x4x16xf32>) {
  // expected-error @below {{gates has shape 1x64x4x2, expected 1x64x4x3}}
  %o = nsa.combine %g, %x, %x, %x
      : (tensor<1x64x4x2xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>)
      -> tensor<1x64x4x16xf32>
  return
}

// -----

func.func @branches_differ(%g: tensor<1x64x4x3xf32>, %x: tensor<1x64x4x16xf32>, %y: tensor<1x64x4x8xf32>) {
  // expected-error @below {{branch 1 has type 'tensor<1x64x4x8xf32>', expected 'tensor<1x64x4x16xf32>'}}
  %o = nsa.combine %g, %x, %y, %x
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x8xf32>, tensor<1x64x4x16xf32>)
      -> tensor<1x64x4x16xf32>
  return
}

// -----

func.func @combine_nothing(%g: tensor<1x64x4x0xf32>) {
  // expected-error @below {{branches (0) must be at least 1}}
  %o = nsa.combine %g : (tensor<1x64x4x0xf32>) -> tensor<1x64x4x16xf32>
  return
}

// -----

func.func @statistics_of_three_branches(%gates: tensor<1x64x4x3xf32>) {
  // expected-error @below {{incompatible with return type(s) of operation}}
  // expected-error @below {{failed to infer returned types}}
  %y = nsa.gate_statistics %gates : (tensor<1x64x4x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @statistics_of_no_branch(%gates: tensor<1x64x4x0xf32>) {
  // expected-error @below {{gates has shape 1x64x4x0 with an empty dimension}}
  %y = nsa.gate_statistics %gates : (tensor<1x64x4x0xf32>) -> tensor<1xf32>
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

func.func @selected_takes_indices(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{has no indices, but visibility #nsa.selected<block = 16> takes some}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 16>)
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

func.func @window_of_nothing(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{window (0) must be at least 1 and at most 2147483647}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.window<0>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

// -----

func.func @query_of_rank_three(%q: tensor<64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{query and value must be tensors of rank 4}}
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal)
      : tensor<64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

// -----

func.func @not_a_visibility(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{invalid kind of attribute specified}}
  %o, %lse = nsa.attention %q, %k, %k visible(1 : i64)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

// -----

func.func @operands_of_a_spelling(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{custom op 'nsa.window_attention' has 2 operands, expected 3}}
  %o, %lse = nsa.window_attention %q, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @results_of_a_spelling(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{custom op 'nsa.window_attention' has 1 results, expected 2}}
  %o = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> tensor<1x64x4x16xf32>
  return
}

// -----

func.func @statistics_of_nothing(%indices: tensor<1x2x0x3xi32>) {
  // expected-error @below {{indices has shape 1x2x0x3 with an empty dimension}}
  %y = nsa.selection_statistics %indices {select_block = 16 : i64} : (tensor<1x2x0x3xi32>) -> tensor<3xf32>
  return
}

// -----

// Kernels count with 32 bits.
func.func @window_has_32_bits(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{attribute 'window' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive and at most 2147483647 (it is 2147483653 : i64)}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 2147483653 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @initial_has_32_bits(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) {
  // expected-error @below {{attribute 'initial' failed to satisfy constraint}}
  %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64, initial = 2147483648 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  return
}

// -----

func.func @scale_is_finite(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{attribute 'scale' failed to satisfy constraint: 64-bit float attribute whose value is 0 or a normal number in fp32}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 4 : i64, scale = 1.0e300 : f64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
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

func.func @compress_clause_kind(%x: tensor<1x64x2x16xf32>) {
  // expected-error @below {{has no attribute `kind`}}
  %y = nsa.compress mean %x by(#nsa.compressed<block = 8, stride = 4>) {kind = 1 : i64}
      : (tensor<1x64x2x16xf32>) -> tensor<1x15x2x16xf32>
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

func.func @packed_compress(%x: tensor<1x64x2x16xf32>, %s: tensor<2x64xi32>) {
  // expected-error @below {{start has shape 2x64, expected 1x64}}
  %y = nsa.compress mean %x start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x2x16xf32>, tensor<2x64xi32>) -> tensor<1x16x2x16xf32>
  return
}

// -----

func.func @packed_rotary(%x: tensor<1x15x2x16xf32>, %t: tensor<64x8x2xf32>, %s: tensor<1x64xi32>) {
  // expected-error @below {{strides of the packed sequences (16) must be equal to rows (15)}}
  %y = nn.rotary %x, %t, %s {stride = 4 : i64} : (tensor<1x15x2x16xf32>, tensor<64x8x2xf32>, tensor<1x64xi32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

// expected-error @+1 {{attribute `nsa.stages` must be a number from 1 to 8, or a dictionary of such}}
module attributes {nsa.stages = {window_attention = 9 : i64}} {
}
