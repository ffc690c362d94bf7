// RUN: split-file %s %t
// RUN: not nsa-opt %t/tokens.mlir --nsa-convert-to-tile 2>&1 | FileCheck %s --check-prefix=TOKENS
// RUN: not nsa-opt %t/billions.mlir --nsa-convert-to-tile 2>&1 | FileCheck %s --check-prefix=BILLIONS

// No machine holds such a tensor.
// TOKENS: tokens.mlir:2:{{.*}} error: type 'tensor<1x4611686018427387904x1x16xf32>' has more than 281474976710656 elements

// Kernels count with 32 bits; the pairs of queries and keys are counted without
// looking at each.
// BILLIONS: billions.mlir:2:{{.*}} error: 'nsa.attention' op counts to {{[0-9]+}} in a kernel, more than 2147483647

//--- tokens.mlir
func.func @f(%q: tensor<1x4611686018427387904x1x16xf32>) -> tensor<1x4611686018427387904x1x16xf32> {
  %o, %lse = nsa.window_attention %q, %q, %q {window = 2147483647 : i64}
      : (tensor<1x4611686018427387904x1x16xf32>, tensor<1x4611686018427387904x1x16xf32>, tensor<1x4611686018427387904x1x16xf32>)
      -> (tensor<1x4611686018427387904x1x16xf32>, tensor<1x1x4611686018427387904xf32>)
  return %o : tensor<1x4611686018427387904x1x16xf32>
}
//--- billions.mlir
func.func @f(%q: tensor<1x4000000000x1x16xf32>) -> tensor<1x4000000000x1x16xf32> {
  %o, %lse = nsa.window_attention %q, %q, %q {window = 2147483647 : i64}
      : (tensor<1x4000000000x1x16xf32>, tensor<1x4000000000x1x16xf32>, tensor<1x4000000000x1x16xf32>)
      -> (tensor<1x4000000000x1x16xf32>, tensor<1x1x4000000000xf32>)
  return %o : tensor<1x4000000000x1x16xf32>
}
