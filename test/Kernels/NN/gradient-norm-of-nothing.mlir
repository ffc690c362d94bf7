// RUN: nsa-opt %s --nsa-convert-to-tile | FileCheck %s

// A model without parameters has no gradients.
// CHECK-LABEL: func.func @norm
// CHECK-NEXT: %[[ZERO:.+]] = nn.fill 0.000000e+00 : tensor<f32>
// CHECK-NEXT: return %[[ZERO]]
func.func @norm() -> tensor<f32> {
  %0 = nn.gradient_norm : () -> tensor<f32>
  return %0 : tensor<f32>
}
