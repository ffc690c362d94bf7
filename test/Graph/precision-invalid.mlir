// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-precision=precision=bf16
// RUN: not nsa-opt %s --nsa-precision=precision=fp8 2>&1 | FileCheck %s
// CHECK: fp8

// expected-error @+1 {{option precision (bf16) has no effect: no function is marked nn.train}}
module {
  func.func @plain(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @+1 {{function `other` ends with llvm.return, expected func.return}}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.train} {
  llvm.return
}

// -----

// expected-error @+1 {{function `blocks` has 2 blocks, expected 1}}
func.func @blocks(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.train} {
  cf.br ^next
^next:
  return %x : tensor<4xf32>
}
