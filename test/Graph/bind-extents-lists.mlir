// RUN: nsa-opt %s | FileCheck %s

// Lists of 79 or 81 blocks have up to two rows more: not of 10007 tokens, nor of 10243, where there are 81 heads.
// CHECK: func.func @f(
// CHECK-SAME: tensor<7x10753x81x16xf32>
func.func @f(%q: tensor<?x?x81x16xf32>, %k: tensor<?x?x3x16xf32>, %v: tensor<?x?x3x16xf32>, %i: tensor<?x3x?x1xi32>) -> tensor<?x?x81x16xf32> {
  %o, %lse = nsa.attention %q, %k, %v visible(#nsa.selected<block = 128>, %i : tensor<?x3x?x1xi32>)
      : tensor<?x?x81x16xf32>, tensor<?x?x3x16xf32>, tensor<?x?x3x16xf32>
  return %o : tensor<?x?x81x16xf32>
}
