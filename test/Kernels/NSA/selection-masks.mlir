// RUN: %S/Inputs/with-schedules.sh %s "form = masks" | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=AUTO
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=CUDA
// RUN: %S/Inputs/with-schedules.sh %s "form = masks" | nsa-opt --nsa-convert-to-tile | FileCheck %s --check-prefix=CUDA

// Forward and backward share the masks, and need no lists.
// CHECK-LABEL: func.func @both(
// CHECK-SAME: %[[INDICES:[a-z0-9]+]]: tensor<1x2x4480x16xi32>
// CHECK-NEXT: %[[MASKS:.+]] = tile.launch @selection_masks_b1s4480h2_s64n16(%[[INDICES]]) {{.*}} -> tensor<1x2x3x4480xi32>
// CHECK-NEXT: tile.launch @selected_attention_masks_b1s4480h6x2d64_s64n16_bf16({{.+}}, %[[MASKS]])
// CHECK-NEXT: tile.launch @selected_attention_backward_dq_masks_{{.+}}, %[[MASKS]])
// CHECK-NEXT: tile.launch @selected_attention_backward_dkdv_masks_{{.+}}, %[[MASKS]])
// CHECK-NEXT: return
// Queries see 2.56 times as many pairs as they selected: too many for the
// gradients of keys.
// AUTO-LABEL: func.func @both(
// AUTO-DAG: tile.launch @selected_attention_masks_
// AUTO-DAG: tile.launch @selected_attention_backward_dq_masks_
// AUTO-DAG: tile.launch @selected_attention_backward_dkdv_b1s4480h6x2d64_s64n16_bf16
// CUDA-NOT: tile.launch {{.*}}masks
func.func @both(%q: tensor<1x4480x6x64xbf16>, %k: tensor<1x4480x2x64xbf16>, %i: tensor<1x2x4480x16xi32>)
    -> (tensor<1x4480x6x64xbf16>, tensor<1x4480x2x64xbf16>, tensor<1x4480x2x64xbf16>) {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x4480x16xi32>)
      : tensor<1x4480x6x64xbf16>, tensor<1x4480x2x64xbf16>, tensor<1x4480x2x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %o, %q, %k, %k, %o, %lse visible(#nsa.selected<block = 64>, %i : tensor<1x2x4480x16xi32>)
      : tensor<1x4480x6x64xbf16>, tensor<1x4480x6x64xbf16>, tensor<1x4480x2x64xbf16>, tensor<1x4480x2x64xbf16>, tensor<1x4480x6x64xbf16>, tensor<1x6x4480xf32>
  return %dq, %dk, %dv : tensor<1x4480x6x64xbf16>, tensor<1x4480x2x64xbf16>, tensor<1x4480x2x64xbf16>
}

// Bits of blocks that a query does not see stay 0.
// CHECK-LABEL: tile.kernel private @selection_masks_
// CHECK: %[[LISTS:.+]] = tile.load {{.+}} -> !tile.tile<128x16xi32>
// CHECK: scf.for %[[WORD:.+]] =
// CHECK: tile.map (%[[LISTS]],
// CHECK-DAG: arith.cmpi sle
// CHECK-DAG: arith.shli
// CHECK: %[[BITS:.+]] = tile.reduce add
// CHECK: tile.store %[[BITS]],

// 128 queries of one head go through all blocks: a word of 32 for each row, and
// one number for each row instead of a choice for each element.
// CHECK-LABEL: tile.kernel private @selected_attention_masks_
// CHECK: scf.for {{.+}} step %c2048
// CHECK: %[[WORDS:.+]] = tile.load %{{.+}} -> !tile.tile<128x1xi32>
// CHECK: scf.for {{.+}} step %c64
// CHECK: %[[SELECTED:.+]] = tile.map (%[[WORDS]] :
// CHECK: arith.shrui
// CHECK: tile.dot
// CHECK: tile.map ({{.+}}, %[[SELECTED]] : !tile.tile<128x1xf32>, !tile.tile<128x1xf32>, !tile.tile<128x1xi32>)
// CHECK: %[[SHIFT:.+]] = tile.map (%{{.+}}, %[[SELECTED]] : !tile.tile<128x1xf32>, !tile.tile<128x1xi32>)
// CHECK: tile.map (%{{.+}}, %[[SHIFT]] : !tile.tile<128x64xf32>, !tile.tile<128x1xf32>)

// Few enough for all kernels; of wide heads not for forward.
// AUTO-LABEL: func.func @short(
// AUTO-NOT: lists
// AUTO-DAG: tile.launch @selected_attention_masks_b1s1024h6x2d64_
// AUTO-DAG: tile.launch @selected_attention_backward_dq_masks_
// AUTO-DAG: tile.launch @selected_attention_backward_dkdv_masks_
// AUTO-DAG: tile.launch @selected_attention_b1s1024h8x2d128_s64n16_bf16
// AUTO: return
func.func @short(%q: tensor<1x1024x6x64xbf16>, %k: tensor<1x1024x2x64xbf16>, %i: tensor<1x2x1024x16xi32>, %r: tensor<1x1024x8x128xbf16>, %s: tensor<1x1024x2x128xbf16>)
    -> (tensor<1x1024x6x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x8x128xbf16>) {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x1024x16xi32>)
      : tensor<1x1024x6x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x2x64xbf16>
  %dq, %dk, %dv = nsa.attention_backward %o, %q, %k, %k, %o, %lse visible(#nsa.selected<block = 64>, %i : tensor<1x2x1024x16xi32>)
      : tensor<1x1024x6x64xbf16>, tensor<1x1024x6x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x6x64xbf16>, tensor<1x6x1024xf32>
  %p, %l = nsa.attention %r, %s, %s visible(#nsa.selected<block = 64>, %i : tensor<1x2x1024x16xi32>)
      : tensor<1x1024x8x128xbf16>, tensor<1x1024x2x128xbf16>, tensor<1x1024x2x128xbf16>
  return %dq, %dk, %dv, %p : tensor<1x1024x6x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x2x64xbf16>, tensor<1x1024x8x128xbf16>
}
