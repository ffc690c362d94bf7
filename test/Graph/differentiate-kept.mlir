// RUN: nsa-opt %s --nsa-differentiate --split-input-file --verify-diagnostics | FileCheck %s

// What the forward pass has kept comes as arguments where gradients need it; the
// rest is computed again.
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32> {nn.name = "x"}, %[[SEED:[^:]*]]: tensor<4xf32> {nn.name = "grad.z", nn.role = "input"},
// CHECK-SAME: %[[Y:[^:]*]]: tensor<4xf32> {nn.name = "y", nn.role = "input"}) -> (tensor<4xf32> {nn.name = "grad.x"}) {
// CHECK-NEXT: %[[DY:.*]] = nn.silu_backward %[[SEED]], %[[Y]]
// CHECK-NEXT: %[[DX:.*]] = nn.silu_backward %[[DY]], %[[X]]
// CHECK-NEXT: return %[[DX]] :
func.func @backward(%x: tensor<4xf32> {nn.name = "x", nn.differentiate})
    -> (tensor<4xf32> {nn.name = "z", nn.objective, nn.kept}, tensor<4xf32> {nn.name = "y", nn.kept}) {
  %y = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  %z = nn.silu %y : (tensor<4xf32>) -> tensor<4xf32>
  return %z, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{result 0 of function `alone` is marked nn.kept, but no result is marked nn.objective}}
func.func @alone(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.kept}) {
  return %x : tensor<4xf32>
}
