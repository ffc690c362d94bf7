// RUN: nsa-opt %s --nsa-differentiate --split-input-file --verify-diagnostics | FileCheck %s

// The gradient of a matmul is two matmuls, whatever is transposed.
// CHECK-LABEL: func @matmul(
// CHECK-SAME: %[[L:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[R:[^:]*]]: tensor<4x5xf32>{{.*}}, %[[DY:[^:]*]]: tensor<2x3x5xf32>
// CHECK: nn.matmul %[[DY]], %[[R]] {result_type = f32, transpose_rhs} : {{.*}} -> tensor<2x3x4xf32>
// CHECK: nn.matmul %[[L]], %[[DY]] {result_type = f32, transpose_lhs} : {{.*}} -> tensor<4x5xf32>
func.func @matmul(%l: tensor<2x3x4xf32> {nn.differentiate}, %r: tensor<4x5xf32> {nn.differentiate})
    -> (tensor<2x3x5xf32> {nn.objective}) {
  %y = nn.matmul %l, %r : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  return %y : tensor<2x3x5xf32>
}

// -----

// CHECK-LABEL: func @matmul_transpose_rhs(
// CHECK-SAME: %[[L:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[R:[^:]*]]: tensor<5x4xf32>{{.*}}, %[[DY:[^:]*]]: tensor<2x3x5xf32>
// CHECK: nn.matmul %[[DY]], %[[R]] {result_type = f32} : {{.*}} -> tensor<2x3x4xf32>
// CHECK: nn.matmul %[[DY]], %[[L]] {result_type = f32, transpose_lhs} : {{.*}} -> tensor<5x4xf32>
func.func @matmul_transpose_rhs(%l: tensor<2x3x4xf32> {nn.differentiate}, %r: tensor<5x4xf32> {nn.differentiate})
    -> (tensor<2x3x5xf32> {nn.objective}) {
  %y = nn.matmul %l, %r {transpose_rhs} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  return %y : tensor<2x3x5xf32>
}

// -----

// CHECK-LABEL: func @matmul_transpose_lhs(
// CHECK-SAME: %[[L:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[R:[^:]*]]: tensor<2x3x5xf32>{{.*}}, %[[DY:[^:]*]]: tensor<4x5xf32>
// CHECK: nn.matmul %[[R]], %[[DY]] {result_type = f32, transpose_rhs} : {{.*}} -> tensor<2x3x4xf32>
// CHECK: nn.matmul %[[L]], %[[DY]] {result_type = f32} : {{.*}} -> tensor<2x3x5xf32>
func.func @matmul_transpose_lhs(%l: tensor<2x3x4xf32> {nn.differentiate}, %r: tensor<2x3x5xf32> {nn.differentiate})
    -> (tensor<4x5xf32> {nn.objective}) {
  %y = nn.matmul %l, %r {transpose_lhs} : (tensor<2x3x4xf32>, tensor<2x3x5xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}

// -----

// CHECK-LABEL: func @matmul_transpose_both(
// CHECK-SAME: %[[L:[^:]*]]: tensor<3x4xf32>{{.*}}, %[[R:[^:]*]]: tensor<5x3xf32>{{.*}}, %[[DY:[^:]*]]: tensor<4x5xf32>
// CHECK: nn.matmul %[[R]], %[[DY]] {result_type = f32, transpose_lhs, transpose_rhs} : {{.*}} -> tensor<3x4xf32>
// CHECK: nn.matmul %[[DY]], %[[L]] {result_type = f32, transpose_lhs, transpose_rhs} : {{.*}} -> tensor<5x3xf32>
func.func @matmul_transpose_both(%l: tensor<3x4xf32> {nn.differentiate}, %r: tensor<5x3xf32> {nn.differentiate})
    -> (tensor<4x5xf32> {nn.objective}) {
  %y = nn.matmul %l, %r {transpose_lhs, transpose_rhs} : (tensor<3x4xf32>, tensor<5x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}

// -----

func.func @matmul_rank(%l: tensor<2x8xf32>, %r: tensor<2x4x5xf32> {nn.differentiate}) -> (tensor<2x5xf32> {nn.objective}) {
  // expected-error @below {{has an operand of shape 2x4x5 whose gradient has the shape 8x5}}
  %y = nn.matmul %l, %r : (tensor<2x8xf32>, tensor<2x4x5xf32>) -> tensor<2x5xf32>
  return %y : tensor<2x5xf32>
}

// -----

// Statistics are results for the backward graph only.
func.func @statistics(%x: tensor<2x4xf32> {nn.differentiate}, %w: tensor<4xf32>) -> (tensor<2xf32> {nn.objective}) {
  // expected-error @below {{has no gradient with respect to result 1}}
  %y, %rstd = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>)
  return %rstd : tensor<2xf32>
}

// -----

// CHECK-LABEL: func @chain(
// CHECK-SAME: %[[TABLE:[^:]*]]: tensor<16x12xf32>
// CHECK: %[[X:.*]] = nn.embedding
// CHECK: %[[N:.*]], %[[RSTD:.*]] = nn.rms_norm
// CHECK: nn.split_heads
// CHECK: nn.rotary {{.*}} {stride = 2 : i64}
// CHECK: %[[G:.*]] = nn.merge_heads
// CHECK: %[[U:.*]] = nn.silu %[[G]]
// CHECK: %[[Y:.*]] = nn.swiglu %[[G]], %[[U]]
// CHECK: nn.cross_entropy
// CHECK: %[[DY:.*]] = nn.cross_entropy_backward
// CHECK: %[[DG0:.*]], %[[DU:.*]] = nn.swiglu_backward %[[DY]], %[[G]], %[[U]]
// CHECK: %[[DG1:.*]] = nn.silu_backward %[[DU]], %[[G]]
// CHECK: %[[DG:.*]] = nn.add %[[DG0]], %[[DG1]]
// CHECK: %[[DH:.*]] = nn.split_heads %[[DG]] {heads = 3 : i64}
// CHECK: %[[DR:.*]] = nn.rotary %[[DH]], %{{.*}} {inverse, stride = 2 : i64}
// CHECK: %[[DN:.*]] = nn.merge_heads %[[DR]]
// CHECK: %[[DX:.*]], %[[DW:.*]] = nn.rms_norm_backward %[[DN]], %[[X]], %{{.*}}, %[[RSTD]]
// CHECK: %[[DT:.*]] = nn.embedding_backward %[[DX]], %{{.*}} {vocab = 16 : i64}
// CHECK: return %{{.*}}, %[[DT]], %[[DW]]
func.func @chain(%table: tensor<16x12xf32> {nn.differentiate}, %ids: tensor<1x4xi32>, %w: tensor<12xf32> {nn.differentiate},
                 %angles: tensor<8x2x2xf32>) -> (tensor<f32> {nn.objective}) {
  %x = nn.embedding %table, %ids : (tensor<16x12xf32>, tensor<1x4xi32>) -> tensor<1x4x12xf32>
  %n, %rstd = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : (tensor<1x4x12xf32>, tensor<12xf32>) -> (tensor<1x4x12xf32>, tensor<1x4xf32>)
  %h = nn.split_heads %n {heads = 3 : i64} : (tensor<1x4x12xf32>) -> tensor<1x4x3x4xf32>
  %r = nn.rotary %h, %angles {stride = 2 : i64} : (tensor<1x4x3x4xf32>, tensor<8x2x2xf32>) -> tensor<1x4x3x4xf32>
  %g = nn.merge_heads %r : (tensor<1x4x3x4xf32>) -> tensor<1x4x12xf32>
  %u = nn.silu %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %y = nn.swiglu %g, %u : (tensor<1x4x12xf32>, tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %loss, %lse, %count = nn.cross_entropy %y, %ids : (tensor<1x4x12xf32>, tensor<1x4xi32>) -> (tensor<f32>, tensor<1x4xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// -----

// A bias is added to rows: its gradient is their sum. What a norm adds to its weight, its gradient adds, too.
// CHECK-LABEL: func @bias(
// CHECK: nn.add_bias
// CHECK: %[[Y:.*]] = nn.scale
// CHECK: %[[DS:.*]] = nn.scale %{{.*}} {factor = 2.{{0*}}e+00 : f64}
// CHECK: %[[DX:.*]], %{{.*}} = nn.rms_norm_backward %[[DS]], {{.*}} {plus_one}
// CHECK: %[[DB:.*]] = nn.sum_rows %[[DX]]
// CHECK: return %{{.*}}, %[[DX]], %[[DB]]
func.func @bias(%x: tensor<2x4xf32> {nn.differentiate}, %b: tensor<4xf32> {nn.differentiate}, %w: tensor<4xf32>)
    -> (tensor<2x4xf32> {nn.objective}) {
  %y = nn.add_bias %x, %b : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %n, %rstd = nn.rms_norm %y, %w {eps = 1.0e-5 : f64, plus_one} : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>)
  %z = nn.scale %n {factor = 2.0 : f64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %z : tensor<2x4xf32>
}

// -----

// Softcap's gradient needs its result alone, the others their operand.
// CHECK-LABEL: func @activations(
// CHECK: %[[G:.*]] = nn.gelu %[[X:.*]] :
// CHECK: %[[R:.*]] = nn.squared_relu %[[G]]
// CHECK: %[[Y:.*]] = nn.softcap %[[R]] {cap = 4.{{0*}}e+00 : f64}
// CHECK: %[[DR:.*]] = nn.softcap_backward %{{.*}}, %[[Y]] {cap = 4.{{0*}}e+00 : f64}
// CHECK: %[[DG:.*]] = nn.squared_relu_backward %[[DR]], %[[G]]
// CHECK: nn.gelu_backward %[[DG]], %[[X]]
func.func @activations(%x: tensor<2x4xf32> {nn.differentiate}) -> (tensor<2x4xf32> {nn.objective}) {
  %g = nn.gelu %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %r = nn.squared_relu %g : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = nn.softcap %r {cap = 4.0 : f64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// -----

// The gates' logits get a gradient of their own type, the bias one in fp32.
// CHECK-LABEL: func @gate(
// CHECK: %[[G:.*]] = nn.gate softmax
// CHECK: nn.gate_backward softmax %{{.*}}, %[[G]] {logits_type = bf16} : {{.*}} -> (tensor<1x4x6xbf16>, tensor<6xf32>)
func.func @gate(%logits: tensor<1x4x6xbf16> {nn.differentiate}, %bias: tensor<6xf32> {nn.differentiate})
    -> (tensor<1x4x2x3xf32> {nn.objective}) {
  %g = nn.gate softmax %logits, %bias : (tensor<1x4x6xbf16>, tensor<6xf32>) -> tensor<1x4x2x3xf32>
  return %g : tensor<1x4x2x3xf32>
}

// -----

// CHECK-LABEL: func @gate_of_two(
// CHECK: %[[G:.*]] = nn.gate softmax %{{.*}} {branches = 2 : i64}
// CHECK: nn.gate_backward softmax %{{.*}}, %[[G]] {logits_type = f32} : {{.*}} -> (tensor<1x4x6xf32>, tensor<6xf32>)
func.func @gate_of_two(%logits: tensor<1x4x6xf32> {nn.differentiate}) -> (tensor<1x4x3x2xf32> {nn.objective}) {
  %g = nn.gate softmax %logits {branches = 2 : i64} : (tensor<1x4x6xf32>) -> tensor<1x4x3x2xf32>
  return %g : tensor<1x4x3x2xf32>
}

// -----

// The gradient of an unused part is zero.
// CHECK-LABEL: func @split(
// CHECK-SAME: %[[DY:[^:]*]]: tensor<2x3xf32> {nn.name = "grad.y"
// CHECK: %[[ZERO:.*]] = nn.fill 0.0{{.*}} : tensor<2x1xf32>
// CHECK: nn.concat %[[DY]], %[[ZERO]] : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
func.func @split(%x: tensor<2x4xf32> {nn.differentiate}) -> (tensor<2x3xf32> {nn.objective, nn.name = "y"}) {
  %a, %b = nn.split %x {sizes = array<i64: 3, 1>} : (tensor<2x4xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>)
  return %a : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func @concat(
// CHECK: nn.split %{{.*}} {rows, sizes = array<i64: 2, 1>} : (tensor<3x4xf32>) -> (tensor<2x4xf32>, tensor<1x4xf32>)
func.func @concat(%x: tensor<2x4xf32> {nn.differentiate}, %y: tensor<1x4xf32> {nn.differentiate})
    -> (tensor<3x4xf32> {nn.objective}) {
  %z = nn.concat %x, %y {rows} : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>
  return %z : tensor<3x4xf32>
}

// -----

// CHECK-LABEL: func @flatten(
// CHECK: %[[D:.*]]:2 = nn.split %{{.*}} {rows, sizes = array<i64: 2, 4>} : (tensor<6x8xf32>) -> (tensor<2x8xf32>, tensor<4x8xf32>)
// CHECK: return %{{.*}}, %[[D]]#0, %[[D]]#1
func.func @flatten(%a: tensor<2x8xf32> {nn.name = "a", nn.differentiate}, %b: tensor<4x8xf32> {nn.name = "b", nn.differentiate})
    -> (tensor<6x8xf32> {nn.objective}) {
  %w = nn.flatten %a, %b in ["a", "b"] : (tensor<2x8xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  return %w : tensor<6x8xf32>
}

// -----

func.func @flatten_vector(%a: tensor<2x8xf32> {nn.name = "a", nn.differentiate}) -> (tensor<16xf32> {nn.objective}) {
  // expected-error @below {{has a part of shape 2x8 and no gradient, as the whole has shape 16}}
  %w = nn.flatten %a in ["a"] : (tensor<2x8xf32>) -> tensor<16xf32>
  return %w : tensor<16xf32>
}
