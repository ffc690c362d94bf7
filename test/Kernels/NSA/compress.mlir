// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @mean
// CHECK: tile.launch @compress_mean_b1s64h2d16_l8d4_f32
// CHECK: tile.launch @compress_backward_dx_mean_b1s64h2d16_l8d4_f32
func.func @mean(%x: tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32> {
  %y = nsa.compress mean %x {block = 8 : i64, stride = 4 : i64} : (tensor<1x64x2x16xf32>) -> tensor<1x15x2x16xf32>
  %dx = nsa.compress_backward mean %y, %x {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32>
  return %dx : tensor<1x64x2x16xf32>
}

// CHECK-LABEL: func.func @linear
// CHECK: tile.launch @compress_linear_b1s64h2d16_l8d4_bf16
// CHECK: tile.launch @compress_backward_dx_linear_b1s64h2d16_l8d4_bf16
// CHECK: tile.launch @compress_backward_dw_linear_b1s64h2d16_l8d4_bf16
// CHECK-SAME: -> tensor<2x128x16xf32>
func.func @linear(%x: tensor<1x64x2x16xbf16>, %w: tensor<2x128x16xbf16>) -> (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>) {
  %y = nsa.compress linear %x, %w {block = 8 : i64, stride = 4 : i64} : (tensor<1x64x2x16xbf16>, tensor<2x128x16xbf16>) -> tensor<1x15x2x16xbf16>
  %dx, %dw = nsa.compress_backward linear %y, %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xbf16>, tensor<1x64x2x16xbf16>, tensor<2x128x16xbf16>) -> (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>)
  return %dx, %dw : tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>
}

// Backward computes the hidden rows again; positions cost a bias, not a copy of
// the blocks.
// CHECK-LABEL: func.func @mlp(
// CHECK-SAME: %[[X:[^:]+]]: {{[^,]+}}, %[[W:[^:]+]]: {{[^,]+}}, %[[W2:[^:]+]]: {{[^,]+}}, %[[E:[^:]+]]:
// CHECK: %[[BIAS:.+]] = tile.launch @compress_bias_mlp_positions_b1s64h2d16_l8d4_bf16(%[[W]], %[[E]]) : {{.*}} -> tensor<2x16xf32>
// CHECK: tile.launch @compress_mlp_positions_b1s64h2d16_l8d4_bf16(%[[X]], %[[W]], %[[W2]], %[[BIAS]])
// CHECK: %[[AGAIN:.+]] = tile.launch @compress_backward_bias_mlp_positions_b1s64h2d16_l8d4_bf16(%[[W]], %[[E]])
// CHECK: %[[HIDDEN:.+]]:2 = tile.launch @compress_backward_dz_mlp_positions_b1s64h2d16_l8d4_bf16(%{{.+}}, %[[X]], %[[W]], %[[W2]], %[[AGAIN]])
// CHECK: tile.launch @compress_backward_dx_mlp_positions_b1s64h2d16_l8d4_bf16(%[[HIDDEN]]#0, %{{[^,]+}})
// CHECK: tile.launch @compress_backward_dw_mlp_positions_b1s64h2d16_l8d4_bf16(%{{[^,]+}}, %[[HIDDEN]]#0, %{{[^,]+}}, %{{[^,]+}})
// CHECK-SAME: -> (tensor<2x128x16xf32>, tensor<2x8x16xf32>)
// CHECK: tile.launch @compress_backward_dw2_mlp_positions_b1s64h2d16_l8d4_bf16(%[[HIDDEN]]#1, %{{[^,]+}})
// CHECK-SAME: -> tensor<2x16x16xf32>
func.func @mlp(%x: tensor<1x64x2x16xbf16>, %w: tensor<2x128x16xbf16>, %w2: tensor<2x16x16xbf16>, %p: tensor<2x8x16xbf16>)
    -> (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>) {
  %y = nsa.compress mlp %x, %w, %w2, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xbf16>, tensor<2x128x16xbf16>, tensor<2x16x16xbf16>, tensor<2x8x16xbf16>)
      -> tensor<1x15x2x16xbf16>
  %dx, %dw, %dw2, %dp = nsa.compress_backward mlp %y, %x, %w, %w2, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xbf16>, tensor<1x64x2x16xbf16>, tensor<2x128x16xbf16>, tensor<2x16x16xbf16>, tensor<2x8x16xbf16>)
      -> (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
  return %dx, %dw, %dw2, %dp
      : tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>
}

// CHECK-LABEL: tile.kernel private @compress_mean
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK: tile.range %{{.+}} {step = 4 : i32} : !tile.tile<16x1xi32>

// Every block that holds a token, in ascending order.
// CHECK-LABEL: tile.kernel private @compress_backward_dx_mean
// CHECK: scf.for %[[OFFSET:.+]] = %c-1_i32
// CHECK: %[[I:.+]] = arith.divsi
// CHECK-NEXT: arith.addi %[[I]], %[[OFFSET]]

// CHECK-LABEL: tile.kernel private @compress_linear
// CHECK: tile.dot {{.*}} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>

// Tokens of one phase share a dot with the same rows of the weight.
// CHECK-LABEL: tile.kernel private @compress_backward_dx_linear
// CHECK-SAME: grid = array<i32: 4, 2, 1>
// CHECK: tile.dot {{.*}} {transpose_b}

// One program per row block of the weight: no atomics.
// CHECK-LABEL: tile.kernel private @compress_backward_dw_linear
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK: tile.dot {{.*}} {transpose_a}
// CHECK: tile.store %{{.+}} : !tile.tile<16x16xf32>, memref<2x128x16xf32>

// One row is no operand of tensor cores: the bias is no dot.
// CHECK-LABEL: tile.kernel private @compress_bias_mlp_positions
// CHECK-NOT: tile.dot
// CHECK: tile.reduce add {{.*}} {axis = 0 : i32} : !tile.tile<16x16xf32>

// CHECK-LABEL: tile.kernel private @compress_mlp_positions
// CHECK: scf.for
// CHECK: tile.dot {{.*}} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
// CHECK-NOT: tile.dot
// CHECK: math.exp
// CHECK: tile.dot {{.*}} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>

// The gradient of positions is not rounded on its way.
// CHECK-LABEL: tile.kernel private @compress_backward_dw_mlp_positions
// CHECK: tile.reduce add {{.*}} {axis = 0 : i32} : !tile.tile<16x16xf32>
// CHECK-NOT: tile.dot
// CHECK: tile.reduce add {{.*}} : !tile.tile<16x16xf32>
// CHECK-NOT: tile.dot
// CHECK: tile.return
