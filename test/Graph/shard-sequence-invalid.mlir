// RUN: nsa-opt %s --pass-pipeline='builtin.module(func.func(nsa-shard-sequence{ranks=2}))' --split-input-file --verify-diagnostics
// RUN: not nsa-compile %s -o %t --context-parallel=2 2>&1 | FileCheck %s

// CHECK: --context-parallel needs --sample-context or --no-forward: no rank has whole sequences for @forward

// expected-error @below {{sequences of 66 tokens cannot be shared by 2 ranks: their length must be a multiple of 4}}
func.func @eval(%tokens: tensor<1x66xi32> {nn.name = "tokens", nn.role = "input"}) {
  return
}

// -----

func.func @eval(%tokens: tensor<1x64xi32> {nn.name = "tokens", nn.role = "input"}, %w: tensor<8x16xf32>) -> tensor<1x64x2x8xf32> {
  %x = nn.embedding %w, %tokens : (tensor<8x16xf32>, tensor<1x64xi32>) -> tensor<1x64x16xf32>
  %h = nn.split_heads %x {heads = 2 : i64} : (tensor<1x64x16xf32>) -> tensor<1x64x2x8xf32>
  %c = nsa.compress mean %h by(#nsa.compressed<block = 1, stride = 1>) : (tensor<1x64x2x8xf32>) -> tensor<1x64x2x8xf32>
  // expected-error @below {{takes whole sequences and chunks of them}}
  %y = nn.add %h, %c : (tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>) -> tensor<1x64x2x8xf32>
  return %y : tensor<1x64x2x8xf32>
}
