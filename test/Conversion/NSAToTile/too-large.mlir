// RUN: nsa-opt %s --nsa-convert-to-tile --verify-diagnostics

// A grid has up to 2^31 - 1 programs along an axis.
func.func @blocks(%indices: tensor<1x1x4294967296x1xi32>) -> tensor<3xf32> {
  // expected-error @+1 {{needs 4294967296 programs along an axis of the grid, more than 2147483647}}
  %s = nsa.selection_statistics %indices {select_block = 1 : i64} : (tensor<1x1x4294967296x1xi32>) -> tensor<3xf32>
  return %s : tensor<3xf32>
}
