// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention --remarks-filter-missed=nsa-fuse-attention -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSED
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-fuse-attention | FileCheck %s --check-prefix=SELECTED

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
!start = tensor<1x16xi32>

// Nothing reads the branches: they are not kept. The gates come from logits.
// CHECK-LABEL: func.func @inference
// CHECK-NEXT: %[[O:.*]] = nsa.fused %arg0, %arg2, %arg3, %arg4, %arg5, %arg6, %arg1 :
// CHECK-NEXT: ^bb0(%[[Q:[^:]*]]: {{[^,]*}}, %[[K:[^:]*]]: {{[^,]*}}, %[[V:[^:]*]]: {{[^,]*}}, %[[I:[^:]*]]: {{[^,]*}}, %[[Z:[^:]*]]: {{[^,]*}}, %[[B:[^:]*]]: {{[^,]*}}, %[[OC:[^:]*]]:
// CHECK-NEXT: %[[OS:.*]], %{{.*}} = nsa.attention %[[Q]], %[[K]], %[[V]] visible(#nsa.selected<block = 8>, %[[I]] :
// CHECK-NEXT: %[[OW:.*]], %{{.*}} = nsa.attention %[[Q]], %[[K]], %[[V]] visible(#nsa.window<6>)
// CHECK-NEXT: %[[G:.*]] = nn.gate sigmoid %[[Z]], %[[B]]
// CHECK-NEXT: %[[SUM:.*]] = nsa.combine %[[G]], %[[OC]], %[[OS]], %[[OW]]
// CHECK-NEXT: nsa.yield %[[SUM]] :
// CHECK-NEXT: }
// CHECK-NEXT: return %[[O]]
// With other tiles for tokens the window stays outside.
// SELECTED-LABEL: func.func @inference
// SELECTED: %[[OW:.*]], %{{.*}} = nsa.attention %arg0, %arg2, %arg3 visible(#nsa.window<6>)
// SELECTED-NEXT: nsa.fused %arg0, %arg2, %arg3, %arg4, %arg5, %arg6, %arg1, %[[OW]] :
// SELECTED-NOT: #nsa.window
// SELECTED: return
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
// CHECK-NEXT: %[[O:.*]] = nsa.fused %arg0, %arg2, %arg3, %arg4, %arg5, %arg1 :
// CHECK: nsa.attention {{.*}} {scale = 2.000000e+00 : f64}
// CHECK: nn.gate softmax
// CHECK: return %[[O]], %[[G]]
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
// CHECK-NEXT: %[[F:.*]]:5 = nsa.fused %arg0, %arg2, %arg3, %arg4, %arg5, %arg6, %[[OC]] :
// CHECK: nsa.yield
// CHECK-NOT: nn.gate
// CHECK: %[[B:.*]]:9 = nsa.fused %arg5, %arg6, %{{.*}}, %[[OC]], %[[F]]#1, %[[F]]#3, %arg0, %arg1, %[[LC]], %arg2, %arg3, %[[F]]#2, %arg4, %[[F]]#4 :
// CHECK: %[[G:.*]] = nn.gate sigmoid
// CHECK-NEXT: %[[DG:.*]], %[[D:.*]]:3 = nsa.combine_backward %{{.*}}, %[[G]],
// CHECK-NEXT: nn.gate_backward sigmoid %[[DG]], %[[G]]
// CHECK-NEXT: nsa.attention_backward %[[D]]#0, {{.*}} visible(#nsa.compressed
// CHECK-NEXT: nsa.attention_backward %[[D]]#1, {{.*}} visible(#nsa.selected
// CHECK-NEXT: nsa.attention_backward %[[D]]#2, {{.*}} visible(#nsa.window
// CHECK-COUNT-2: nn.add
// CHECK-NEXT: nsa.yield
// CHECK-NEXT: }
// CHECK-NEXT: nn.add %[[B]]#5, %[[B]]#3
// CHECK-NEXT: nn.add %[[B]]#6, %[[B]]#4
// CHECK-NEXT: nn.add %[[B]]#1, %[[B]]#2
// CHECK-NEXT: return %[[F]]#0, %[[B]]#0, {{.*}}, %[[B]]#7, %[[B]]#8
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
// CHECK: nsa.fused
// CHECK-NOT: nn.gate
// CHECK: nsa.combine_backward
// CHECK-NOT: nn.add %
// CHECK: nsa.yield
// CHECK: return
func.func @given(%q: !q, %kc: !kc {nn.differentiate, nn.name = "kc"}, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k {nn.differentiate, nn.name = "v"}, %i: !i,
    %g: !gates {nn.differentiate, nn.name = "g"}) -> (!q {nn.objective, nn.name = "o"}) {
  %oc, %lc = nsa.compressed_attention %q, %kc, %kc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// Packed sequences: all branches have the same start, which is an input.
// CHECK-LABEL: func.func @packed
// CHECK: nsa.fused {{.*}}%arg6
// CHECK: nsa.attention {{.*}}#nsa.selected{{.*}} start(
// CHECK: nsa.attention {{.*}}#nsa.window{{.*}} start(
// CHECK: nsa.yield
// CHECK: nsa.fused {{.*}}%arg6
// CHECK: nsa.attention_backward {{.*}}#nsa.selected{{.*}} start(
// CHECK: nsa.attention_backward {{.*}}#nsa.window{{.*}} start(
// CHECK: nsa.yield
func.func @packed(%q: !q {nn.differentiate, nn.name = "q"}, %oc: !q, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k {nn.differentiate, nn.name = "v"}, %i: !i,
    %g: tensor<1x16x2x2xf32> {nn.differentiate, nn.name = "g"}, %s: !start) -> (!q {nn.objective, nn.name = "o"}) {
  %os, %ls = nsa.attention %q, %k, %v visible(#nsa.selected<block = 8>, %i : !i) start(%s : !start) : !q, !k, !k
  %ow, %lw = nsa.attention %q, %k, %v visible(#nsa.window<6>) start(%s : !start) : !q, !k, !k
  %o = nsa.combine %g, %os, %ow : (tensor<1x16x2x2xf32>, !q, !q) -> !q
  return %o : !q
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @starts
// CHECK-NEXT: nsa.attention {{.*}}#nsa.window
// CHECK-NEXT: nsa.fused
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=starts | Reason="the branches have different starts of sequences"
func.func @starts(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates, %s: !start) -> !q {
  %os, %ls = nsa.attention %q, %k, %v visible(#nsa.selected<block = 8>, %i : !i) start(%s : !start) : !q, !k, !k
  %ow, %lw = nsa.attention %q, %k, %v visible(#nsa.window<6>) : !q, !k, !k
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @no_selected
// CHECK-NOT: nsa.fused
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=no_selected | Reason="no branch attends to the blocks of indices"
func.func @no_selected(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %oc, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// What cannot be inside is given.
// CHECK-LABEL: func.func @queries
// CHECK: %[[OW:.*]], %{{.*}} = nsa.attention %arg1
// CHECK-NEXT: nsa.fused %arg0, %arg2, %arg3, %arg4, %arg5, %arg1, %[[OW]]
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=queries | Reason="the branches have different queries"
func.func @queries(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %oc, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @scales
// CHECK-NEXT: nsa.attention {{.*}}#nsa.window
// CHECK-NEXT: nsa.fused
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=scales | Reason="the branches have different scales"
func.func @scales(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64, scale = 2.0 : f64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @key_heads
// CHECK-NEXT: nsa.attention {{.*}}#nsa.window
// CHECK-NEXT: nsa.fused
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=key_heads | Reason="the branches have different numbers of key heads"
func.func @key_heads(%q: !q, %oc: !q, %k: !k, %v: !k, %k2: !k2, %i2: !i2, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k2, %k2, %i2 {select_block = 8 : i64} : (!q, !k2, !k2, !i2) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @window_twice
// CHECK-NEXT: %[[OW:.*]], %{{.*}} = nsa.attention {{.*}}#nsa.window
// CHECK-NEXT: nsa.fused {{.*}}, %[[OW]] :
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=window_twice | Reason="a branch is also another operand of the sum"
func.func @window_twice(%q: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %ow, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @read_before
// CHECK-NOT: nsa.fused
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=read_before | Reason="a branch is read before the branches are summed"
func.func @read_before(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> (!q, !q) {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %s = nn.silu %os : (!q) -> !q
  %ow, %lw = nsa.window_attention %q, %k, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o = nsa.combine %g, %s, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %o, %s : !q, !q
}

// One selection gives the rows; another one is given.
// CHECK-LABEL: func.func @two_selections
// CHECK-NEXT: %[[O2:.*]], %{{.*}} = nsa.attention {{.*}}#nsa.selected<block = 16>
// CHECK-NEXT: nsa.fused {{.*}}, %[[O2]] :
// MISSED: Function=two_selections | Reason="another branch attends to blocks of indices already"
func.func @two_selections(%q: !q, %oc: !q, %k: !k, %v: !k, %i: !i, %g: !gates) -> !q {
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %o2, %l2 = nsa.selected_attention %q, %k, %v, %i {select_block = 16 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %o = nsa.combine %g, %oc, %os, %o2 : (!gates, !q, !q, !q) -> !q
  return %o : !q
}

// CHECK-LABEL: func.func @other_reader
// CHECK-NOT: nsa.fused
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
// CHECK-NOT: nsa.fused
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
// CHECK-NOT: nsa.fused
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
// CHECK-NOT: nsa.fused
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
// CHECK-NOT: nsa.fused
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
// CHECK-NOT: nsa.fused
// MISSED: [Missed] Gradients | Category:nsa-fuse-attention | Function=not_summed | Reason="the gradients of the queries are not only summed"
func.func @not_summed(%do: !q, %q: !q, %kc: !kc, %oc: !q, %l: !lse, %k: !k, %v: !k, %os: !q, %ow: !q, %i: !i, %g: !gates) -> (!q, !q, !q) {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %oc, %os, %ow : (!q, !gates, !q, !q, !q) -> (!gates, !q, !q, !q)
  %dqw, %dkw, %dvw = nsa.window_attention_backward %dw, %q, %k, %v, %ow, %l {window = 6 : i64} : (!q, !q, !k, !k, !q, !lse) -> (!q, !k, !k)
  %dqs, %dks, %dvs = nsa.selected_attention_backward %ds, %q, %k, %v, %os, %l, %i {select_block = 8 : i64} : (!q, !q, !k, !k, !q, !lse, !i) -> (!q, !k, !k)
  %dqc, %dkc, %dvc = nsa.compressed_attention_backward %dc, %q, %kc, %kc, %oc, %l {block = 8 : i64, stride = 4 : i64} : (!q, !q, !kc, !kc, !q, !lse) -> (!q, !kc, !kc)
  return %dqw, %dqs, %dqc : !q, !q, !q
}

// CHECK-LABEL: func.func @chained
// CHECK-NOT: nsa.fused
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

// Gathered queries take several launches: the sum has one of its own.
// CHECK-LABEL: func.func @gathered
// CHECK: nsa.fused
// SELECTED-LABEL: func.func @gathered
// SELECTED-NOT: nsa.fused
// SELECTED: nsa.combine
func.func @gathered(%q: !q, %oc: !q, %k: !k, %i: !i, %g: tensor<1x16x2x2xf32>) -> !q {
  %os, %ls = nsa.attention %q, %k, %k visible(#nsa.selected<block = 8>, %i : !i)
      {nsa.schedules = {selected_forward = [#nsa.schedule<form = gathered>]}} : !q, !k, !k
  %o = nsa.combine %g, %oc, %os : (tensor<1x16x2x2xf32>, !q, !q) -> !q
  return %o : !q
}

// Queries inside of longer sequences: branches of one place are one kernel,
// which leaves their rotation to others.
// CHECK-LABEL: func.func @inside
// CHECK: nn.rotary %{{.*}}, %{{.*}} at(
// CHECK: nsa.fused
// CHECK: nsa.attention {{.*}}visible(#nsa.selected<block = 8>, {{.*}}) at(
// CHECK: nsa.attention {{.*}}visible(#nsa.window<6>) at(
// CHECK: nsa.combine
func.func @inside(%q: tensor<3x8x2x4xf32>, %k: !k, %i: tensor<3x1x8x2xi32>, %g: tensor<3x8x2x2xf32>, %t: tensor<16x2x2xf32>,
                  %at: tensor<3x2xi32>) -> tensor<3x8x2x4xf32> {
  %r = nn.rotary %q, %t at(%at) : (tensor<3x8x2x4xf32>, tensor<16x2x2xf32>, tensor<3x2xi32>) -> tensor<3x8x2x4xf32>
  %os, %ls = nsa.attention %r, %k, %k visible(#nsa.selected<block = 8>, %i : tensor<3x1x8x2xi32>) at(%at : tensor<3x2xi32>)
      : tensor<3x8x2x4xf32>, !k, !k
  %ow, %lw = nsa.attention %r, %k, %k visible(#nsa.window<6>) at(%at : tensor<3x2xi32>) : tensor<3x8x2x4xf32>, !k, !k
  %o = nsa.combine %g, %os, %ow : (tensor<3x8x2x2xf32>, tensor<3x8x2x4xf32>, tensor<3x8x2x4xf32>) -> tensor<3x8x2x4xf32>
  return %o : tensor<3x8x2x4xf32>
}

// CHECK-LABEL: func.func @two_places
// CHECK: nsa.attention {{.*}}visible(#nsa.window<6>) at(
// CHECK-NEXT: nsa.fused
// CHECK-NOT: window
// MISSED: [Missed] Branches | Category:nsa-fuse-attention | Function=two_places | Reason="the branches have queries at different places in sequences"
func.func @two_places(%q: !q, %k: !k, %i: !i, %g: tensor<1x16x2x2xf32>, %at: tensor<1x2xi32>, %other: tensor<1x2xi32>) -> !q {
  %os, %ls = nsa.attention %q, %k, %k visible(#nsa.selected<block = 8>, %i : !i) at(%at : tensor<1x2xi32>) : !q, !k, !k
  %ow, %lw = nsa.attention %q, %k, %k visible(#nsa.window<6>) at(%other : tensor<1x2xi32>) : !q, !k, !k
  %o = nsa.combine %g, %os, %ow : (tensor<1x16x2x2xf32>, !q, !q) -> !q
  return %o : !q
}
