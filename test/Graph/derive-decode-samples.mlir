// RUN: nsa-opt %s '--nsa-derive-decode=context=256 samples' '--nsa-build-entries=forward=0' | FileCheck %s

// Samples of a model in training are one sequence, and their table of angles is
// longer. Parameters are those of training; there is no entry forward.
// CHECK-NOT: @forward
// CHECK-NOT: @prefill
// CHECK-LABEL: func.func @decode
// CHECK-SAME: tensor<1x1xi32> {nn.name = "token", nn.role = "input"}
// CHECK-SAME: tensor<8x16xf32> {{{.*}}nn.name = "embedding", nn.role = "parameter"}
// CHECK-SAME: tensor<256x8x2xf32> {{{.*}}nn.name = "rotary.context", nn.role = "constant"}
// CHECK-SAME: tensor<1xi32> {nn.name = "positions"
// CHECK-SAME: tensor<1x256x1x16xf32> {{{.*}}nn.name = "cache.0", nn.role = "state"}
// CHECK-SAME: (tensor<1x1x8xf32> {nn.name = "next_logits"}, tensor<1x256x1x16xf32> {nn.alias = "cache.0"}
// CHECK: nsa.decode_attention {{.*}} (tensor<1x1x1x16xf32>
// CHECK-LABEL: func.func @eval
// CHECK-SAME: tensor<2x32xi32> {{{.*}}nn.name = "tokens"
// CHECK-SAME: tensor<32x8x2xf32> {{{.*}}nn.name = "rotary", nn.role = "constant"}
// CHECK-LABEL: func.func @accumulate
// CHECK-NOT: cache.
// CHECK-NOT: nn.train
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %targets: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "targets", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"},
    %table: tensor<32x8x2xf32> {nn.dims = ["seq", "", ""], nn.init = #nn.init<rotary, 10000.0>, nn.name = "rotary", nn.role = "constant"})
    -> (tensor<2x32x8xf32> {nn.name = "logits"}, tensor<f32> {nn.name = "loss"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  %r = nn.rotary %q, %table : (tensor<2x32x1x16xf32>, tensor<32x8x2xf32>) -> tensor<2x32x1x16xf32>
  %o, %l = nsa.attention %r, %r, %r visible(#nsa.causal) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %o : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  %logits = nn.matmul %y, %embedding {transpose_rhs} : (tensor<2x32x16xf32>, tensor<8x16xf32>) -> tensor<2x32x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets : (tensor<2x32x8xf32>, tensor<2x32xi32>) -> (tensor<f32>, tensor<2x32xf32>, tensor<f32>)
  return %logits, %loss : tensor<2x32x8xf32>, tensor<f32>
}
