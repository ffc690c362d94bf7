// RUN: %S/Inputs/with-schedules.sh %s "form = gathered, gathered_heads = 1" | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=AUTO

// Two key heads take turns: the second one adds its rows to the results of the
// first, and its parts wait for the number of the turn.
// CHECK-LABEL: func.func @both(
// CHECK-SAME: %[[INDICES:[a-z0-9]+]]: tensor<1x2x8256x16xi32>
// CHECK: %[[LISTS:.+]]:2 = tile.launch @selected_attention_lists_
// CHECK: %[[PIECES:.+]]:2 = tile.launch @selection_pieces_b1s8256h2x2d64_s64n16(%[[LISTS]]#0) {{.*}} -> (tensor<1x2x387xi32>, tensor<1x2x387xi32>)
// CHECK: %[[ZERO:.+]] = nn.fill 0.000000e+00 : tensor<1xi32>
// CHECK: %[[FIRST:.+]]:2 = tile.launch @selected_attention_parts_b1s8256h2x2d64_s64n16_bf16(%{{.+}}, %[[INDICES]], %[[LISTS]]#0, %[[LISTS]]#1, %[[PIECES]]#0, %[[PIECES]]#1, %[[ZERO]])
// CHECK: %[[SUM:.+]]:3 = tile.launch @selected_attention_parts_sum_{{.+}}(%[[FIRST]]#0, %[[FIRST]]#1, %[[INDICES]], %[[ZERO]])
// CHECK: %[[NEXT:.+]]:2 = tile.launch @selected_attention_parts_b1s8256h2x2d64_s64n16_bf16({{.+}}, %[[SUM]]#2)
// CHECK: tile.launch @selected_attention_parts_sum_next_{{.+}}(%[[NEXT]]#0, %[[NEXT]]#1, %[[INDICES]], %[[SUM]]#2, %[[SUM]]#0, %[[SUM]]#1)
// CHECK: tile.launch @selected_attention_backward_dq_rows_
// CHECK: tile.launch @selected_attention_backward_dq_parts_
// CHECK: tile.launch @selected_attention_backward_dq_parts_sum_next_
// CHECK: tile.launch @selected_attention_backward_dkdv_

// Parts of both heads fit.
// AUTO-LABEL: func.func @both(
// AUTO: tile.launch @selected_attention_parts_b1s8256h2x2d64
// AUTO-NOT: _next
// AUTO: tile.launch @selected_attention_backward_dq_parts_sum_
func.func @both(%q: tensor<1x8256x2x64xbf16>, %k: tensor<1x8256x2x64xbf16>, %i: tensor<1x2x8256x16xi32>)
    -> (tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>) {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x8256x16xi32>)
      : tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %o, %q, %k, %k, %o, %lse visible(#nsa.selected<block = 64>, %i : tensor<1x2x8256x16xi32>)
      : tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x2x8256xf32>
  return %dq, %dk, %dv : tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>
}

// The heads of a group take turns, too.
// CHECK-LABEL: func.func @group(
// CHECK-COUNT-7: tile.launch @selected_attention_parts_b1s8256h8x2d64_s64n16_bf16({{.*}} -> (tensor<1x1x16x8256x64xbf16>, tensor<1x1x2x16x8256xf32>)
// More heads in a group, or few blocks for each that is selected: lists.
// AUTO-LABEL: func.func @group(
// AUTO-NOT: _parts_
// AUTO-LABEL: func.func @short(
// AUTO-NOT: _parts_
func.func @group(%q: tensor<1x8256x8x64xbf16>, %k: tensor<1x8256x2x64xbf16>, %i: tensor<1x2x8256x16xi32>) -> tensor<1x8256x8x64xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x8256x16xi32>)
      : tensor<1x8256x8x64xbf16>, tensor<1x8256x2x64xbf16>, tensor<1x8256x2x64xbf16>
  return %o : tensor<1x8256x8x64xbf16>
}
func.func @short(%q: tensor<1x4096x2x64xbf16>, %k: tensor<1x4096x2x64xbf16>, %i: tensor<1x2x4096x16xi32>) -> tensor<1x4096x2x64xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x4096x16xi32>)
      : tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>
  return %o : tensor<1x4096x2x64xbf16>
}

// A program keeps the keys of a block and stores the parts of 64 queries where
// the block is in their lists.
// AUTO-LABEL: tile.kernel private @selected_attention_counts_
// CHECK-LABEL: tile.kernel private @selected_attention_parts_
// CHECK: tile.load
// CHECK: scf.for
// CHECK: %[[SLOT:.+]] = tile.reduce add {{.+}} -> !tile.tile<64x1xi32>
// CHECK: tile.dot
// CHECK: tile.store {{.+}}, %[[SLOT]], %
