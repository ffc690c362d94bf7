// RUN: nsa-opt %s --nsa-recompute=policy=cheap --verify-diagnostics
// RUN: nsa-opt %s --nsa-recompute=policy=none -o /dev/null

// The text has no locations, so nothing says what is to be computed again.
// expected-error @+1 {{function `f` has the gradient `grad.x`, but no location in it says what is backward; print it with --mlir-print-debuginfo}}
func.func @f(%x: tensor<4xf32> {nn.name = "x"}, %dy: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32> {nn.name = "grad.x"}) {
  %y = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  %dx = nn.silu_backward %dy, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y, %dx : tensor<4xf32>, tensor<4xf32>
}
