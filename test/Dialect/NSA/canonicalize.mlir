// RUN: nsa-opt %s --canonicalize --cse | FileCheck %s

// Every op is pure: what is not used disappears, what is equal is one.
// CHECK-LABEL: func.func @pure
func.func @pure(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %c: tensor<1x15x2x16xf32>)
    -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>) {
  // CHECK-NOT: nsa.attention {{.*}}visible(#nsa.compressed
  %unused:2 = nsa.compressed_attention %q, %c, %c {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  // CHECK: %[[O:.*]], %{{.*}} = nsa.attention {{.*}}visible(#nsa.window
  // CHECK-NOT: nsa.attention {{.*}}visible(#nsa.window
  %a:2 = nsa.window_attention %q, %k, %k {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %b:2 = nsa.window_attention %q, %k, %k {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  // CHECK: return %[[O]], %[[O]]
  return %a#0, %b#0 : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>
}
