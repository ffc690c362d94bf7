// RUN: nsa-opt %s --nsa-convert-to-tile --split-input-file --verify-diagnostics | FileCheck %s

// Operations that agree in attributes and types share a kernel, which keeps the
// location of the first; what differs in either has a kernel of its own.

// CHECK-LABEL: func.func @layers
// CHECK: %[[FIRST:.+]]:2 = tile.launch @window_attention_b1s64h4x2d16_w32_f32(
// CHECK: tile.launch @window_attention_b1s64h4x2d16_w32_f32(%[[FIRST]]#0,
// CHECK: tile.launch @window_attention_b1s64h4x2d16_w32_f32_0(
// CHECK: tile.launch @window_attention_b1s64h4x2d16_w16_f32(
func.func @layers(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>) {
  %o0, %lse0 = nsa.window_attention %q, %k, %k {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %o1, %lse1 = nsa.window_attention %o0, %k, %k {window = 32 : i64, model.layer = 1 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %o2, %lse2 = nsa.window_attention %q, %k, %k {window = 32 : i64, scale = 1.0 : f64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %o3, %lse3 = nsa.window_attention %q, %k, %k {window = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %o1, %o2, %o3 : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>
}

// Arguments take 64*4*16 + 2*64*2*16 + 64*4*16 + 4*64 floats. 4 heads see
// 32*33/2 + 32*32 pairs of 16 + 16 multiply-adds.
// CHECK: tile.kernel private @window_attention_b1s64h4x2d16_w32_f32(
// CHECK-SAME: %{{.+}}: memref<1x64x4x16xf32>, %{{.+}}: memref<1x64x2x16xf32>, %{{.+}}: memref<1x64x2x16xf32>, %{{.+}}: memref<1x64x4x16xf32>, %{{.+}}: memref<1x4x64xf32>)
// CHECK-SAME: bytes = 50176 : i64, flops = 397312 : i64, grid = array<i32: 2, 4, 1>, num_outputs = 2 : i32
// CHECK: tile.kernel private @window_attention_b1s64h4x2d16_w32_f32_0(
// CHECK: tile.kernel private @window_attention_b1s64h4x2d16_w16_f32(
// CHECK-NOT: tile.kernel

// -----

// Library calls and views are no kernels.

// CHECK-LABEL: func.func @stays
// CHECK: nn.matmul
// CHECK: nn.split_heads
// CHECK-NOT: tile.kernel
func.func @stays(%x: tensor<1x4x8xf32>, %w: tensor<8x8xf32>) -> tensor<1x4x2x4xf32> {
  %y = nn.matmul %x, %w : (tensor<1x4x8xf32>, tensor<8x8xf32>) -> tensor<1x4x8xf32>
  %z = nn.split_heads %y {heads = 2 : i64} : (tensor<1x4x8xf32>) -> tensor<1x4x2x4xf32>
  return %z : tensor<1x4x2x4xf32>
}
