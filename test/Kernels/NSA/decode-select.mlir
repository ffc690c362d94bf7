// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-launch-decode-steps --nsa-convert-to-tile | FileCheck %s

// Where there are fewer blocks than a list has places, -1 is written to those
// that are left.
// CHECK-LABEL: tile.kernel private @decode_select_best_
// CHECK: scf.if
// CHECK: tile.store
// CHECK: scf.if
// CHECK: %[[NONE:.+]] = tile.splat {{.+}} : {{.+}}<4x1xi32>
// CHECK: tile.store %[[NONE]]
func.func @few(%q: tensor<1x1x2x16xf32>, %k: tensor<1x3x1x16xf32>, %lse: tensor<1x2x1xf32>, %t: tensor<1xi32>) -> tensor<1x1x1x4xi32> {
  %i = nsa.decode_select %q, %k, %lse at %t {compressed = #nsa.compressed<block = 16, stride = 8>, selected = #nsa.selected<block = 16, count = 4>, context = 32 : i64}
      : (tensor<1x1x2x16xf32>, tensor<1x3x1x16xf32>, tensor<1x2x1xf32>, tensor<1xi32>) -> tensor<1x1x1x4xi32>
  return %i : tensor<1x1x1x4xi32>
}
