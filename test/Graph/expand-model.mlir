// RUN: nsa-opt --nsa-expand-model --split-input-file %s | FileCheck %s
// RUN: nsa-opt --verify-roundtrip --split-input-file %s -o /dev/null

// Three kinds of layers, of which two share functions. Parameters
// become arguments in the order in which they are read.

// CHECK: module attributes {nn.config = {model = {dim = 8 : i64, rope_base = 1.000000e+04 : f64}}, nn.precision = "bf16"}
// CHECK-NOT: nn.module
// CHECK: func.func @model(%arg0: tensor<2x16xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: tensor<32x8xf32> {nn.decay, nn.init = #nn.init<normal, 2.000000e-02>, nn.name = "embedding.weight", nn.role = "parameter"},
// CHECK-SAME: %[[N0:[a-z0-9]+]]: tensor<8xf32> {nn.init = #nn.init<constant, 1.000000e+00>, nn.name = "layers.0.attention.norm.weight", nn.role = "parameter"},
// CHECK-SAME: %[[Q0:[a-z0-9]+]]: tensor<8x8xf32> {{.*}}nn.name = "layers.0.attention.query.weight"
// CHECK-SAME: %[[R:[a-z0-9]+]]: tensor<16x2x2xf32> {nn.dims = ["seq", "", ""], nn.init = #nn.init<rotary, 1.000000e+04>, nn.name = "rotary", nn.role = "constant"},
// CHECK-SAME: %[[U0:[a-z0-9]+]]: {{.*}}nn.name = "layers.0.mlp.up.weight"
// CHECK-SAME: %[[G1:[a-z0-9]+]]: tensor<4xf32> {{.*}}nn.name = "layers.1.attention.gate.bias"
// CHECK-SAME: %[[G2:[a-z0-9]+]]: tensor<4xf32> {{.*}}nn.name = "layers.2.attention.gate.bias"
// CHECK-SAME: nn.name = "layers.3.attention.norm.weight"
// CHECK-SAME: nn.name = "layers.3.mlp.up.weight"
// CHECK-SAME: -> (tensor<2x16x8xf32> {nn.name = "y"}, tensor<4xf32> {nn.name = "layers.1.gates", nn.statistic}, tensor<4xf32> {nn.name = "layers.2.gates", nn.statistic}) attributes {nn.train}
// CHECK: %[[X:.*]] = nn.embedding %[[TABLE]], %arg0
// CHECK: %[[H:.*]], %{{.*}} = nn.rms_norm %[[X]], %[[N0]] {eps = 1.000000e-05 : f64}
// CHECK: %[[P:.*]] = nn.matmul %[[H]], %[[Q0]] {transpose_rhs}
// CHECK: %[[S:.*]] = nn.split_heads %[[P]] {heads = 2 : i64}
// CHECK: nn.rotary %[[S]], %[[R]]
// CHECK: nn.matmul %{{.*}}, %[[U0]] {transpose_rhs}
// CHECK: nn.add %{{.*}}, %[[G1]]
// CHECK: nn.add %{{.*}}, %[[G2]]
// CHECK: nn.rms_norm
// CHECK: nn.rotary
// CHECK-NOT: nn.rotary
// CHECK: return
!x = tensor<2x16x8xf32>
!q = tensor<2x16x2x4xf32>
nn.module @m precision bf16 config {model = {dim = 8, rope_base = 10000.0}} {
  nn.parameter @embedding.weight : tensor<32x8xf32> = normal 0.02 decay
  nn.parameter @rotary : tensor<16x2x2xf32> [seq, _, _] = rotary 10000.0 frozen
  nn.scope @dense[0, 3] named "layers" {
    nn.parameter @attention.norm.weight : tensor<8xf32> = constant 1.0
    nn.parameter @attention.query.weight : tensor<8x8xf32> = normal 2.0e-2 decay
  }
  nn.scope @gated[1 to 3] named "layers" {
    nn.parameter @attention.gate.bias : tensor<4xf32> = constant -0.5
  }
  nn.scope @shared[0, 3] named "layers" {
    nn.parameter @mlp.up.weight : tensor<8x8xf32> = normal 0.02 decay
  }
  nn.func @attention(%x: !x) -> !x {
    %h = nn.norm %x, @dense::@attention.norm.weight eps 1.0e-5 : !x
    %q = nn.linear %h, @dense::@attention.query.weight heads 2 : !x -> !q
    %r = nn.rope %q, @rotary : !q
    %m = nn.merge_heads %r : (!q) -> !x
    nn.return %m : !x
  }
  nn.func @mlp(%x: !x) -> !x {
    %h = nn.linear %x, @shared::@mlp.up.weight : !x -> !x
    nn.return %h : !x
  }
  nn.func train @model(%tokens: tensor<2x16xi32> [batch, seq]) -> (y: !x) {
    %x = nn.embed %tokens, @embedding.weight : tensor<2x16xi32> -> !x
    %first = nn.repeat @dense, @shared at 0 (%h = %x : !x) {
      %a = nn.call @attention(%h) : (!x) -> !x
      %b = nn.call @mlp(%a) : (!x) -> !x
      nn.next %b : !x
    }
    %middle = nn.repeat @gated (%h = %first : !x) {
      %g = nn.get @gated::@attention.gate.bias : tensor<4xf32>
      %s = nn.add %g, %g : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      nn.log "gates", %s : tensor<4xf32>
      nn.next %h : !x
    }
    %last = nn.repeat @dense, @shared at 3 (%h = %middle : !x) {
      %a = nn.call @attention(%h) : (!x) -> !x
      %b = nn.call @mlp(%a) : (!x) -> !x
      nn.next %b : !x
    }
    nn.return %last : !x
  }
}

// -----

// A module without a model stays as it is.

// CHECK-LABEL: func.func @operator
// CHECK-NEXT: nn.silu
func.func @operator(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
