// RUN: nsa-opt %s --nsa-convert-to-tile | FileCheck %s

// Kernels compute with 32 bits. A window or a block that is longer than the
// sequence is as good as one of its length, so it is never added to anything.

// CHECK-LABEL: func.func @window
// CHECK: tile.launch @window_attention_b1s64h4x2d16_w64_f32(
func.func @window(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) -> tensor<1x64x4x16xf32> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 2147483647 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %o : tensor<1x64x4x16xf32>
}

// CHECK-LABEL: func.func @select
// CHECK: tile.launch @select_b1s64h4x2d16_l8d4s64n3_f32(
func.func @select(%q: tensor<1x64x4x16xf32>, %k: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32> {
  %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 2147483640 : i64, count = 3 : i64, initial = 2147483647 : i64, local = 2147483647 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  return %i : tensor<1x2x64x3xi32>
}

// CHECK-LABEL: func.func @selected
// CHECK: tile.launch @selected_attention_b1s64h4x2d16_s64n3_f32(
func.func @selected(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %i: tensor<1x2x64x3xi32>) -> tensor<1x64x4x16xf32> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %i {select_block = 2147483647 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x3xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %o : tensor<1x64x4x16xf32>
}

// CHECK-LABEL: func.func @no_compressed_block
// CHECK: tile.launch @compressed_attention_b1s64h4x2d16_l65d65_f32(
func.func @no_compressed_block(%q: tensor<1x64x4x16xf32>, %k: tensor<1x0x2x16xf32>) -> tensor<1x64x4x16xf32> {
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 2147483647 : i64, stride = 2147483647 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x0x2x16xf32>, tensor<1x0x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %o : tensor<1x64x4x16xf32>
}
