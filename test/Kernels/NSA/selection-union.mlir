// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s
// RUN: %S/Inputs/with-schedules.sh %s "form = lists" | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=HOPPER

// Forward and backward share the union, which is made where the selection is.
// CHECK-LABEL: func.func @both(
// CHECK: %[[SELECTION:.+]] = tile.launch @select_
// CHECK-NEXT: %[[UNION:.+]]:2 = tile.launch @selection_union_{{.*}}(%[[SELECTION]])
// CHECK-NOT: tile.launch @selection_union_
// CHECK: tile.launch @selected_attention_b1s1024h8x1d16_s16n4_bf16{{.*}}%[[UNION]]#0, %[[UNION]]#1)
// CHECK-NOT: tile.launch @selection_union_
// CHECK: tile.launch @selected_attention_backward_dq_{{.*}}%[[UNION]]#0, %[[UNION]]#1)
func.func @both(%q: tensor<1x1024x8x16xbf16>, %k: tensor<1x1024x1x16xbf16>, %c: tensor<1x127x1x16xbf16>, %l: tensor<1x8x1024xf32>)
    -> (tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>) {
  %indices = nsa.select %q, %c, %l {block = 16 : i64, count = 4 : i64, select_block = 16 : i64, stride = 8 : i64}
      : (tensor<1x1024x8x16xbf16>, tensor<1x127x1x16xbf16>, tensor<1x8x1024xf32>) -> tensor<1x1x1024x4xi32>
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1x1024x4xi32>) -> (tensor<1x1024x8x16xbf16>, tensor<1x8x1024xf32>)
  %dq, %dk, %dv = nsa.selected_attention_backward %o, %q, %k, %k, %o, %lse, %indices {select_block = 16 : i64}
      : (tensor<1x1024x8x16xbf16>, tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x8x16xbf16>, tensor<1x8x1024xf32>, tensor<1x1x1024x4xi32>)
      -> (tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>)
  return %dq, %dk, %dv : tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>
}

// Where heads of another type have other tiles of queries, they have another
// union.
// HOPPER-LABEL: func.func @types(
// HOPPER-SAME: %[[SELECTION:[a-z0-9]+]]: tensor<1x2x4096x16xi32>
// HOPPER-DAG: tile.launch @[[FIRST:selection_union_[a-z0-9_]+]](%[[SELECTION]]) {{.*}} -> (tensor<1x2x256xi32>,
// HOPPER-DAG: tile.launch @[[SECOND:selection_union_[a-z0-9_]+]](%[[SELECTION]]) {{.*}} -> (tensor<1x2x1024xi32>,
func.func @types(%indices: tensor<1x2x4096x16xi32>, %q: tensor<1x4096x8x64xbf16>, %k: tensor<1x4096x2x64xbf16>, %r: tensor<1x4096x8x64xf32>, %l: tensor<1x4096x2x64xf32>)
    -> (tensor<1x4096x8x64xbf16>, tensor<1x4096x8x64xf32>) {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 64 : i64}
      : (tensor<1x4096x8x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x4096x2x64xbf16>, tensor<1x2x4096x16xi32>) -> (tensor<1x4096x8x64xbf16>, tensor<1x8x4096xf32>)
  %p, %lse2 = nsa.selected_attention %r, %l, %l, %indices {select_block = 64 : i64}
      : (tensor<1x4096x8x64xf32>, tensor<1x4096x2x64xf32>, tensor<1x4096x2x64xf32>, tensor<1x2x4096x16xi32>) -> (tensor<1x4096x8x64xf32>, tensor<1x8x4096xf32>)
  return %o, %p : tensor<1x4096x8x64xbf16>, tensor<1x4096x8x64xf32>
}
