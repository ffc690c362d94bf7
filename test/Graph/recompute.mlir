// RUN: nsa-opt %s --nsa-recompute="policy=none" | FileCheck %s --check-prefix=NONE
// RUN: nsa-opt %s --nsa-recompute="policy=cheap" --cse --remarks-filter=nsa-recompute 2>%t.err \
// RUN:   | FileCheck %s --check-prefixes=CHECK,CHEAP
// RUN: FileCheck %s --check-prefix=REMARK < %t.err
// RUN: nsa-opt %s --nsa-recompute="policy=block" --cse | FileCheck %s --check-prefixes=CHECK,BLOCK
// RUN: nsa-opt %s --nsa-recompute="policy=cheap" --mlir-print-debuginfo --mlir-print-local-scope \
// RUN:   | FileCheck %s --check-prefix=LOC
// RUN: nsa-opt %s --nsa-recompute="policy=cheap budget-mib=1" --remarks-filter=nsa-recompute 2>&1 \
// RUN:   | FileCheck %s --check-prefix=FITS
// RUN: not nsa-opt %s --nsa-recompute="budget-mib=1" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not nsa-opt %s --nsa-recompute="policy=cheap budget-mib=-1" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NEGATIVE

// NONE-NOT: nn.recompute_barrier
// BUDGET: error: a recompute budget of 1 MiB needs the policy cheap or block
// NEGATIVE: error: recompute budget of -1 MiB, expected 0 to 1099511627776

// REMARK: [Passed] Kept {{.*}}Function=activation {{.*}}Bytes=128, BytesBefore=256, Operations=1

// Everything fits in a MiB, so nothing is computed again.
// FITS-NOT: nn.recompute_barrier
// FITS: Function=activation {{.*}}Bytes=256, BytesBefore=256, Operations=0

// The activation is computed again right before its first user in the backward
// graph, from an input that backward needs anyway. CSE leaves both.
// CHECK-LABEL: func @activation(
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x8xf32>, %[[W:[^:]*]]: tensor<8x8xf32>, %[[DY:[^:]*]]: tensor<4x8xf32>)
// LOC-LABEL: func @activation
func.func @activation(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>) {
  // CHECK: %[[H:.*]] = nn.matmul %[[X]], %[[W]]
  // CHECK: %[[Y:.*]] = nn.silu %[[H]]
  // CHECK: nn.matmul %[[Y]], %[[W]]
  %h = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("h")
  %y = nn.silu %h : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("y")
  %z = nn.matmul %y, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("z")
  // CHECK-NEXT: %[[D:.*]] = nn.matmul %[[DY]], %[[W]] {{.*}}transpose_rhs
  // CHEAP-NEXT: %[[K:.*]] = nn.recompute_barrier %[[H]]
  // CHEAP-NEXT: %[[Y1:.*]] = nn.silu %[[K]]
  // CHEAP-NEXT: nn.matmul %[[Y1]], %[[DY]] {{.*}}transpose_lhs
  // CHEAP-NEXT: nn.silu_backward %[[D]], %[[H]]
  // LOC: nn.recompute_barrier {{.*}} loc("recompute"("h"))
  // LOC: nn.silu {{.*}} loc("recompute"("y"))
  %d = nn.matmul %dy, %w {transpose_rhs} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("backward"("z"))
  %dw = nn.matmul %y, %dy {transpose_lhs} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("backward"("z"))
  %dh = nn.silu_backward %d, %h : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("backward"("y"))
  return %z, %dw, %dh : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>
}

// Computing the sum again would keep the matmul instead: nothing is gained.
// CHECK-LABEL: func @no_gain(
// CHEAP-NOT: nn.recompute_barrier
func.func @no_gain(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %dy: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %h = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = nn.add %x, %h : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = nn.matmul %y, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %dw = nn.matmul %y, %dy {transpose_lhs} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("backward")
  return %z, %dw : tensor<4x8xf32>, tensor<8x8xf32>
}

// A value that the function returns lives anyway.
// CHECK-LABEL: func @returned(
// CHECK-NOT: nn.recompute_barrier
// CHECK: return
func.func @returned(%x: tensor<4x8xf32>, %dy: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %y = nn.silu %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %dw = nn.matmul %y, %dy {transpose_lhs} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("backward")
  return %y, %dw : tensor<4x8xf32>, tensor<8x8xf32>
}

// A layer: projections, attention, residual. With `block` the projection is
// computed again from the residual input; attention outputs and lse are kept.
// The head after it is one operation and no layer.
// BLOCK-LABEL: func @layer(
// BLOCK-SAME: %[[IN:[^:]*]]: tensor<1x16x16xf32> {nn.name = "x"{{.*}}}, %[[W:[^:]*]]: tensor<16x16xf32> {
func.func @layer(%ids: tensor<1x16x16xf32> {nn.name = "x", nn.role = "input"},
                 %w: tensor<16x16xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<constant, 0.0>},
                 %dy: tensor<1x16x16xf32> {nn.name = "dy", nn.role = "input"})
    -> (tensor<1x16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) {
  // BLOCK: %[[X:.*]] = nn.silu %[[IN]]
  // BLOCK: %[[Q:.*]] = nn.matmul %[[X]], %[[W]]
  // BLOCK: %[[QH:.*]] = nn.split_heads %[[Q]]
  // BLOCK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %[[QH]], %[[QH]], %[[QH]]
  // BLOCK: nn.add %[[X]]
  %x = nn.silu %ids : (tensor<1x16x16xf32>) -> tensor<1x16x16xf32>
  %q = nn.matmul %x, %w : (tensor<1x16x16xf32>, tensor<16x16xf32>) -> tensor<1x16x16xf32>
  %qh = nn.split_heads %q {heads = 1 : i64} : (tensor<1x16x16xf32>) -> tensor<1x16x1x16xf32>
  %o, %lse = nsa.window_attention %qh, %qh, %qh {window = 8 : i64} : (tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>) -> (tensor<1x16x1x16xf32>, tensor<1x1x16xf32>)
  %m = nn.merge_heads %o : (tensor<1x16x1x16xf32>) -> tensor<1x16x16xf32>
  %y = nn.add %x, %m : (tensor<1x16x16xf32>, tensor<1x16x16xf32>) -> tensor<1x16x16xf32>
  %z = nn.matmul %y, %w : (tensor<1x16x16xf32>, tensor<16x16xf32>) -> tensor<1x16x16xf32>
  // BLOCK: %[[XK:.*]] = nn.recompute_barrier %[[X]]
  // BLOCK: nn.add %[[XK]]
  // BLOCK: %[[WK:.*]] = nn.recompute_barrier %[[W]]
  // BLOCK: %[[Q1:.*]] = nn.matmul %[[XK]], %[[WK]]
  // BLOCK: %[[QH1:.*]] = nn.split_heads %[[Q1]]
  // BLOCK: nsa.attention_backward %{{.*}}, %[[QH1]], %[[QH1]], %[[QH1]], %[[O]], %[[LSE]]
  // BLOCK-NOT: nn.recompute_barrier
  %dwz = nn.matmul %y, %dy {transpose_lhs} : (tensor<1x16x16xf32>, tensor<1x16x16xf32>) -> tensor<16x16xf32> loc("backward")
  %do = nn.split_heads %dy {heads = 1 : i64} : (tensor<1x16x16xf32>) -> tensor<1x16x1x16xf32> loc("backward")
  %dq, %dk, %dv = nsa.window_attention_backward %do, %qh, %qh, %qh, %o, %lse {window = 8 : i64} : (tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x1x16xf32>) -> (tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>, tensor<1x16x1x16xf32>) loc("backward")
  %dm = nn.merge_heads %dq : (tensor<1x16x1x16xf32>) -> tensor<1x16x16xf32> loc("backward")
  %dwq = nn.matmul %x, %dm {transpose_lhs} : (tensor<1x16x16xf32>, tensor<1x16x16xf32>) -> tensor<16x16xf32> loc("backward")
  return %z, %dwz, %dwq : tensor<1x16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

// What is no tensor takes no memory: nothing to gain.
// CHECK-LABEL: func @scalar(
// CHECK-NEXT: %[[S:.*]] = arith.addf
// CHECK-NEXT: arith.mulf %[[S]], %[[S]]
func.func @scalar(%s: f32) -> f32 {
  %0 = arith.addf %s, %s : f32
  %1 = arith.mulf %0, %0 : f32 loc("backward")
  return %1 : f32
}
