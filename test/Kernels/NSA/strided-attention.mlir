// RUN: nsa-opt %s --nsa-differentiate --nsa-convert-to-tile | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s

// A visibility that no pass knows of has kernels, and so has its gradient.
// CHECK: tile.launch @strided_attention_b1s64h4x2d16_b8e3_f32(
// CHECK: tile.launch @strided_attention_backward_dq_b1s64h4x2d16_b8e3_f32(
// CHECK: tile.launch @strided_attention_backward_dkdv_b1s64h4x2d16_b8e3_f32(
func.func @f(%q: tensor<1x64x4x16xf32> {nn.name = "q", nn.differentiate}, %k: tensor<1x64x2x16xf32> {nn.name = "k", nn.differentiate})
    -> (tensor<1x64x4x16xf32> {nn.name = "o", nn.objective}) {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.strided<block = 8, stride = 3>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return %o : tensor<1x64x4x16xf32>
}
