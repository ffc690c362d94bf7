// RUN: nsa-opt %s --nsa-choose-tokens=context=256 | FileCheck %s

// What a step chooses are states of the next one; @decode stays.
// CHECK: func.func @decode(%{{.*}}: tensor<2x1xi32> {nn.name = "token", nn.role = "input"}
// CHECK: func.func @next
// CHECK-SAME: tensor<2x1xi32> {nn.init = #nn.init<constant, 0.000000e+00>, nn.name = "next.token", nn.role = "state"}
// CHECK-SAME: %[[AT:[^:]*]]: tensor<2xi32> {{{.*}}nn.name = "next.positions", nn.role = "state"}
// CHECK-SAME: %[[IDS:[^:]*]]: tensor<2x32xi32> {{{.*}}nn.name = "next.ids"
// CHECK-SAME: %[[END:[^:]*]]: tensor<1xi32> {{{.*}}nn.name = "next.end"
// CHECK-SAME: %[[BIAS:[^:]*]]: tensor<8xf32> {{{.*}}nn.name = "next.bias"
// CHECK-SAME: %[[UNIFORMS:[^:]*]]: tensor<2x32x3xi32> {{{.*}}nn.name = "next.uniforms"
// CHECK-SAME: %[[INVERSE:[^:]*]]: tensor<2xf32> {{{.*}}nn.name = "next.inverse"
// CHECK-SAME: %[[TOPK:[^:]*]]: tensor<2xi32> {{{.*}}nn.name = "next.top_k"
// CHECK-SAME: %[[TOPP:[^:]*]]: tensor<2x3xi32> {{{.*}}nn.name = "next.top_p"
// CHECK-SAME: (tensor<2x1xi32> {nn.alias = "next.token"}, tensor<2xi32> {nn.alias = "next.positions"}, tensor<2x32xi32> {nn.alias = "next.ids"})
// CHECK: %[[X:.*]] = nn.embedding
// CHECK: %[[BEST:.*]] = nn.argmax %[[X]], %[[BIAS]]
// CHECK: %[[TOKEN:.*]] = nn.draw %[[X]], %[[BIAS]], %[[BEST]], %[[UNIFORMS]], %[[AT]], %[[INVERSE]], %[[TOPK]], %[[TOPP]]
// CHECK: %[[NEXT:.*]], %[[KEPT:.*]] = nsa.advance %[[TOKEN]], %[[AT]], %[[IDS]], %[[END]] {context = 256 : i64}
// CHECK: return %[[TOKEN]], %[[NEXT]], %[[KEPT]]
func.func @decode(%token: tensor<2x1xi32> {nn.name = "token", nn.role = "input"},
    %table: tensor<8x8xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "table", nn.role = "parameter"},
    %positions: tensor<2xi32> {nn.name = "positions", nn.role = "input"}) -> (tensor<2x1x8xf32> {nn.name = "next_logits"}) {
  %x = nn.embedding %table, %token : (tensor<8x8xf32>, tensor<2x1xi32>) -> tensor<2x1x8xf32>
  return %x : tensor<2x1x8xf32>
}
