// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// One pass over the rows: the sum is rounded before the norm reads it, and all
// loads come before all stores. The other norm of the same types shares the
// kernel.
// CHECK-LABEL: func.func @residual
// CHECK: tile.launch @fused_add_rms_norm_t128x32_bf16(%arg0, %arg1, %arg2)
// CHECK: tile.launch @fused_add_rms_norm_t128x32_bf16(%arg1, %arg0, %arg2)
// CHECK: tile.kernel private @fused_add_rms_norm_t128x32_bf16
// CHECK: scf.for
// CHECK: tile.load
// CHECK: tile.load
// CHECK: %[[SUM:.*]] = tile.map {{.*}} -> !tile.tile<1x32xbf16>
// CHECK: arith.addf
// CHECK: arith.truncf
// CHECK: tile.map (%[[SUM]]
// CHECK: tile.reduce add
// CHECK: tile.map
// CHECK: tile.store %[[SUM]]
// CHECK: tile.store
// CHECK-NOT: tile.store
// CHECK-NOT: tile.kernel
func.func @residual(%x: tensor<2x64x32xbf16>, %r: tensor<2x64x32xbf16>, %w: tensor<32xf32>)
    -> (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<2x64x32xbf16>) {
  %s, %y = nn.fused %x, %r, %w : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>) {
  ^bb0(%a: tensor<2x64x32xbf16>, %b: tensor<2x64x32xbf16>, %c: tensor<32xf32>):
    %0 = nn.add %a, %b : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>) -> tensor<2x64x32xbf16>
    %1, %2 = nn.rms_norm %0, %c {eps = 1.0e-5 : f64} : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
    nn.yield %0, %1 : tensor<2x64x32xbf16>, tensor<2x64x32xbf16>
  }
  %t, %z = nn.fused %r, %x, %w : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>) {
  ^bb0(%a: tensor<2x64x32xbf16>, %b: tensor<2x64x32xbf16>, %c: tensor<32xf32>):
    %0 = nn.add %a, %b : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>) -> tensor<2x64x32xbf16>
    %1, %2 = nn.rms_norm %0, %c {eps = 1.0e-5 : f64} : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
    nn.yield %0, %1 : tensor<2x64x32xbf16>, tensor<2x64x32xbf16>
  }
  return %s, %y, %z : tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<2x64x32xbf16>
}

// -----

// Kernels of one shape and name that compute something else are apart.
// CHECK-LABEL: func.func @apart
// CHECK: tile.launch @fused_add_add_n64_f32(
// CHECK: tile.launch @fused_add_add_n64_f32_0(
func.func @apart(%x: tensor<64xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %s = nn.fused %x, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64xf32>, %b: tensor<64xf32>):
    %0 = nn.add %a, %b : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %1 = nn.add %0, %b : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    nn.yield %1 : tensor<64xf32>
  }
  %t = nn.fused %x, %y : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64xf32>, %b: tensor<64xf32>):
    %0 = nn.add %a, %b : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %1 = nn.add %0, %a : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    nn.yield %1 : tensor<64xf32>
  }
  return %s, %t : tensor<64xf32>, tensor<64xf32>
}

// -----

// A norm's gradient, the gradient of the residual, and the partial sums, which
// leave without a second launch.
// CHECK-LABEL: func.func @gradient
// CHECK-NEXT: %[[L:.*]]:2 = tile.launch @fused_rms_norm_backward_add_t2048x128_f32
// CHECK-NEXT: return
// CHECK: tile.kernel private @fused_rms_norm_backward_add_t2048x128_f32
// CHECK-SAME: grid = array<i32: 16, 1, 1>
func.func @gradient(%dy: tensor<2048x128xf32>, %x: tensor<2048x128xf32>, %w: tensor<128xf32>, %rstd: tensor<2048xf32>)
    -> (tensor<2048x128xf32>, tensor<16x128xf32>) {
  %dx, %p = nn.fused %dy, %x, %w, %rstd : (tensor<2048x128xf32>, tensor<2048x128xf32>, tensor<128xf32>, tensor<2048xf32>) -> (tensor<2048x128xf32>, tensor<16x128xf32>) {
  ^bb0(%a: tensor<2048x128xf32>, %b: tensor<2048x128xf32>, %c: tensor<128xf32>, %d: tensor<2048xf32>):
    %0, %1 = nn.rms_norm_backward %a, %b, %c, %d {partial_sums = 16 : i64}
        : (tensor<2048x128xf32>, tensor<2048x128xf32>, tensor<128xf32>, tensor<2048xf32>) -> (tensor<2048x128xf32>, tensor<16x128xf32>)
    %2 = nn.add %a, %0 : (tensor<2048x128xf32>, tensor<2048x128xf32>) -> tensor<2048x128xf32>
    nn.yield %2, %1 : tensor<2048x128xf32>, tensor<16x128xf32>
  }
  return %dx, %p : tensor<2048x128xf32>, tensor<16x128xf32>
}

// -----

// Elements before a rotation are computed where each half is read.
// CHECK-LABEL: tile.kernel private @fused_add_rotary_inverse_b1s8h2d16_f32
// CHECK-COUNT-2: arith.addf
func.func @rotary(%a: tensor<1x8x2x16xf32>, %b: tensor<1x8x2x16xf32>, %table: tensor<8x8x2xf32>) -> tensor<1x8x2x16xf32> {
  %y = nn.fused %a, %b, %table : (tensor<1x8x2x16xf32>, tensor<1x8x2x16xf32>, tensor<8x8x2xf32>) -> tensor<1x8x2x16xf32> {
  ^bb0(%c: tensor<1x8x2x16xf32>, %d: tensor<1x8x2x16xf32>, %t: tensor<8x8x2xf32>):
    %0 = nn.add %c, %d : (tensor<1x8x2x16xf32>, tensor<1x8x2x16xf32>) -> tensor<1x8x2x16xf32>
    %1 = nn.rotary %0, %t {inverse} : (tensor<1x8x2x16xf32>, tensor<8x8x2xf32>) -> tensor<1x8x2x16xf32>
    nn.yield %1 : tensor<1x8x2x16xf32>
  }
  return %y : tensor<1x8x2x16xf32>
}

// -----

// Each program adds the rows of a tile of columns of one tensor.
// CHECK-LABEL: tile.kernel private @accumulate_rows_n2_f32
// CHECK-SAME: grid = array<i32: 4, 1, 1>
// CHECK-COUNT-2: scf.if
func.func @row_sums(%g: tensor<768xf32>, %p: tensor<3x768xf32>, %h: tensor<12xf32>, %q: tensor<2x12xf32>)
    -> (tensor<768xf32>, tensor<12xf32>) {
  %g1, %h1 = nn.accumulate_rows %g, %h, %p, %q
      : (tensor<768xf32>, tensor<12xf32>, tensor<3x768xf32>, tensor<2x12xf32>) -> (tensor<768xf32>, tensor<12xf32>)
  return %g1, %h1 : tensor<768xf32>, tensor<12xf32>
}

// -----

// More elements than a coordinate counts are seen as rows.
// CHECK-LABEL: tile.kernel private @silu_n4294967296_f32
// CHECK: tile.view %{{.*}} : memref<2x2147483648xf32> -> memref<4x1073741824xf32>
func.func @large(%x: tensor<2x2147483648xf32>) -> tensor<2x2147483648xf32> {
  %y = nn.silu %x : (tensor<2x2147483648xf32>) -> tensor<2x2147483648xf32>
  return %y : tensor<2x2147483648xf32>
}

// -----

// Programs 0 and 1 cast the first tensor, program 2 the second.
// CHECK-LABEL: tile.kernel private @cast_all_n20488_bf16
// CHECK-SAME: grid = array<i32: 3, 1, 1>
// CHECK: scf.if
// CHECK: arith.truncf
// CHECK: scf.if
// CHECK: arith.subi %{{.*}}, %c2_i32
// CHECK: arith.truncf
func.func @cast_all(%a: tensor<20480xf32>, %b: tensor<8xf32>) -> (tensor<20480xbf16>, tensor<8xbf16>) {
  %c, %d = nn.cast_all %a, %b to bf16 : (tensor<20480xf32>, tensor<8xf32>) -> (tensor<20480xbf16>, tensor<8xbf16>)
  return %c, %d : tensor<20480xbf16>, tensor<8xbf16>
}

// -----

// A flat group of more parameters than a coordinate counts.
// CHECK-LABEL: tile.kernel private @adamw_n6442450944_f32
// CHECK-COUNT-7: tile.view %{{.*}} : memref<6442450944xf32> -> memref<4x1610612736xf32>
func.func @adamw(%w: tensor<6442450944xf32>, %norm: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<6442450944xf32>) {
  %w1, %m1, %v1 = nn.adamw %w, %w, %w, %w, %norm, %norm, %hyper
      : (tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<6442450944xf32>)
  return %w1, %m1, %v1 : tensor<6442450944xf32>, tensor<6442450944xf32>, tensor<6442450944xf32>
}
