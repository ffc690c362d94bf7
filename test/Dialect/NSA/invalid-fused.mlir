// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @query(%q: tensor<1x0x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{query has shape 1x0x4x16 with an empty dimension}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x0x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x0xf32>, tensor<1x64x4x16xf32>, tensor<1x4x0xf32>)
  return
}

// -----

func.func @empty_output(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x0xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{compressed output has shape 1x64x4x0 with an empty dimension}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x0xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x0xf32>, tensor<1x64x4x0xf32>, tensor<1x4x64xf32>, tensor<1x64x4x0xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @output(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x2x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{compressed output has shape 1x64x2x16, expected 1x64x4x16}}
  %r = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x2x16xf32>)
  return
}

// -----

func.func @no_key_heads(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x0x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{key heads (0) must be at least 1}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x0x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @heads(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x3x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{query heads (4) must be a multiple of key heads (3)}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x3x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @selected_key(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x63x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{selected key has shape 1x63x2x16, expected 1x64x2x16}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x63x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @selected_value(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x8xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{selected value has shape 1x64x2x8, expected 1x64x2x16}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x8xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @window_key(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x1x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{window key has shape 1x64x1x16, expected 1x64x2x16}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x1x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @window_value(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<2x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{window value has shape 2x64x2x16, expected 1x64x2x16}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<2x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @no_indices(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x0xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{indices has shape 1x2x64x0 with an empty dimension}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x0xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @indices(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x4x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{indices has shape 1x4x64x3, expected 1x2x64x3}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x4x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @given_bias(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x4x3xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{given gates take no bias}}
  %r:5 = nsa.gated_attention given %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @given_type(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x4x3xbf16>) {
  // expected-error @below {{given gates have element type 'bf16', expected 'f32'}}
  %r:5 = nsa.gated_attention given %q, %oc, %ks, %vs, %i, %kw, %vw, %g
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xbf16>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @given_shape(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>) {
  // expected-error @below {{gates has shape 1x64x12, expected 1x64x4x3}}
  %r:5 = nsa.gated_attention given %q, %oc, %ks, %vs, %i, %kw, %vw, %g
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @logits(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x4x3xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{gate logits has shape 1x64x4x3, expected 1x64x12}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @bias(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<4xf32>) {
  // expected-error @below {{bias has shape 4, expected 12}}
  %r:5 = nsa.gated_attention softmax %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<4xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @element_types(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xbf16>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{failed to verify that all of {query, compressed, selected_key, selected_value, window_key, window_value} have same element type}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xbf16>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @window(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @+2 {{window (0) must be at least 1 and at most 2147483647}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<0>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @stride(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @+2 {{block (8) must be a multiple of stride (3)}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 3>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @compressed_rows(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x16x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{compressed key has shape 1x16x2x16, expected 1x15x2x16}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @compressed_value(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x1x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{compressed value has shape 1x15x1x16, expected 1x15x2x16}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x1x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x1x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @output_gradient(%do: tensor<1x63x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{output gradient has shape 1x63x4x16, expected 1x64x4x16}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x63x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @selected_output(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x8xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{selected output has shape 1x64x4x8, expected 1x64x4x16}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x8xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @window_output(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x2x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{window output has shape 1x64x2x16, expected 1x64x4x16}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @compressed_lse(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x64x4xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{compressed lse has shape 1x64x4, expected 1x4x64}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x64x4xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @selected_lse(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x63xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{selected lse has shape 1x4x63, expected 1x4x64}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x63xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @window_lse(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<2x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{window lse has shape 2x4x64, expected 1x4x64}}
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<2x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// -----

// The outputs of the branches are results where they are kept, and only there.
func.func @kept(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  // expected-error @below {{failed to infer returned types}}
  // expected-error @below {{incompatible with return type(s) of operation}}
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

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

func.func @pair_table(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %t: tensor<64x4x2xf32>) {
  // expected-error @below {{rotary table has shape 64x4x2, expected 64x8x2}}
  %r:2 = nsa.compress_key_value mean %k, %v rotary %t {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x4x2xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  return
}

// -----

func.func @pair_table_length(%k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %t: tensor<56x8x2xf32>) {
  // expected-error @below {{rotary table length (56) must be above the last position (56)}}
  %r:2 = nsa.compress_key_value mean %k, %v rotary %t {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<56x8x2xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
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

func.func @rotary_odd_width(%q: tensor<1x64x4x15xf32>, %kc: tensor<1x15x2x15xf32>, %vc: tensor<1x15x2x16xf32>, %ks: tensor<1x64x2x15xf32>, %t: tensor<64x7x2xf32>) {
  // expected-error @below {{rotated head width (15) must be a multiple of pair (2)}}
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x15xf32>, tensor<1x15x2x15xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x15xf32>, tensor<64x7x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x15xf32>, tensor<1x64x2x15xf32>)
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

func.func @tokens_without_table(%do: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %l: tensor<1x4x64xf32>, %k: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %g: tensor<1x64x4x3xf32>) {
  // expected-error @below {{has no rotary table to rotate tokens by}}
  %r:8 = nsa.gated_attention_backward given %do, %do, %kc, %kc, %do, %l, %k, %k, %do, %l, %i, %k, %k, %do, %l, %g
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>) {rotate_tokens}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x4x3xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
          tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>)
  return
}

// -----

func.func @tokens_table_length(%do: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %l: tensor<1x4x64xf32>, %k: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %g: tensor<1x64x4x3xf32>, %t: tensor<60x8x2xf32>) {
  // expected-error @below {{rotary table length (60) must be above the last position (63)}}
  %r:8 = nsa.gated_attention_backward given %do, %do, %kc, %kc, %do, %l, %k, %k, %do, %l, %i, %k, %k, %do, %l, %g rotary %t
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>) {rotate_tokens}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x4x3xf32>, tensor<60x8x2xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
          tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>)
  return
}
