// RUN: nsa-opt %s --verify-roundtrip

func.func @fused(%a: tensor<2x64x32xf32>, %b: tensor<2x64x32xf32>, %w: tensor<32xf32>) {
  %sum, %y = nn.fused %a, %b, %w
      : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>) {
  ^bb0(%x: tensor<2x64x32xf32>, %r: tensor<2x64x32xf32>, %weight: tensor<32xf32>):
    %0 = nn.add %x, %r : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
    %1, %rstd = nn.rms_norm %0, %weight {eps = 1.0e-5 : f64}
        : (tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64xf32>)
    nn.yield %0, %1 : tensor<2x64x32xf32>, tensor<2x64x32xf32>
  }
  return
}

func.func @row_sums(%x: tensor<2x64x32xf32>, %w: tensor<32xf32>, %rstd: tensor<2x64xf32>, %g: tensor<32xf32>) {
  %dx, %p = nn.rms_norm_backward %x, %x, %w, %rstd {partial_sums = 3 : i64}
      : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<32xf32>, tensor<2x64xf32>)
      -> (tensor<2x64x32xf32>, tensor<3x32xf32>)
  %g0, %g1 = nn.accumulate_rows %g, %g, %p, %p
      : (tensor<32xf32>, tensor<32xf32>, tensor<3x32xf32>, tensor<3x32xf32>) -> (tensor<32xf32>, tensor<32xf32>)
  return
}

func.func @chunks(%x: tensor<2x64x16xf32>, %w: tensor<16x256xf32>, %t: tensor<2x64xi32>, %dloss: tensor<f32>) {
  %a, %b = nn.split_rows %x : (tensor<2x64x16xf32>) -> (tensor<32x16xf32>, tensor<96x16xf32>)
  %y = nn.concat_rows %a, %b : (tensor<32x16xf32>, tensor<96x16xf32>) -> tensor<2x64x16xf32>
  %logits = nn.matmul %a, %w : (tensor<32x16xf32>, tensor<16x256xf32>) -> tensor<32x256xf32>
  %count = nn.count_targets %t : (tensor<2x64xi32>) -> tensor<f32>
  %fraction = nn.count_targets %t {over_all} : (tensor<2x64xi32>) -> tensor<f32>
  %losses, %dlogits = nn.cross_entropy_chunk %logits, %t, %count, %dloss {first = 64 : i64}
      : (tensor<32x256xf32>, tensor<2x64xi32>, tensor<f32>, tensor<f32>) -> (tensor<32xf32>, tensor<32x256xf32>)
  %only = nn.cross_entropy_chunk %logits, %t, %count {first = 0 : i64}
      : (tensor<32x256xf32>, tensor<2x64xi32>, tensor<f32>) -> tensor<32xf32>
  %loss = nn.mean_loss %count, %losses, %only : (tensor<f32>, tensor<32xf32>, tensor<32xf32>) -> tensor<f32>
  return
}

func.func @cast_all(%a: tensor<4x8xf32>, %b: tensor<5xf32>) {
  %c, %d = nn.cast_all %a, %b to bf16 : (tensor<4x8xf32>, tensor<5xf32>) -> (tensor<4x8xbf16>, tensor<5xbf16>)
  return
}
