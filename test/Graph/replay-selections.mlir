// RUN: nsa-opt %s --nsa-replay-selections --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @accumulate
// CHECK-SAME: %[[K:[^:]*]]: tensor<1x15x2x16xf32>, %[[I:[^:]*]]: tensor<1x2x64x3xi32> {nn.name = "selection.0", nn.role = "input"})
// CHECK-NOT: nsa.select
// CHECK: return %[[I]]
func.func @accumulate(%q: tensor<1x64x4x16xf32>, %lse: tensor<1x4x64xf32>, %k: tensor<1x15x2x16xf32>) -> tensor<1x2x64x3xi32> {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return %i : tensor<1x2x64x3xi32>
}

// Others select.
// CHECK-LABEL: func.func @eval
// CHECK: nsa.select
func.func @eval(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32> {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return %i : tensor<1x2x64x3xi32>
}

// -----

// expected-error @below {{option replay-selection has no effect: no layer of an entry accumulate selects blocks}}
module {
  func.func @accumulate(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
