// RUN: nsa-opt %s --nsa-fuse-attention --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

!q = tensor<1x64x4x16xf32>
!qh = tensor<1x64x4x16xbf16>
!k = tensor<1x64x2x16xf32>
!kh = tensor<1x64x2x16xbf16>
!kc = tensor<1x15x2x16xf32>
!l = tensor<1x4x64xf32>
!i = tensor<1x2x64x3xi32>
!g = tensor<1x64x4x3xf32>
!z = tensor<1x64x12xf32>
!b = tensor<12xf32>

// One launch: both branches, the gates and the sum.
// CHECK-LABEL: func.func @forward
// CHECK-NEXT: %[[R:.+]]:5 = tile.launch @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_f32(
// CHECK-NEXT: return %[[R]]#0, %[[R]]#1, %[[R]]#2, %[[R]]#3, %[[R]]#4
func.func @forward(%q: !q, %oc: !q, %ks: !k, %vs: !k, %i: !i, %kw: !k, %vw: !k, %z: !z, %b: !b) -> (!q, !q, !l, !q, !l) {
  %os, %ls = nsa.attention %q, %ks, %vs visible(#nsa.selected<block = 16>, %i : !i) : !q, !k, !k
  %ow, %lw = nsa.attention %q, %kw, %vw visible(#nsa.window<32>) : !q, !k, !k
  %g = nn.gate sigmoid %z, %b : (!z, !b) -> !g
  %o = nsa.combine %g, %oc, %os, %ow : (!g, !q, !q, !q) -> !q
  return %o, %os, %ls, %ow, %lw : !q, !q, !l, !q, !l
}

// CHECK-LABEL: func.func @inference
// CHECK-NEXT: %[[R:.+]] = tile.launch @gated_attention_sigmoid_b1s64h4x2d16_s16n3_w32_bf16(
// CHECK-NEXT: return %[[R]]
func.func @inference(%q: !qh, %oc: !qh, %ks: !kh, %vs: !kh, %i: !i, %kw: !kh, %vw: !kh, %z: tensor<1x64x12xbf16>, %b: !b) -> !qh {
  %os, %ls = nsa.attention %q, %ks, %vs visible(#nsa.selected<block = 16>, %i : !i) : !qh, !kh, !kh
  %ow, %lw = nsa.attention %q, %kw, %vw visible(#nsa.window<32>) : !qh, !kh, !kh
  %g = nn.gate sigmoid %z, %b : (tensor<1x64x12xbf16>, !b) -> !g
  %o = nsa.combine %g, %oc, %os, %ow : (!g, !qh, !qh, !qh) -> !qh
  return %o : !qh
}

// Another visibility inside is another kernel.
// CHECK-LABEL: func.func @other_branches
// CHECK-NEXT: %[[R:.+]] = tile.launch @gated_attention_given_b1s64h4x2d16_s16n3_c_b8e2_f32(
// CHECK-NEXT: %[[S:.+]] = tile.launch @gated_attention_given_b1s64h4x2d16_s16n3_c_w32_f32(
// CHECK-NEXT: return %[[R]], %[[S]]
func.func @other_branches(%q: !q, %k: !k, %i: !i, %g: !g) -> (!q, !q) {
  %o0, %l0 = nsa.attention %q, %k, %k visible(#nsa.causal) : !q, !k, !k
  %o1, %l1 = nsa.attention %q, %k, %k visible(#nsa.selected<block = 16>, %i : !i) : !q, !k, !k
  %o2, %l2 = nsa.attention %q, %k, %k visible(#nsa.strided<block = 8, stride = 2>) : !q, !k, !k
  %x = nsa.combine %g, %o0, %o1, %o2 : (!g, !q, !q, !q) -> !q
  %o3, %l3 = nsa.attention %q, %k, %k visible(#nsa.causal) : !q, !k, !k
  %o4, %l4 = nsa.attention %q, %k, %k visible(#nsa.selected<block = 16>, %i : !i) : !q, !k, !k
  %o5, %l5 = nsa.attention %q, %k, %k visible(#nsa.window<32>) : !q, !k, !k
  %y = nsa.combine %g, %o3, %o4, %o5 : (!g, !q, !q, !q) -> !q
  return %x, %y : !q, !q
}

// Five launches. The first makes the inverse index of the selection. The second
// gives dq and the gradient of the logits at once, the gates and do . o for the
// others, and a row of partial sums of the gradient of the bias for each program,
// which a program of the launch for the compressed branch adds.
// CHECK-LABEL: func.func @backward
// CHECK: %[[L:.+]]:2 = tile.launch @gated_attention_backward_lists_b1s64h4x2d16_s16n3_f32(
// CHECK-SAME: -> (tensor<1x2x6xi32>, tensor<1x2x192xi32>)
// CHECK: %[[Q:.+]]:4 = tile.launch @gated_attention_backward_dq_sigmoid_b1s64h4x2d16_s16n3_l8d4_w32_f32(
// CHECK-SAME: -> (tensor<1x64x4x16xf32>, tensor<1x64x12xf32>, tensor<1x4x6x64xf32>, tensor<8x12xf32>)
// CHECK: %[[W:.+]]:2 = tile.launch @gated_attention_backward_dkdv_window_{{.*}}(%{{.+}}, %[[Q]]#2) :
// CHECK: %[[S:.+]]:2 = tile.launch @gated_attention_backward_dkdv_selected_{{.*}}(%{{.+}}, %[[Q]]#2, %[[L]]#0, %[[L]]#1) :
// CHECK: %[[C:.+]]:3 = tile.launch @gated_attention_backward_dkdv_compressed_{{.*}}(%[[Q]]#3, %{{.+}}, %[[Q]]#2) :
// CHECK-NEXT: return %[[Q]]#0, %[[C]]#1, %[[C]]#2, %[[S]]#0, %[[S]]#1, %[[W]]#0, %[[W]]#1, %[[Q]]#1, %[[C]]#0
func.func @backward(%do: !q, %q: !q, %kc: !kc, %vc: !kc, %oc: !q, %lc: !l, %ks: !k, %vs: !k, %os: !q, %ls: !l, %i: !i, %kw: !k, %vw: !k,
    %ow: !q, %lw: !l, %z: !z, %b: !b) -> (!q, !kc, !kc, !k, !k, !k, !k, !z, !b) {
  %g = nn.gate sigmoid %z, %b : (!z, !b) -> !g
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !g, !q, !q, !q) -> (!g, !q, !q, !q)
  %dqc, %dkc, %dvc = nsa.attention_backward %dc, %q, %kc, %vc, %oc, %lc visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
  %dqs, %dks, %dvs = nsa.attention_backward %ds, %q, %ks, %vs, %os, %ls visible(#nsa.selected<block = 16>, %i : !i) : !q, !q, !k, !k, !q, !l
  %dqw, %dkw, %dvw = nsa.attention_backward %dw, %q, %kw, %vw, %ow, %lw visible(#nsa.window<32>) : !q, !q, !k, !k, !q, !l
  %d0 = nn.add %dqc, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqw : (!q, !q) -> !q
  %dz, %db = nn.gate_backward sigmoid %dg, %g {logits_type = f32} : (!g, !g) -> (!z, !b)
  return %dq, %dkc, %dvc, %dks, %dvs, %dkw, %dvw, %dz, %db : !q, !kc, !kc, !k, !k, !k, !k, !z, !b
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
// CHECK-LABEL: tile.kernel private @gated_attention_given_b1s64h4x2d16_s16n3_c_b8e2_f32

// CHECK-LABEL: tile.kernel private @gated_attention_backward_lists
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dq
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_window
// CHECK-SAME: grid = array<i32: 2, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_selected
// CHECK-SAME: grid = array<i32: 4, 2, 1>
// CHECK-LABEL: tile.kernel private @gated_attention_backward_dkdv_compressed
// CHECK-SAME: grid = array<i32: 3, 1, 1>
