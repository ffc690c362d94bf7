// RUN: nsa-opt %s --nsa-differentiate --remarks-filter=nsa-differentiate 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.err
// RUN: nsa-opt %s --nsa-differentiate --mlir-print-debuginfo --mlir-print-local-scope \
// RUN:   | FileCheck %s --check-prefix=LOC

// REMARK: [Analysis] Gradient {{.*}}Function=chain {{.*}}2 operations differentiated, 1 gradients summed

// The output of the first matmul is an operand of the second, and both share
// the weight, whose two gradients are summed. The objective is no scalar, so its
// gradient is an argument.
// CHECK-LABEL: func @chain(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x4xf32>, %[[W:[^:]*]]: tensor<4x4xf32>,
// CHECK-SAME: %[[DY:[^:]*]]: tensor<4x4xf32> {nn.name = "grad.y", nn.role = "input"})
// CHECK-SAME: -> (tensor<4x4xf32> {nn.name = "y"}, tensor<4x4xf32>)
// LOC-LABEL: func @chain
func.func @chain(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {nn.differentiate})
    -> (tensor<4x4xf32> {nn.name = "y", nn.objective}) {
  // CHECK: %[[Y0:.*]] = nn.matmul %[[X]], %[[W]]
  // CHECK: %[[Y1:.*]] = nn.matmul %[[Y0]], %[[W]]
  // CHECK: %[[D0:.*]] = nn.matmul %[[DY]], %[[W]] {{.*}}transpose_rhs
  // CHECK: %[[W1:.*]] = nn.matmul %[[Y0]], %[[DY]] {{.*}}transpose_lhs
  // CHECK: %[[W0:.*]] = nn.matmul %[[X]], %[[D0]] {{.*}}transpose_lhs
  // CHECK: %[[DW:.*]] = nn.add %[[W1]], %[[W0]]
  // CHECK: return %[[Y1]], %[[DW]]
  // LOC: nn.matmul {{.*}} loc("first")
  // LOC: nn.matmul {{.*}} loc("second")
  // LOC: nn.matmul {{.*}} loc("backward"("second"))
  // LOC: nn.matmul {{.*}} loc("backward"("first"))
  %0 = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> loc("first")
  %1 = nn.matmul %0, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> loc("second")
  return %1 : tensor<4x4xf32>
}

// The gradient of a scalar starts from 1. Parameters are the default, and other
// arguments get no gradient.
// CHECK-LABEL: func @loss(
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "grad.w"})
func.func @loss(%x: tensor<4x4xf32>, %targets: tensor<4xi32>,
                %w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss", nn.objective}) {
  %0 = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: %[[ONE:.*]] = nn.fill 1.0{{.*}} : tensor<f32>
  // CHECK: nn.cross_entropy_backward %[[ONE]]
  %loss, %lse, %count = nn.cross_entropy %0, %targets : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// The gradient of a cast weight stays fp32: it is never rounded to bf16.
// CHECK-LABEL: func @master_weights(
// CHECK: %[[WN:.*]] = nn.cast %{{.*}} to bf16
// CHECK: nn.matmul %{{.*}}, %[[WN]] : (tensor<4x4xbf16>, tensor<4x8xbf16>)
// CHECK-NOT: nn.cast
// CHECK: %[[DW:.*]] = nn.matmul {{.*}} -> tensor<4x8xf32>
// CHECK-NOT: nn.cast
// CHECK: return %{{.*}}, %[[DW]] : tensor<4x8xbf16>, tensor<4x8xf32>
func.func @master_weights(%x: tensor<4x4xbf16>, %w: tensor<4x8xf32> {nn.differentiate})
    -> (tensor<4x8xbf16> {nn.objective}) {
  %0 = nn.cast %w to bf16 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %1 = nn.matmul %x, %0 : (tensor<4x4xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %1 : tensor<4x8xbf16>
}

// A gradient has the type of its argument: that of a bf16 weight is rounded.
// CHECK-LABEL: func @bf16_weight(
// CHECK: %[[DW:.*]] = nn.matmul {{.*}} -> tensor<4x8xf32>
// CHECK: %[[ROUNDED:.*]] = nn.cast %[[DW]] to bf16
// CHECK: return %{{.*}}, %[[ROUNDED]]
func.func @bf16_weight(%x: tensor<4x4xbf16>, %w: tensor<4x8xbf16> {nn.differentiate})
    -> (tensor<4x8xbf16> {nn.objective}) {
  %0 = nn.matmul %x, %w : (tensor<4x4xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// The matmuls of the gradient have operands of one type, whatever the type of
// the result; the accumulator's gradient has that of the result.
// CHECK-LABEL: func @wide_result(
// CHECK-SAME: %[[W:[^:]*]]: tensor<4x8xbf16>{{.*}} %[[DY:[^:]*]]: tensor<4x8xf32>)
// CHECK: %[[NARROW:.*]] = nn.cast %[[DY]] to bf16
// CHECK: %[[DX:.*]] = nn.matmul %[[NARROW]], %[[W]] {{.*}}transpose_rhs
// CHECK: return %{{.*}}, %[[DX]], %[[DY]] : tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x8xf32>
func.func @wide_result(%x: tensor<4x4xbf16> {nn.differentiate},
                       %sum: tensor<4x8xf32> {nn.differentiate}, %w: tensor<4x8xbf16>)
    -> (tensor<4x8xf32> {nn.objective}) {
  %0 = nn.matmul %x, %w, %sum {result_type = f32}
      : (tensor<4x4xbf16>, tensor<4x8xbf16>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// The choice of blocks has no gradient: q gets its gradient through the outputs
// only, and nothing flows through the indices.
// CHECK-LABEL: func @selection(
// CHECK: nsa.select
// CHECK: nsa.attention_backward {{.*}}visible(#nsa.selected
// CHECK-NOT: nsa.select
// CHECK: return
func.func @selection(%q: tensor<1x16x2x4xf32> {nn.differentiate}, %k: tensor<1x16x1x4xf32>,
                     %c: tensor<1x3x1x4xf32>, %lse: tensor<1x2x16xf32>)
    -> (tensor<1x16x2x4xf32> {nn.objective}) {
  %i = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 8 : i64, count = 1 : i64}
      : (tensor<1x16x2x4xf32>, tensor<1x3x1x4xf32>, tensor<1x2x16xf32>) -> tensor<1x1x16x1xi32>
  %o, %l = nsa.selected_attention %q, %k, %k, %i {select_block = 8 : i64}
      : (tensor<1x16x2x4xf32>, tensor<1x16x1x4xf32>, tensor<1x16x1x4xf32>, tensor<1x1x16x1xi32>) -> (tensor<1x16x2x4xf32>, tensor<1x2x16xf32>)
  return %o : tensor<1x16x2x4xf32>
}

// An operation off the path needs no adjoint.
// CHECK-LABEL: func @off_path(
// CHECK-COUNT-2: math.exp
// CHECK-NOT: math.exp
// CHECK: nn.silu_backward
func.func @off_path(%x: tensor<2x2xf32> {nn.differentiate}, %y: tensor<2x2xf32>)
    -> (tensor<2x2xf32> {nn.objective}, tensor<2x2xf32>, tensor<2x2xf32>) {
  %0 = nn.silu %x : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = math.exp %y : tensor<2x2xf32>
  %2 = math.exp %0 : tensor<2x2xf32>
  return %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: func @no_objective(
// CHECK-NEXT: return
func.func @no_objective(%x: tensor<4xf32> {nn.role = "parameter", nn.name = "x"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
