// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// One launch: both branches, the gates and the sum.
// CHECK-LABEL: func.func @forward
// CHECK-NEXT: %[[R:.+]]:5 = tile.launch @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_f32(
// CHECK-NEXT: return %[[R]]#0
func.func @forward(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) -> tensor<1x64x4x16xf32> {
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %r#0 : tensor<1x64x4x16xf32>
}

// CHECK-LABEL: func.func @inference
// CHECK-NEXT: %[[R:.+]] = tile.launch @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_bf16(
// CHECK-NEXT: return %[[R]]
func.func @inference(%q: tensor<1x64x4x16xbf16>, %oc: tensor<1x64x4x16xbf16>, %ks: tensor<1x64x2x16xbf16>,
    %vs: tensor<1x64x2x16xbf16>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xbf16>,
    %vw: tensor<1x64x2x16xbf16>, %g: tensor<1x64x12xbf16>, %b: tensor<12xf32>) -> tensor<1x64x4x16xbf16> {
  %r = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x16xbf16>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x12xbf16>, tensor<12xf32>)
      -> (tensor<1x64x4x16xbf16>)
  return %r : tensor<1x64x4x16xbf16>
}

// Five launches. The first makes the inverse index of the selection. The second
// gives dq and the gradient of the logits at once, the gates and do . o for the
// others, and a row of partial sums of the gradient of the bias for each program,
// which a program of the launch for the compressed branch adds.
// CHECK-LABEL: func.func @backward
// CHECK: %[[L:.+]]:2 = tile.launch @gated_attention_backward_lists_b1s64h4x2d16_s16n3_f32(
// CHECK-SAME: -> (tensor<1x2x6xi32>, tensor<1x2x192xi32>)
// CHECK: %[[Q:.+]]:4 = tile.launch @gated_attention_backward_dq_sigmoid_b1s64h4x2d16_s16n3_w32_l8d4_f32(
// CHECK-SAME: -> (tensor<1x64x4x16xf32>, tensor<1x64x12xf32>, tensor<1x4x6x64xf32>, tensor<8x12xf32>)
// CHECK: %[[W:.+]]:2 = tile.launch @gated_attention_backward_dkdv_win_{{.*}}(%{{.+}}, %[[Q]]#2) :
// CHECK: %[[S:.+]]:2 = tile.launch @gated_attention_backward_dkdv_slc_{{.*}}(%{{.+}}, %[[Q]]#2, %[[L]]#0, %[[L]]#1) :
// CHECK: %[[C:.+]]:3 = tile.launch @gated_attention_backward_dkdv_cmp_{{.*}}(%[[Q]]#3, %{{.+}}, %[[Q]]#2) :
// CHECK-NEXT: return %[[Q]]#0, %[[C]]#1, %[[C]]#2, %[[S]]#0, %[[S]]#1, %[[W]]#0, %[[W]]#1, %[[Q]]#1, %[[C]]#0
func.func @backward(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>)
    -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
        tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>) {
  %r:9 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5, %r#6, %r#7, %r#8
      : tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
        tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>
}

// Branches are rounded before they are summed, as they are where they are stored.
// Products and sums are multiply-adds, here and in nsa.combine.
// CHECK-LABEL: tile.kernel private @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_f32(
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK-COUNT-5: tile.store
// CHECK-NOT: tile.store
// CHECK-LABEL: tile.kernel private @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_bf16(
// CHECK-COUNT-2: arith.truncf %{{.+}} : f32 to bf16
// CHECK: %[[SUM:.+]] = tile.map (%{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}} : {{.*}} -> !tile.tile<16x16xf32>
// CHECK-COUNT-2: math.fma
// CHECK: tile.map (%[[SUM]] :
// CHECK: arith.truncf
// CHECK: tile.store
// CHECK-NOT: tile.store

// CHECK-LABEL: tile.kernel private @gated_attention_backward_lists
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dq
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_win
// CHECK-SAME: grid = array<i32: 2, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_slc
// CHECK-SAME: grid = array<i32: 4, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_cmp
// CHECK-SAME: grid = array<i32: 3, 1, 1>
