// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention --remarks-filter-missed=nsa-fuse-attention -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSED

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!k2 = tensor<1x16x2x4xf32>
!kc = tensor<1x3x1x4xf32>
!lse = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!i2 = tensor<1x2x16x2xi32>
!gates = tensor<1x16x2x3xf32>
!logits = tensor<1x16x6xf32>
!bias = tensor<6xf32>

// Nothing reads the branches: they are not kept. The gates come from logits.
// CHECK-LABEL: func.func @inference
// CHECK-NEXT: %[[O:.*]] = nsa.gated_attention sigmoid %arg0, %arg1, %arg2, %arg3, %arg4, %arg2, %arg3, %arg5, %arg6 visible(#nsa.selected<block = 8>, #nsa.window<6>)
// CHECK-NEXT: return %[[O]]
func.func @inference(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %z: !logits, %b: !bias) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %g = nn.gate sigmoid %z, %b : (!logits, !bias) -> !gates
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// Gates that something else reads stay, and are computed again.
// CHECK-LABEL: func.func @shared_gates
// CHECK-NEXT: %[[G:.*]] = nn.gate softmax %arg5
// CHECK-NEXT: %[[O:.*]] = nsa.gated_attention softmax %arg0, %arg1, %arg2, %arg3, %arg4, %arg2, %arg3, %arg5 visible(#nsa.selected<block = 8>, #nsa.window<6>) {scale = 2.000000e+00 : f64}
// CHECK-NEXT: return %[[O]], %[[G]]
func.func @shared_gates(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %z: !logits) -> (!q, !gates) {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64, scale = 2.0 : f64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64, scale = 2.0 : f64} : (!q, !k, !k) -> (!q, !lse)
  %g = nn.gate softmax %z : (!logits) -> !gates
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o, %g : !q, !gates
}

// One operation forward and one backward. Every gradient of the queries is in
// its sum, and what it reads of the branches is kept.
// CHECK-LABEL: func.func @train
// CHECK: %[[OC:.*]], %[[LC:.*]] = nsa.attention %arg0, %arg1, %arg1
// CHECK-NEXT: %[[O:.*]], %[[OS:.*]], %[[LS:.*]], %[[OW:.*]], %[[LW:.*]] = nsa.gated_attention sigmoid %arg0, %[[OC]], %arg2, %arg3, %arg4, %arg2, %arg3, %arg5, %arg6 {{.*}}{keep}
// CHECK-NOT: nn.gate
// CHECK: %[[DQ:.*]], %[[DKC:.*]], %[[DVC:.*]], %[[DKS:.*]], %[[DVS:.*]], %[[DKW:.*]], %[[DVW:.*]], %[[DZ:.*]], %[[DB:.*]] = nsa.gated_attention_backward sigmoid
// CHECK-SAME: %{{.*}}, %arg0, %arg1, %arg1, %[[OC]], %[[LC]], %arg2, %arg3, %[[OS]], %[[LS]], %arg4, %arg2, %arg3, %[[OW]], %[[LW]], %arg5, %arg6
// CHECK-SAME: visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 8>, #nsa.window<6>)
// CHECK-NEXT: nn.add %[[DKW]], %[[DKS]]
// CHECK-NEXT: nn.add %[[DVW]], %[[DVS]]
// CHECK-NEXT: nn.add %[[DKC]], %[[DVC]]
// CHECK-NEXT: return %[[O]], %[[DQ]], {{.*}}, %[[DZ]], %[[DB]]
func.func @train(%q: !q {nn.differentiate, nn.name = "q"}, %kc: !kc {nn.differentiate, nn.name = "kc"}, %k: !k {nn.differentiate, nn.name = "k"},
    %v: !k {nn.differentiate, nn.name = "v"}, %i: !i, %z: !logits {nn.differentiate, nn.name = "z"}, %b: !bias {nn.differentiate, nn.name = "b"})
    -> (!q {nn.objective, nn.name = "o"}) {
  %oc, %lc = nsa.compressed_attention %q, %kc, %kc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %g = nn.gate sigmoid %z, %b : (!logits, !bias) -> !gates
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// The gradient of given gates, and none of the queries.
// CHECK-LABEL: func.func @given
// CHECK: nsa.gated_attention given %{{.*}}, %arg5 {{.*}}{keep}
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[DG:.*]] = nsa.gated_attention_backward given
// CHECK: return %{{.*}}, %{{.*}}, %[[DG]]
func.func @given(%q: !q, %kc: !kc {nn.differentiate, nn.name = "kc"}, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k {nn.differentiate, nn.name = "v"}, %i: !i,
    %g: !gates {nn.differentiate, nn.name = "g"}) -> (!q {nn.objective, nn.name = "o"}) {
  %oc, %lc = nsa.compressed_attention %q, %kc, %kc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @no_selected
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=no_selected | Reason="the second branch is not attention to the blocks of indices"
func.func @no_selected(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %oc, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @no_window
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=no_window | Reason="the third branch is not attention to tokens"
func.func @no_window(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %oc : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @queries
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=queries | Reason="the branches have different queries"
func.func @queries(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %oc, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @scales
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=scales | Reason="the branches have different scales"
func.func @scales(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64, scale = 2.0 : f64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @key_heads
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=key_heads | Reason="the branches have different numbers of key heads"
func.func @key_heads(%q: !q, %oc: !q, %k: !k, %v: !k, %k2: !k2, %i2: !i2, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k2, %k2, %i2 {select_block = 8 : i64} : (!q, !k2, !k2, !i2) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @window_twice
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=window_twice | Reason="a branch is also another operand of the sum"
func.func @window_twice(%q: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %ow, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @read_before
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=read_before | Reason="a branch is read before the branches are summed"
func.func @read_before(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> (!q, !q) {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %s = nn.silu %os : (!q) -> !q
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %s, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o, %s : !q, !q
}

// CHECK-LABEL: func.func @other_reader
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=other_reader | Reason="the gradient of a branch is not read by the gradient of its attention alone"
func.func @other_reader(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> (!q, !q) {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq, %dw : !q, !q
}

// CHECK-LABEL: func.func @other_output
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=other_output | Reason="the gradient of a branch is taken with another output"
func.func @other_output(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> !q {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %os, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq : !q
}

// CHECK-LABEL: func.func @other_queries
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=other_queries | Reason="the branches have different queries"
func.func @other_queries(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> !q {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %oc, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq : !q
}

// CHECK-LABEL: func.func @other_scale
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=other_scale | Reason="the branches have different scales"
func.func @other_scale(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> !q {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64, scale = 2.0 : f64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq : !q
}

// CHECK-LABEL: func.func @partial_sum
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=partial_sum | Reason="the gradients of the queries are not only summed"
func.func @partial_sum(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> (!q, !q) {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq, %d0 : !q, !q
}

// CHECK-LABEL: func.func @not_summed
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=not_summed | Reason="the gradients of the queries are not only summed"
func.func @not_summed(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> (!q, !q, !q) {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  return %dqw, %dqs, %dqc : !q, !q, !q
}

// CHECK-LABEL: func.func @chained
// CHECK-NOT: nsa.gated_attention
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=chained | Reason="the gradient of a branch reads the gradient of another"
func.func @chained(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> !q {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %dks, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  %d0 = nn.add %dqw, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqc : (!q, !q) -> !q
  return %dq : !q
}
