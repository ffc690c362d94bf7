// RUN: nsa-opt %s --nsa-convert-to-tile | FileCheck %s
// RUN: not nsa-opt %s --nsa-convert-to-tile="schedule=cuda selected-form=masks" 2>&1 | FileCheck %s --check-prefix=MASKS

// MASKS: error: 'nsa.attention' op has no kernel for packed sequences with masks of selected blocks

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
