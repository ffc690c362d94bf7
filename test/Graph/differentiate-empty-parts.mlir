// RUN: nsa-opt %s --nsa-differentiate | FileCheck %s

// A part without elements has a gradient without elements: nothing is cut off
// that of the whole.
// CHECK-LABEL: func.func @flatten
// CHECK: %[[PARTS:.*]]:2 = nn.split %{{.*}} {rows, sizes = array<i64: 2, 4>}
// CHECK: nn.fill 0.000000e+00 : tensor<0x8xf32>
func.func @flatten(%a: tensor<2x8xf32> {nn.name = "a", nn.role = "parameter", nn.differentiate},
                  %b: tensor<0x8xf32> {nn.name = "b", nn.role = "parameter", nn.differentiate},
                  %c: tensor<4x8xf32> {nn.name = "c", nn.role = "parameter", nn.differentiate},
                  %t: tensor<6xi32>) -> (tensor<f32> {nn.objective}) {
  %w = nn.flatten %a, %b, %c in ["a", "b", "c"] : (tensor<2x8xf32>, tensor<0x8xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %loss, %lse, %count = nn.cross_entropy %w, %t : (tensor<6x8xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<6xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @concat
// CHECK: nn.split %{{.*}} {sizes = array<i64: 8>}
// CHECK: nn.fill 0.000000e+00 : tensor<6x0xf32>
func.func @concat(%a: tensor<6x8xf32> {nn.name = "a", nn.role = "parameter", nn.differentiate},
                  %b: tensor<6x0xf32> {nn.name = "b", nn.role = "parameter", nn.differentiate},
                  %t: tensor<6xi32>) -> (tensor<f32> {nn.objective}) {
  %w = nn.concat %a, %b : (tensor<6x8xf32>, tensor<6x0xf32>) -> tensor<6x8xf32>
  %loss, %lse, %count = nn.cross_entropy %w, %t : (tensor<6x8xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<6xf32>, tensor<f32>)
  return %loss : tensor<f32>
}
