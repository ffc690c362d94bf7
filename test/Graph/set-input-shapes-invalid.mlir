// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-set-input-shapes="micro-batch=3 seq-len=40"
// RUN: not nsa-opt %s --nsa-set-input-shapes="micro-batch=-1" --split-input-file 2>&1 | FileCheck %s
// CHECK: option micro-batch (-1) must be at least 0

// The verifier of the operation that cannot follow says why.
func.func @short_table(
    %x: tensor<1x16x2x4xf32> {nn.dims = ["batch", "seq", "", ""]},
    %table: tensor<16x2x2xf32>) -> tensor<1x16x2x4xf32> {
  // expected-error @+1 {{table length (16) must be above the last position (39)}}
  %0 = nn.rotary %x, %table : (tensor<1x16x2x4xf32>, tensor<16x2x2xf32>) -> tensor<1x16x2x4xf32>
  return %0 : tensor<1x16x2x4xf32>
}

// -----

func.func @no_inference(%x: tensor<1x16xf32> {nn.dims = ["batch", "seq"]}) -> tensor<1x16xbf16> {
  // expected-error @+1 {{does not infer its result types}}
  %0 = arith.truncf %x : tensor<1x16xf32> to tensor<1x16xbf16>
  return %0 : tensor<1x16xbf16>
}

// -----

// expected-error @+1 {{option micro-batch (3) has no effect: no argument has the dimension "batch" in nn.dims}}
module {
  func.func @f(%x: tensor<16xf32> {nn.dims = ["seq"]}) -> tensor<16xf32> {
    return %x : tensor<16xf32>
  }
}
