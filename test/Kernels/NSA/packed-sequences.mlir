// RUN: nsa-opt %s --nsa-convert-to-tile | FileCheck %s
// RUN: %S/Inputs/with-schedules.sh %s "form = lists" | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=LISTS
// RUN: %S/Inputs/with-schedules.sh %s "form = masks" | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=MASKS

// Keys begin with the sequence of the first query, and rows count them from
// where their own begins.
// CHECK: tile.launch @[[KERNEL:window_attention_b1s64h4x2d16_w32_packed_f32]](
// CHECK: tile.kernel private @[[KERNEL]](
// CHECK: tile.load {{.*}} : memref<1x64xi32>, (i32, i32) -> i32
// CHECK: tile.load {{.*}} : memref<1x64xi32>, (i32, !tile.tile<32x1xi32>) -> !tile.tile<32x1xi32>
func.func @packed(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %s: tensor<1x64xi32>)
    -> tensor<1x64x4x16xf32> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.window<32>) start(%s : tensor<1x64xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return %o : tensor<1x64x4x16xf32>
}

// Numbers of blocks, and what follows from them and from the starts, are made
// once for forward and backward. A union holds ranges of tokens; a mask has a
// bit for each block, and words shifted by one have those of the blocks before.
// LISTS-LABEL: func.func @selected
// LISTS-COUNT-1: tile.launch @selection_numbers_b1s128h2_s64n1_packed(
// LISTS-COUNT-1: tile.launch @selection_union_b1s128h4x2d16_s64n1_packed(
// LISTS-NOT: tile.launch @selection_union
// LISTS-NOT: tile.launch @selection_numbers
// LISTS: tile.launch @selected_attention_b1s128h4x2d16_s64n1_packed_f32(
// LISTS: tile.launch @selected_attention_backward_dkdv_b1s128h4x2d16_s64n1_packed_f32(
// MASKS-LABEL: func.func @selected
// MASKS-DAG: tile.launch @sequence_ends_b1s128(%arg5)
// MASKS-DAG: %[[NUMBERS:.*]] = tile.launch @selection_numbers_b1s128h2_s64n1_packed(%arg4, %arg5)
// MASKS-DAG: tile.launch @selection_masks_b1s128h2_s64n1(%[[NUMBERS]])
// MASKS: tile.launch @selected_attention_masks_b1s128h4x2d16_s64n1_packed_f32(
// MASKS: tile.launch @selected_attention_backward_dq_masks_b1s128h4x2d16_s64n1_packed_f32(
// MASKS: tile.launch @selected_attention_backward_dkdv_masks_b1s128h4x2d16_s64n1_packed_f32(
!q = tensor<1x128x4x16xf32>
!k = tensor<1x128x2x16xf32>
!i = tensor<1x2x128x1xi32>
!s = tensor<1x128xi32>
func.func @selected(%q: !q, %do: !q, %k: !k, %v: !k, %i: !i, %s: !s) -> (!q, !q, !k, !k) {
  %o, %l = nsa.attention %q, %k, %v visible(#nsa.selected<block = 64>, %i : !i) start(%s : !s) : !q, !k, !k
  %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %l visible(#nsa.selected<block = 64>, %i : !i) start(%s : !s)
      : !q, !q, !k, !k, !q, tensor<1x4x128xf32>
  return %o, %dq, %dk, %dv : !q, !q, !k, !k
}
