// RUN: nsa-opt %s --nsa-convert-to-tile --verify-diagnostics

// 2^31 + 11 is a prime: there are no rows of equal length.
func.func @prime(%x: tensor<2147483659xf32>) -> tensor<2147483659xf32> {
  // expected-error @+1 {{has no kernel for 2147483659 elements: they are more than 2147483647 and no rows of equal length below that}}
  %y = nn.silu %x : (tensor<2147483659xf32>) -> tensor<2147483659xf32>
  return %y : tensor<2147483659xf32>
}
