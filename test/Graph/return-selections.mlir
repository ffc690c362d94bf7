// RUN: nsa-opt %s --nsa-return-selections --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @forward
// CHECK-SAME: -> (tensor<1x4x64xf32> {nn.name = "lse"}, tensor<1x2x64x3xi32> {nn.name = "selection.0"})
// CHECK: %[[I:.+]] = nsa.select
// CHECK: return %{{.+}}, %[[I]]
func.func @forward(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) -> (tensor<1x4x64xf32> {nn.name = "lse"}) {
  %i = nsa.select %q, %k, %lse by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32> -> tensor<1x2x64x3xi32>
  return %lse : tensor<1x4x64xf32>
}

// Other entries stay as they are; one step of a sequence has another shape, and another name.
// CHECK-LABEL: func.func @eval
// CHECK-SAME: -> tensor<1x4x64xf32> {
func.func @eval(%lse: tensor<1x4x64xf32>) -> tensor<1x4x64xf32> {
  return %lse : tensor<1x4x64xf32>
}

// CHECK-LABEL: func.func @decode
// CHECK-SAME: {nn.name = "next_selection.0"}
func.func @decode(%q: tensor<2x1x4x16xf32>, %k: tensor<2x15x2x16xf32>, %lse: tensor<2x4x1xf32>, %t: tensor<2xi32>) -> tensor<2x4x1xf32> {
  %i = nsa.decode_select %q, %k, %lse at %t {compressed = #nsa.compressed<block = 8, stride = 4>, selected = #nsa.selected<block = 16, count = 3>, context = 64 : i64}
      : (tensor<2x1x4x16xf32>, tensor<2x15x2x16xf32>, tensor<2x4x1xf32>, tensor<2xi32>) -> tensor<2x2x1x3xi32>
  return %lse : tensor<2x4x1xf32>
}

// -----

// expected-error @below {{option selection has no effect: no layer of an entry forward, prefill or decode selects blocks}}
module {
  func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
