// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel private @rms_norm_t128x32_bf16
// CHECK: %[[WEIGHT:.*]] = tile.load %{{.*}} : memref<32xf32>
// CHECK: scf.for
// CHECK: arith.extf
// CHECK: %[[SQUARES:.*]] = tile.map
// CHECK: %[[SUM:.*]] = tile.reduce add %[[SQUARES]] {axis = 1 : i32} : !tile.tile<1x32xf32> -> !tile.tile<1x1xf32>
// CHECK: %[[RSTD:.*]] = tile.map (%[[SUM]]
// CHECK: math.sqrt
// CHECK: tile.map (%{{.*}}, %[[RSTD]], %[[WEIGHT]]
// CHECK: tile.store %{{.*}} : !tile.tile<1x32xbf16>
// CHECK: tile.store %[[RSTD]], %{{.*}} : !tile.tile<1x1xf32>, memref<128xf32>
func.func @forward(%x: tensor<2x64x32xbf16>, %weight: tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>) {
  %y, %rstd = nn.rms_norm %x, %weight {eps = 1.0e-5 : f64}
      : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
  return %y, %rstd : tensor<2x64x32xbf16>, tensor<2x64xf32>
}

// -----

// Each program writes its part of dweight; a second launch adds the parts in
// order.
// CHECK-LABEL: func.func @backward
// CHECK: %[[PARTS:.*]]:2 = tile.launch @rms_norm_backward_t2048x128_f32({{.*}} -> (tensor<2x1024x128xf32>, tensor<16x128xf32>)
// CHECK: %[[DW:.*]] = tile.launch @rms_norm_backward_sum_t16x128_f32(%[[PARTS]]#1)
// CHECK: return %[[PARTS]]#0, %[[DW]]
// CHECK: tile.kernel private @rms_norm_backward_t2048x128_f32
// CHECK-SAME: grid = array<i32: 16, 1, 1>
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}) -> (!tile.tile<1x128xf32>)
// CHECK: tile.kernel private @rms_norm_backward_sum_t16x128_f32
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK: scf.for
func.func @backward(%dy: tensor<2x1024x128xf32>, %x: tensor<2x1024x128xf32>, %weight: tensor<128xf32>, %rstd: tensor<2x1024xf32>)
    -> (tensor<2x1024x128xf32>, tensor<128xf32>) {
  %dx, %dw = nn.rms_norm_backward %dy, %x, %weight, %rstd
      : (tensor<2x1024x128xf32>, tensor<2x1024x128xf32>, tensor<128xf32>, tensor<2x1024xf32>)
      -> (tensor<2x1024x128xf32>, tensor<128xf32>)
  return %dx, %dw : tensor<2x1024x128xf32>, tensor<128xf32>
}

// -----

// A row may be its own weight: it is read as rows, and as what it is.
// CHECK-LABEL: tile.kernel private @rms_norm_t1x48_f32
// CHECK-SAME: (%[[X:.*]]: memref<48xf32>, %{{.*}}: memref<48xf32>, %{{.*}}: memref<48xf32>, %{{.*}}: memref<f32>)
// CHECK: %[[ROWS:.*]] = tile.view %[[X]] : memref<48xf32> -> memref<1x48xf32>
// CHECK: tile.load %[[X]]
// CHECK: tile.load %[[ROWS]]
func.func @twice(%x: tensor<48xf32>) -> (tensor<48xf32>, tensor<f32>) {
  %y, %rstd = nn.rms_norm %x, %x {eps = 1.0e-5 : f64}
      : (tensor<48xf32>, tensor<48xf32>) -> (tensor<48xf32>, tensor<f32>)
  return %y, %rstd : tensor<48xf32>, tensor<f32>
}
