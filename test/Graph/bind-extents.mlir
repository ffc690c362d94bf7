// RUN: nsa-opt %s | FileCheck %s
// RUN: nsa-opt %s --canonicalize | FileCheck %s

// Numbers that no other size has stand for the batch and the length; that of
// compressed keys follows.
// CHECK: module attributes {nsa.extents = {{.*}}7, #{{.*}}10007, #
// CHECK: func.func @f(
// CHECK-SAME: tensor<7x10007x4x16xf32> {nn.dims = ["batch", "seq", "", ""]}
// CHECK-SAME: tensor<7x2500x2x16xf32> {nn.dims = ["batch", "", "", ""]}
// CHECK: -> (tensor<7x10007x4x16xf32>, tensor<7x4x10007xf32>)
func.func @f(%q: tensor<?x?x4x16xf32>, %kc: tensor<?x?x2x16xf32>, %vc: tensor<?x?x2x16xf32>) -> (tensor<?x?x4x16xf32>, tensor<?x4x?xf32>) {
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>) -> (tensor<?x?x4x16xf32>, tensor<?x4x?xf32>)
  return %o, %lse : tensor<?x?x4x16xf32>, tensor<?x4x?xf32>
}

// So it does where they come to a gradient.
// CHECK: func.func @gradient(
// CHECK-SAME: tensor<7x10007x4x16xf32> {nn.dims = ["batch", "seq", "", ""]}
// CHECK-SAME: tensor<7x2500x2x16xf32> {nn.dims = ["batch", "", "", ""]}
// CHECK-SAME: tensor<7x2500x2x16xf32> {nn.dims = ["batch", "", "", ""]}
// CHECK: -> (tensor<7x10007x4x16xf32>, tensor<7x2500x2x16xf32>, tensor<7x2500x2x16xf32>)
func.func @gradient(%do: tensor<?x?x4x16xf32>, %q: tensor<?x?x4x16xf32>, %kc: tensor<?x?x2x16xf32>, %vc: tensor<?x?x2x16xf32>, %o: tensor<?x?x4x16xf32>, %lse: tensor<?x4x?xf32>)
    -> (tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>) {
  %dq, %dk, %dv = nsa.attention_backward %do, %q, %kc, %vc, %o, %lse visible(#nsa.compressed<block = 8, stride = 4>)
      : tensor<?x?x4x16xf32>, tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x4x16xf32>, tensor<?x4x?xf32>
  return %dq, %dk, %dv : tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>
}

// CHECK: func.func @compression(
// CHECK-SAME: tensor<7x2500x2x16xf32> {nn.dims = ["batch", "", "", ""]}
// CHECK-SAME: tensor<7x10007x2x16xf32> {nn.dims = ["batch", "seq", "", ""]}
// CHECK: -> tensor<7x10007x2x16xf32>
func.func @compression(%dy: tensor<?x?x2x16xf32>, %x: tensor<?x?x2x16xf32>) -> tensor<?x?x2x16xf32> {
  %dx = nsa.compress_backward mean %dy, %x by(#nsa.compressed<block = 8, stride = 4>) : (tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32>) -> tensor<?x?x2x16xf32>
  return %dx : tensor<?x?x2x16xf32>
}

// The table of angles is as long as the sequences.
// CHECK: func.func @rotate(
// CHECK-SAME: tensor<10007x8x2xf32> {nn.dims = ["seq", "", ""]}
func.func @rotate(%x: tensor<?x?x4x16xf32>, %table: tensor<?x8x2xf32>) -> tensor<?x?x4x16xf32> {
  %y = nn.rotary %x, %table : (tensor<?x?x4x16xf32>, tensor<?x8x2xf32>) -> tensor<?x?x4x16xf32>
  return %y : tensor<?x?x4x16xf32>
}
