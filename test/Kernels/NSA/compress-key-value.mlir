// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

!k = tensor<1x64x2x16xf32>
!v = tensor<1x64x2x32xf32>
!kc = tensor<1x15x2x16xf32>
!vc = tensor<1x15x2x32xf32>
!wk = tensor<2x128x16xf32>

// One launch each. The gradients of a mean need the gradients alone.
// CHECK-LABEL: func.func @mean
// CHECK: tile.launch @compress_key_value_mean_b1s64h2d16_l8d4_f32(%arg0, %arg2, %arg1) : ({{.*}}) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x32xf32>)
// CHECK: tile.launch @compress_key_value_backward_dx_mean_b1s64h2d16_l8d4_f32(%arg3, %arg4) :
func.func @mean(%k: !k, %v: !v, %t: tensor<64x8x2xf32>, %dk: !kc, %dv: !vc) -> (!kc, !vc, !k, !v) {
  %kc, %vc = nsa.compress_key_value mean %k, %v rotary %t {block = 8 : i64, stride = 4 : i64} : (!k, !v, tensor<64x8x2xf32>) -> (!kc, !vc)
  %0, %1 = nsa.compress_key_value_backward mean %dk, %dv, %k, %v {block = 8 : i64, stride = 4 : i64} : (!kc, !vc, !k, !v) -> (!k, !v)
  return %kc, %vc, %0, %1 : !kc, !vc, !k, !v
}

// CHECK-LABEL: func.func @linear
// CHECK: tile.launch @compress_key_value_linear_b1s64h2d16_l8d4_f32
// CHECK: %[[D:.+]]:4 = tile.launch @compress_key_value_backward_dxdw_linear_b1s64h2d16_l8d4_f32
// CHECK: return %{{.+}}, %{{.+}}, %[[D]]#0, %[[D]]#2, %[[D]]#1, %[[D]]#3
func.func @linear(%k: !k, %v: !k, %w: !wk, %w1: !wk, %dk: !kc, %dv: !kc) -> (!kc, !kc, !k, !k, !wk, !wk) {
  %kc, %vc = nsa.compress_key_value linear %k (%w), %v (%w1) {block = 8 : i64, stride = 4 : i64} : (!k, !k, !wk, !wk) -> (!kc, !kc)
  %r:4 = nsa.compress_key_value_backward linear %dk, %dv, %k (%w), %v (%w1) {block = 8 : i64, stride = 4 : i64} : (!kc, !kc, !k, !k, !wk, !wk) -> (!k, !k, !wk, !wk)
  return %kc, %vc, %r#0, %r#1, %r#2, %r#3 : !kc, !kc, !k, !k, !wk, !wk
}

// Programs of the keys, then of the values, each with a grid of their own. The
// keys are rotated where they lie.
// CHECK-LABEL: tile.kernel private @compress_key_value_mean_
// CHECK-SAME: %[[K:.+]]: memref<1x64x2x16xf32>, %[[T:.+]]: memref<64x8x2xf32>, %[[V:.+]]: memref<1x64x2x32xf32>, %[[KC:.+]]: memref<1x15x2x16xf32>, %[[VC:[^:]+]]: memref<1x15x2x32xf32>
// CHECK-SAME: grid = array<i32: 4, 1, 1>
// CHECK: %[[ID:.+]] = tile.program_id 0
// CHECK: %[[KEYS:.+]] = arith.cmpi slt, %[[ID]],
// CHECK: scf.if %[[KEYS]]
// CHECK: tile.store %{{.+}}, %[[KC]][
// CHECK-COUNT-2: tile.load %[[T]][
// CHECK-COUNT-2: tile.load %[[KC]][
// CHECK: tile.store %{{.+}}, %[[KC]][
// CHECK: } else {
// CHECK: tile.load %[[V]][
// CHECK: tile.store %{{.+}}, %[[VC]][
