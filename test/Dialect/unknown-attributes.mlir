// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @misspelt(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) {
  // expected-error @below {{custom op 'nsa.window_attention' has no attribute `widnow`; did you mean `window`?}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 32 : i64, widnow = 3 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// -----

func.func @unlike_any(%x: tensor<4xf32>) {
  // expected-error @below {{'nn.silu' op has no attribute `temperature`}}
  %y = nn.silu %x {temperature = 2.0} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @own_prefix(%x: tensor<4xf32>) {
  // expected-error @below {{attribute `nsa.performance_lint` is not known here; did you mean `nsa.performance_lints`?}}
  %y = nn.silu %x {nsa.performance_lint = []} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// No operation of the dialects is there.
// expected-error @below {{attribute `nn.nmae` is not known here; did you mean `nn.name`?}}
func.func @argument(%x: tensor<4xf32> {nn.nmae = "x"}) {
  return
}

// -----

// expected-error @below {{attribute `nsa.window` is not known here}}
func.func @function() attributes {nsa.window = 3 : i64} {
  return
}

// -----

// A name that is known, but not here, is no misspelling.
// expected-error @below {{attribute `nn.alias` is not known here}}
module attributes {nn.alias = "x"} {
}

// -----

// expected-error @below {{'rt.segment' op has no attribute `alignmnt`; did you mean `alignment`?}}
rt.segment arena @arena size 4096 alignment 64 {alignmnt = 64 : i64}

// -----

// expected-error @below {{attribute `rt.size` is not known here}}
rt.segment arena @arena size 4096 alignment 64 {rt.size = 64 : i64}

// -----

// expected-error @below {{'tile.kernel' op has no attribute `gird`; did you mean `grid`?}}
tile.kernel private @k(%x: memref<128xf32>) attributes {grid = array<i32: 2, 1, 1>, gird = 1 : i32, num_outputs = 1 : i32} {
  tile.return
}

// -----

// expected-error @below {{attribute `nsa.select_blocks` must be an array<i64> of numbers that are at least 0}}
tile.kernel private @k(%x: memref<128xf32>) attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32, nsa.select_blocks = array<i64: -1>} {
  tile.return
}

// -----

// Attributes of other dialects are theirs.
func.func @foreign(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.silu %x {model.layer = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
