// RUN: nsa-opt %s --nsa-derive-decode=context=64 --split-input-file | FileCheck %s

// What is computed of parameters alone has an entry of its own; a view of
// parameters that lie one after another is no work, and stays where it is.
// CHECK-LABEL: func.func @prepare
// CHECK: %[[FLAT:.*]] = nn.flatten
// CHECK: %[[CAST:.*]] = nn.cast %[[FLAT]] to bf16
// CHECK: return %[[CAST]] : tensor<16x16xbf16>
// CHECK-LABEL: func.func @decode
// CHECK: %[[WEIGHT:[^:]*]]: tensor<16x16xbf16> {{.*}}nn.name = "prepared.0"
// CHECK: %[[VIEW:.*]] = nn.flatten
// CHECK: nn.matmul %{{.*}}, %[[VIEW]]
// CHECK: nn.matmul %{{.*}}, %[[WEIGHT]]
func.func @model(%tokens: tensor<1x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %table: tensor<16x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "table", nn.role = "parameter"},
    %a: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "a", nn.role = "parameter"},
    %b: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "b", nn.role = "parameter"},
    %c: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "c", nn.role = "parameter"},
    %d: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "d", nn.role = "parameter"})
    -> (tensor<1x32x16xbf16> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %table, %tokens : (tensor<16x16xf32>, tensor<1x32xi32>) -> tensor<1x32x16xf32>
  %cd = nn.flatten %c, %d in ["c", "d"] : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %y = nn.matmul %x, %cd {transpose_rhs} : (tensor<1x32x16xf32>, tensor<16x16xf32>) -> tensor<1x32x16xf32>
  %ab = nn.flatten %a, %b in ["a", "b"] : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %w = nn.cast %ab to bf16 : (tensor<16x16xf32>) -> tensor<16x16xbf16>
  %h = nn.cast %y to bf16 : (tensor<1x32x16xf32>) -> tensor<1x32x16xbf16>
  %logits = nn.matmul %h, %w {transpose_rhs} : (tensor<1x32x16xbf16>, tensor<16x16xbf16>) -> tensor<1x32x16xbf16>
  return %logits : tensor<1x32x16xbf16>
}
