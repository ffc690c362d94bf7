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
