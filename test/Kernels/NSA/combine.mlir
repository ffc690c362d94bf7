// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @combine
// CHECK: tile.launch @combine_b1s64h4d16_bf16
func.func @combine(%g: tensor<1x64x4x3xf32>, %a: tensor<1x64x4x16xbf16>, %b: tensor<1x64x4x16xbf16>, %c: tensor<1x64x4x16xbf16>) -> tensor<1x64x4x16xbf16> {
  %o = nsa.combine %g, %a, %b, %c
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>) -> tensor<1x64x4x16xbf16>
  return %o : tensor<1x64x4x16xbf16>
}

// CHECK-LABEL: func.func @combine_backward
// CHECK: tile.launch @combine_backward_b1s64h4d16_bf16
func.func @combine_backward(%do: tensor<1x64x4x16xbf16>, %g: tensor<1x64x4x3xf32>, %a: tensor<1x64x4x16xbf16>, %b: tensor<1x64x4x16xbf16>, %c: tensor<1x64x4x16xbf16>)
    -> (tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>) {
  %r:4 = nsa.combine_backward %do, %g, %a, %b, %c
      : (tensor<1x64x4x16xbf16>, tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>)
      -> (tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>)
  return %r#0, %r#1, %r#2, %r#3 : tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>
}

// The sum is fp32 and rounded once.
// CHECK-LABEL: tile.kernel private @combine_b1s64h4d16_bf16
// CHECK: %[[SUM:.+]] = tile.map {{.*}} -> !tile.tile<64x16xf32>
// CHECK-NOT: arith.truncf
// CHECK: tile.yield
// CHECK: tile.map (%[[SUM]] :
// CHECK: arith.truncf

// CHECK-LABEL: tile.kernel private @combine_backward_b1s64h4d16_bf16
// CHECK-COUNT-3: tile.reduce add
