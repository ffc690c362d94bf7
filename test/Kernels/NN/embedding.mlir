// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel private @embedding_t128x32_f32
// CHECK: scf.for %[[T:.*]] =
// CHECK: %[[ID:.*]] = tile.load %{{.*}}[%[[T]]] : memref<128xi32>, (i32) -> i32
// CHECK: %[[ROW:.*]] = tile.load %{{.*}}[%[[ID]], %[[COLS:.*]]] : memref<256x32xf32>
// CHECK: tile.store %[[ROW]], %{{.*}}[%[[T]], %[[COLS]]]
func.func @forward(%table: tensor<256x32xf32>, %ids: tensor<2x64xi32>) -> tensor<2x64x32xf32> {
  %y = nn.embedding %table, %ids : (tensor<256x32xf32>, tensor<2x64xi32>) -> tensor<2x64x32xf32>
  return %y : tensor<2x64x32xf32>
}

// -----

// A program owns a slice of 32 columns: it clears it, then adds the tokens one
// after the other, so that no order depends on threads.
// CHECK-LABEL: tile.kernel private @embedding_backward_t128x96_bf16
// CHECK-SAME: grid = array<i32: 3, 1, 1>
// CHECK: %[[COLS:.*]] = tile.range %{{.*}} : !tile.tile<1x32xi32>
// CHECK: scf.for
// CHECK: tile.store %{{.*}}, %[[TABLE:.*]][%{{.*}}, %[[COLS]]] : !tile.tile<16x32xf32>
// CHECK: scf.for %[[T:.*]] =
// CHECK: %[[ID:.*]] = tile.load %{{.*}}[%[[T]]]
// CHECK-DAG: %[[OLD:.*]] = tile.load %[[TABLE]][%[[ID]], %[[COLS]]]
// CHECK-DAG: %[[DY:.*]] = tile.load %{{.*}}[%[[T]], %[[COLS]]]
// CHECK: %[[NEW:.*]] = tile.map (%[[OLD]], %[[DY]]
// CHECK: tile.store %[[NEW]], %[[TABLE]][%[[ID]], %[[COLS]]]
func.func @backward(%dy: tensor<2x64x96xbf16>, %ids: tensor<2x64xi32>) -> tensor<256x96xf32> {
  %d = nn.embedding_backward %dy, %ids {vocab = 256 : i64} : (tensor<2x64x96xbf16>, tensor<2x64xi32>) -> tensor<256x96xf32>
  return %d : tensor<256x96xf32>
}
