// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention --remarks-filter-missed=nsa-fuse-attention -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSED

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!lse = tensor<1x2x16xf32>
!w = tensor<1x32x4xf32>
!p = tensor<1x8x4xf32>
!table = tensor<16x2x2xf32>
!i = tensor<1x1x16x2xi32>
!gates = tensor<1x16x2x3xf32>

// Keys and values in one operation, and their gradients. The rotation of the
// compressed keys is part of it; where no branches are summed nothing rotates
// their gradient back.
// CHECK-LABEL: func.func @mean
// CHECK-NEXT: %[[K:.*]], %[[V:.*]] = nsa.compress_key_value mean %arg1, %arg2 rotary %arg3 by(#nsa.compressed<block = 8, stride = 4>)
// CHECK-NEXT: nsa.attention %arg0, %[[K]], %[[V]]
// CHECK: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = nsa.attention_backward {{.*}}visible(#nsa.compressed
// CHECK-NEXT: %[[BACK:.*]] = nn.rotary %[[DK]], %arg3 {inverse, stride = 4 : i64}
// CHECK-NEXT: nsa.compress_key_value_backward mean %[[BACK]], %[[DV]], %arg1, %arg2 by(#nsa.compressed<block = 8, stride = 4>)
func.func @mean(%q: !q, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k {nn.differentiate, nn.name = "v"}, %t: !table)
    -> (!q {nn.objective, nn.name = "o"}) {
  %kc = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %kr = nn.rotary %kc, %t {stride = 4 : i64} : (!kc, !table) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kr, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

// CHECK-LABEL: func.func @linear
// CHECK-NEXT: nsa.compress_key_value linear %arg1(%arg4, %arg5), %arg2(%arg6, %arg7)
// CHECK: %{{.*}}, %{{.*}}, %[[WK:.*]], %[[PK:.*]], %[[WV:.*]], %[[PV:.*]] = nsa.compress_key_value_backward linear %{{.*}}, %{{.*}}, %arg1(%arg4, %arg5), %arg2(%arg6, %arg7)
// CHECK-NEXT: return %{{.*}}, %[[WK]], %[[PK]], %[[WV]], %[[PV]]
func.func @linear(%q: !q, %k: !k, %v: !k, %t: !table, %wk: !w {nn.differentiate, nn.name = "wk"}, %pk: !p {nn.differentiate, nn.name = "pk"},
    %wv: !w {nn.differentiate, nn.name = "wv"}, %pv: !p {nn.differentiate, nn.name = "pv"}) -> (!q {nn.objective, nn.name = "o"}) {
  %kc = nsa.compress linear %k, %wk, %pk {block = 8 : i64, stride = 4 : i64} : (!k, !w, !p) -> !kc
  %vc = nsa.compress linear %v, %wv, %pv {block = 8 : i64, stride = 4 : i64} : (!k, !w, !p) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

// The gradient of compressed keys leaves the fused attention rotated back.
// CHECK-LABEL: func.func @gated
// CHECK: %[[B:.*]]:{{.*}} = nsa.fused {{.*}}, %arg3 :
// CHECK: nn.rotary {{.*}} {inverse, stride = 4 : i64}
// CHECK-NEXT: nsa.yield
// CHECK-NOT: nn.rotary
// CHECK: nsa.compress_key_value_backward mean %[[B]]#0, %[[B]]#1,
func.func @gated(%q: !q, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k {nn.differentiate, nn.name = "v"}, %t: !table, %i: !i, %g: !gates)
    -> (!q {nn.objective, nn.name = "y"}) {
  %kc = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %kr = nn.rotary %kc, %t {stride = 4 : i64} : (!kc, !table) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kr, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %y = nsa.combine %g, %o, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %y : !q
}

// Values that are compressed first are no reason to refuse: what keys need moves.
// CHECK-LABEL: func.func @moved
// CHECK-NEXT: %[[S:.*]] = nn.silu %arg1
// CHECK-NEXT: nsa.compress_key_value mean %[[S]], %arg2 by(#nsa.compressed<block
func.func @moved(%q: !q, %k: !k, %v: !k) -> !q {
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %s = nn.silu %k : (!k) -> !k
  %kc = nsa.compress mean %s {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @kinds
// CHECK-NOT: nsa.compress_key_value
// MISSED: [Missed] Compression | Category:nsa-fuse-attention | Function=kinds | Reason="keys and values are compressed in different ways"
func.func @kinds(%q: !q, %k: !k, %v: !k, %w: !w) -> !q {
  %kc = nsa.compress linear %k, %w {block = 8 : i64, stride = 4 : i64} : (!k, !w) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

// CHECK-LABEL: func.func @positions
// CHECK-NOT: nsa.compress_key_value
// MISSED: Function=positions | Reason="keys and values are compressed in different ways"
func.func @positions(%q: !q, %k: !k, %v: !k, %w: !w, %p: !p) -> !q {
  %kc = nsa.compress linear %k, %w, %p {block = 8 : i64, stride = 4 : i64} : (!k, !w, !p) -> !kc
  %vc = nsa.compress linear %v, %w {block = 8 : i64, stride = 4 : i64} : (!k, !w) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

// As many rows, of other blocks.
// CHECK-LABEL: func.func @blocks
// CHECK-NOT: nsa.compress_key_value
// MISSED: Function=blocks | Reason="keys and values are compressed in different blocks"
func.func @blocks(%q: !q, %k: !k, %v: !k) -> !q {
  %kd = nsa.compress mean %k {block = 4 : i64, stride = 4 : i64} : (!k) -> tensor<1x4x1x4xf32>
  %vs = nsa.compress mean %v {block = 6 : i64, stride = 3 : i64} : (!k) -> tensor<1x4x1x4xf32>
  %o, %lse = nsa.compressed_attention %q, %kd, %vs {block = 4 : i64, stride = 4 : i64} : (!q, tensor<1x4x1x4xf32>, tensor<1x4x1x4xf32>) -> (!q, !lse)
  return %o : !q
}

// CHECK-LABEL: func.func @dependent
// CHECK-NOT: nsa.compress_key_value
// MISSED: Function=dependent | Reason="the tokens of one compression follow from the other"
func.func @dependent(%q: tensor<1x3x2x4xf32>, %k: tensor<1x3x1x4xf32>) -> tensor<1x3x2x4xf32> {
  %kc = nsa.compress mean %k {block = 1 : i64, stride = 1 : i64} : (tensor<1x3x1x4xf32>) -> !kc
  %vc = nsa.compress mean %kc {block = 1 : i64, stride = 1 : i64} : (!kc) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kc, %vc {block = 1 : i64, stride = 1 : i64} : (tensor<1x3x2x4xf32>, !kc, !kc) -> (tensor<1x3x2x4xf32>, tensor<1x2x3xf32>)
  return %o : tensor<1x3x2x4xf32>
}

// CHECK-LABEL: func.func @read_before
// CHECK: nsa.compress_key_value mean %arg1, %arg2 by(
// CHECK: nn.rotary
// MISSED: [Missed] Rotation | Category:nsa-fuse-attention | Function=read_before | Reason="the compressed keys are read before they are rotated, or rotated for other positions"
func.func @read_before(%q: !q, %k: !k, %v: !k, %t: !table) -> (!q, !kc) {
  %kc = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %kr = nn.rotary %kc, %t {stride = 4 : i64} : (!kc, !table) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kr, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o, %kc : !q, !kc
}

// CHECK-LABEL: func.func @other_positions
// CHECK: nsa.compress_key_value mean %arg1, %arg2 by(
// CHECK: nn.rotary
// MISSED: Function=other_positions | Reason="the compressed keys are read before they are rotated, or rotated for other positions"
func.func @other_positions(%q: !q, %k: !k, %v: !k, %t: !table) -> !q {
  %kc = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %kr = nn.rotary %kc, %t {stride = 2 : i64} : (!kc, !table) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %q, %kr, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}
