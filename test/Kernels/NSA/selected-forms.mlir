// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s

// Masks where queries select a good part of what they see. Where they do not,
// ten queries of six heads fill a warpgroup, which multiplies their union; dk and
// dv gather queries from lists, of which programs have eight parts.

// CHECK-LABEL: func.func @short
// CHECK: tile.launch @selected_attention_masks_b1s4096
// CHECK: tile.launch @selected_attention_backward_dq_masks_b1s4096
// CHECK: tile.launch @selected_attention_backward_dkdv_masks_b1s4096
func.func @short(%q: tensor<1x4096x12x64xbf16>, %k: tensor<1x4096x2x64xbf16>, %i: tensor<1x2x4096x16xi32>) -> (tensor<1x4096x12x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>) {
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x4096x16xi32>) : tensor<1x4096x12x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %q, %q, %k, %k, %o, %l visible(#nsa.selected<block = 64>, %i : tensor<1x2x4096x16xi32>) : tensor<1x4096x12x64xbf16>, tensor<1x4096x12x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x12x64xbf16>, tensor<1x12x4096xf32>
  return %dq, %dk, %dv : tensor<1x4096x12x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>
}

// CHECK-LABEL: func.func @long
// CHECK: tile.launch @selected_attention_b1s8192
// CHECK: tile.launch @selected_attention_backward_dq_b1s8192
// CHECK: %[[PARTS:.+]]:2 = tile.launch @selected_attention_backward_dkdv_b1s8192
// CHECK-SAME: -> (tensor<8x1x8192x2x64xf32>, tensor<8x1x8192x2x64xf32>)
// CHECK: %[[SUM:.+]]:2 = tile.launch @selected_attention_backward_dkdv_sums_b1s8192{{.*}}(%[[PARTS]]#0, %[[PARTS]]#1)
// CHECK: return %{{.+}}, %[[SUM]]#0, %[[SUM]]#1
func.func @long(%q: tensor<1x8192x12x64xbf16>, %k: tensor<1x8192x2x64xbf16>, %i: tensor<1x2x8192x16xi32>) -> (tensor<1x8192x12x64xbf16>, tensor<1x8192x2x64xbf16>, tensor<1x8192x2x64xbf16>) {
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x8192x16xi32>) : tensor<1x8192x12x64xbf16>, tensor<1x8192x2x64xbf16>, tensor<1x8192x2x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %q, %q, %k, %k, %o, %l visible(#nsa.selected<block = 64>, %i : tensor<1x2x8192x16xi32>) : tensor<1x8192x12x64xbf16>, tensor<1x8192x12x64xbf16>, tensor<1x8192x2x64xbf16>, tensor<1x8192x2x64xbf16>, tensor<1x8192x12x64xbf16>, tensor<1x12x8192xf32>
  return %dq, %dk, %dv : tensor<1x8192x12x64xbf16>, tensor<1x8192x2x64xbf16>, tensor<1x8192x2x64xbf16>
}

// Two heads leave a warpgroup 32 queries: dq gathers queries instead.
// CHECK-LABEL: func.func @pairs
// CHECK: tile.launch @selected_attention_b1s8192
// CHECK: tile.launch @selected_attention_backward_dq_rows_b1s8192
func.func @pairs(%q: tensor<1x8192x16x64xbf16>, %k: tensor<1x8192x8x64xbf16>, %i: tensor<1x8x8192x16xi32>) -> tensor<1x8192x16x64xbf16> {
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x8x8192x16xi32>) : tensor<1x8192x16x64xbf16>, tensor<1x8192x8x64xbf16>, tensor<1x8192x8x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %q, %q, %k, %k, %o, %l visible(#nsa.selected<block = 64>, %i : tensor<1x8x8192x16xi32>) : tensor<1x8192x16x64xbf16>, tensor<1x8192x16x64xbf16>, tensor<1x8192x8x64xbf16>, tensor<1x8192x8x64xbf16>, tensor<1x8192x16x64xbf16>, tensor<1x16x8192xf32>
  return %dq : tensor<1x8192x16x64xbf16>
}

// In long sequences four heads, which fill M-tiles of 16 rows, do the same.
// CHECK-LABEL: func.func @far
// CHECK: tile.launch @selected_attention_parts_b1s32768
// CHECK: tile.launch @selected_attention_backward_dq_parts_b1s32768
func.func @far(%q: tensor<1x32768x4x128xbf16>, %k: tensor<1x32768x1x128xbf16>, %i: tensor<1x1x32768x16xi32>) -> tensor<1x32768x4x128xbf16> {
  %o, %l = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x1x32768x16xi32>) : tensor<1x32768x4x128xbf16>, tensor<1x32768x1x128xbf16>, tensor<1x32768x1x128xbf16>
  %dq, %dk, %dv = nsa.attention_backward %q, %q, %k, %k, %o, %l visible(#nsa.selected<block = 64>, %i : tensor<1x1x32768x16xi32>) : tensor<1x32768x4x128xbf16>, tensor<1x32768x4x128xbf16>, tensor<1x32768x1x128xbf16>, tensor<1x32768x1x128xbf16>, tensor<1x32768x4x128xbf16>, tensor<1x4x32768xf32>
  return %dq : tensor<1x32768x4x128xbf16>
}

// CHECK: tile.kernel private @selected_attention_b1s8192h12
// CHECK-SAME: grid = array<i32: 820, 2, 1>
// CHECK-NOT: warp_uniform
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<64x64xbf16>
// CHECK: tile.kernel private @selected_attention_backward_dq_b1s8192h12
// CHECK-SAME: grid = array<i32: 820, 2, 1>
// CHECK-NOT: warp_uniform
// CHECK: tile.kernel private @selected_attention_backward_dkdv_b1s8192h12
// CHECK-SAME: grid = array<i32: 2048, 1, 1>, nsa.min_blocks = 3
