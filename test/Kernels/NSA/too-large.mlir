// RUN: nsa-opt %s --nsa-convert-to-tile --verify-diagnostics --split-input-file

// A grid has up to 2^31 - 1 programs along an axis.
func.func @blocks(%indices: tensor<1x1x4294967296x1xi32>) -> tensor<3xf32> {
  // expected-error @+1 {{needs 4294967296 programs along an axis of the grid, more than 2147483647}}
  %s = nsa.selection_statistics %indices {select_block = 1 : i64} : (tensor<1x1x4294967296x1xi32>) -> tensor<3xf32>
  return %s : tensor<3xf32>
}

// -----

// Programs take several rows each, but count all of them.
func.func @rows(%x: tensor<65536x65536x8xf32>, %w: tensor<8xf32>) -> tensor<65536x65536x8xf32> {
  // expected-error @+1 {{counts to 4294967296 in a kernel, more than 2147483647}}
  %y, %r = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : (tensor<65536x65536x8xf32>, tensor<8xf32>) -> (tensor<65536x65536x8xf32>, tensor<65536x65536xf32>)
  return %y : tensor<65536x65536x8xf32>
}
