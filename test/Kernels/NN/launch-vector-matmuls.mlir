// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-launch-vector-matmuls | FileCheck %s
// RUN: nsa-opt %s --nsa-launch-vector-matmuls | FileCheck %s --check-prefix=CPU

// A kernel reads the matrix, and computes the row before and after it; functions
// that do not generate keep their matmuls.
// CHECK-LABEL: func.func @decode(
// CHECK-NEXT: tile.launch @matmul_rms_norm_silu_m1n256k512_bf16(
// CHECK-NEXT: return
// CHECK-LABEL: func.func @other(
// CHECK: nn.matmul
// CPU-NOT: tile.launch
!w = tensor<256x512xbf16>
!x = tensor<1x1x512xbf16>
func.func @decode(%x: !x, %n: tensor<512xf32>, %w: !w) -> tensor<1x1x256xbf16> {
  %y, %r = nn.rms_norm %x, %n {eps = 1.000000e-05 : f64} : (!x, tensor<512xf32>) -> (!x, tensor<1x1xf32>)
  %z = nn.matmul %y, %w {transpose_rhs} : (!x, !w) -> tensor<1x1x256xbf16>
  %s = nn.silu %z : (tensor<1x1x256xbf16>) -> tensor<1x1x256xbf16>
  return %s : tensor<1x1x256xbf16>
}
func.func @other(%x: !x, %w: !w) -> tensor<1x1x256xbf16> {
  %z = nn.matmul %x, %w {transpose_rhs} : (!x, !w) -> tensor<1x1x256xbf16>
  return %z : tensor<1x1x256xbf16>
}
