// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention --split-input-file | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-fuse-attention --split-input-file --remarks-filter-missed=nsa-fuse-attention -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=MISSED

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!lse = tensor<1x2x16xf32>
!table = tensor<16x2x2xf32>
!i = tensor<1x1x16x2xi32>
!gates = tensor<1x16x2x3xf32>

// The compressed branch rotates the queries and the keys of the others, and
// only the attention that stores a gradient rotates it back.
// CHECK-LABEL: func.func @all
// CHECK-NOT: nn.rotary
// CHECK: %[[O:.*]], %[[L:.*]], %[[Q:.*]], %[[KS:.*]], %[[KW:.*]] = nsa.rotary_attention %arg0, %{{.*}}, %{{.*}}, %arg3, %arg4 rotary %arg5 visible(#nsa.compressed<block = 8, stride = 4>)
// CHECK-NOT: nn.rotary
// CHECK: nsa.fused %[[Q]], %[[KS]], %arg2, %arg6, %[[KW]], %arg7, %[[O]] :
// CHECK: nsa.yield
// CHECK-NEXT: }
// CHECK-NOT: nn.rotary
// CHECK: %[[B:.*]]:4 = nsa.fused {{.*}}, %arg5 :
// CHECK: nsa.combine_backward
// CHECK: nn.rotary %{{.*}}, %{{.*}} {inverse, stride = 4 : i64}
// CHECK-COUNT-3: nn.rotary %{{.*}}, %{{.*}} {inverse} :
// CHECK-NEXT: nsa.yield
// CHECK-NOT: nn.rotary
// CHECK: return %{{.*}}, %[[B]]#0, %{{.*}}, %[[B]]#2, %[[B]]#3
func.func @all(%q: !q {nn.differentiate, nn.name = "q"}, %k: !k {nn.differentiate, nn.name = "k"}, %v: !k,
               %ks: !k {nn.differentiate, nn.name = "ks"}, %kw: !k {nn.differentiate, nn.name = "kw"}, %t: !table, %i: !i, %g: !gates)
    -> (!q {nn.objective, nn.name = "y"}) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %kc = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %kr = nn.rotary %kc, %t {stride = 4 : i64} : (!kc, !table) -> !kc
  %vc = nsa.compress mean %v {block = 8 : i64, stride = 4 : i64} : (!k) -> !kc
  %o, %lse = nsa.compressed_attention %qr, %kr, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %ksr = nn.rotary %ks, %t : (!k, !table) -> !k
  %os, %ls = nsa.selected_attention %qr, %ksr, %v, %i {select_block = 8 : i64} : (!q, !k, !k, !i) -> (!q, !lse)
  %kwr = nn.rotary %kw, %t : (!k, !table) -> !k
  %ow, %lw = nsa.window_attention %qr, %kwr, %v {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %y = nsa.combine %g, %o, %os, %ow : (!gates, !q, !q, !q) -> !q
  return %y : !q
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!lse = tensor<1x2x16xf32>
!table = tensor<16x2x2xf32>

// Branches that no operation sums take their rotated keys as well; the scale
// stays. Keys that are computed later move.
// CHECK-LABEL: func.func @apart
// CHECK-NEXT: %[[S:.*]] = nn.silu %arg3
// CHECK-NEXT: %{{.*}}, %{{.*}}, %[[Q:.*]], %[[K:.*]] = nsa.rotary_attention %arg0, %arg1, %arg2, %[[S]] rotary %arg4 visible(#nsa.compressed<block = 8, stride = 4>) {scale = 5.000000e-01 : f64}
// CHECK-NEXT: nsa.attention %[[Q]], %[[K]], %arg3
func.func @apart(%q: !q, %kc: !kc, %vc: !kc, %k: !k, %t: !table) -> (!q, !q) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, scale = 0.5 : f64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %s = nn.silu %k : (!k) -> !k
  %kr = nn.rotary %s, %t : (!k, !table) -> !k
  %ow, %lw = nsa.window_attention %qr, %kr, %k {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  return %o, %ow : !q, !q
}

// One rotation serves both branches.
// CHECK-LABEL: func.func @shared
// CHECK: nsa.rotary_attention %arg0, %arg1, %arg2, %arg3 rotary %arg4
// CHECK-NOT: nn.rotary
func.func @shared(%q: !q, %kc: !kc, %vc: !kc, %k: !k, %t: !table, %i: tensor<1x1x16x2xi32>) -> (!q, !q, !q) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %kr = nn.rotary %k, %t : (!k, !table) -> !k
  %os, %ls = nsa.selected_attention %qr, %kr, %k, %i {select_block = 8 : i64} : (!q, !k, !k, tensor<1x1x16x2xi32>) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %qr, %kr, %k {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  return %o, %os, %ow : !q, !q, !q
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func.func @read_before
// CHECK: nn.rotary
// CHECK: nsa.attention {{.*}}visible(#nsa.compressed
// MISSED: [Missed] Rotation | Category:nsa-fuse-attention | Function=read_before | Reason="what is rotated is read before the compressed branch"
func.func @read_before(%q: !q, %kc: !kc, %vc: !kc, %k: !k, %t: !table) -> (!q, !q) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %ow, %lw = nsa.window_attention %qr, %k, %k {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o, %ow : !q, !q
}

// CHECK-LABEL: func.func @other_positions
// CHECK: nn.rotary
// CHECK: nsa.attention {{.*}}visible(#nsa.compressed
// MISSED: Function=other_positions | Reason="the queries are rotated by other angles than those of their positions"
func.func @other_positions(%q: !q, %kc: !kc, %vc: !kc, %t: !table) -> !q {
  %qr = nn.rotary %q, %t {inverse} : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  return %o : !q
}

// The keys stay outside, the queries do not.
// CHECK-LABEL: func.func @other_table
// CHECK: nsa.rotary_attention %arg0, %arg1, %arg2 rotary %arg4
// CHECK: nn.rotary %arg3, %arg5
// MISSED: Function=other_table | Reason="the keys are rotated by other angles than the queries"
func.func @other_table(%q: !q, %kc: !kc, %vc: !kc, %k: !k, %t: !table, %u: !table) -> (!q, !q) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %kr = nn.rotary %k, %u : (!k, !table) -> !k
  %ow, %lw = nsa.window_attention %qr, %kr, %k {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  return %o, %ow : !q, !q
}

// CHECK-LABEL: func.func @dependent
// CHECK: nsa.rotary_attention %arg0, %arg1, %arg2 rotary %arg3
// CHECK: nn.rotary
// MISSED: Function=dependent | Reason="the keys follow from the compressed branch"
func.func @dependent(%q: !q, %kc: tensor<1x3x2x4xf32>, %vc: tensor<1x3x2x4xf32>, %t: !table) -> !q {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %vc {block = 8 : i64, stride = 4 : i64} : (!q, tensor<1x3x2x4xf32>, tensor<1x3x2x4xf32>) -> (!q, !lse)
  %kr = nn.rotary %o, %t : (!q, !table) -> !q
  %ow, %lw = nsa.window_attention %qr, %kr, %o {window = 6 : i64} : (!q, !q, !q) -> (!q, !lse)
  return %ow : !q
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!lse = tensor<1x2x16xf32>
!table = tensor<16x2x2xf32>

// Gradients of which some are rotated back: not fused.
// CHECK-LABEL: func.func @some
// CHECK: nsa.combine_backward
// CHECK-NOT: nn.rotary
// CHECK: nsa.yield
// CHECK-NEXT: }
// CHECK: nn.rotary {{.*}} {inverse}
// MISSED: Function=some | Reason="the gradients of the queries and of all keys are not rotated back by the same angles"
func.func @some(%q: !q {nn.differentiate, nn.name = "q"}, %kc: !kc, %k: !k, %t: !table, %i: tensor<1x1x16x2xi32>, %g: tensor<1x16x2x3xf32>)
    -> (!q {nn.objective, nn.name = "y"}) {
  %qr = nn.rotary %q, %t : (!q, !table) -> !q
  %o, %lse = nsa.compressed_attention %qr, %kc, %kc {block = 8 : i64, stride = 4 : i64} : (!q, !kc, !kc) -> (!q, !lse)
  %os, %ls = nsa.selected_attention %qr, %k, %k, %i {select_block = 8 : i64} : (!q, !k, !k, tensor<1x1x16x2xi32>) -> (!q, !lse)
  %ow, %lw = nsa.window_attention %qr, %k, %k {window = 6 : i64} : (!q, !k, !k) -> (!q, !lse)
  %y = nsa.combine %g, %o, %os, %ow : (tensor<1x16x2x3xf32>, !q, !q, !q) -> !q
  return %y : !q
}

// With blocks of one token, the compressed branch may have the rotated keys
// itself. The operation that rotates cannot read what it makes.
// CHECK-LABEL: func.func @rotated_compressed_keys
// CHECK: %[[K:.*]] = nn.rotary %arg1
// CHECK: nsa.rotary_attention %arg0, %[[K]], %arg2
// CHECK: nsa.attention %{{.*}}, %[[K]], %arg2
func.func @rotated_compressed_keys(%q: tensor<1x16x2x16xf32>, %k: tensor<1x16x2x16xf32>, %v: tensor<1x16x2x16xf32>, %t: tensor<16x8x2xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>) {
  %qr = nn.rotary %q, %t : (tensor<1x16x2x16xf32>, tensor<16x8x2xf32>) -> tensor<1x16x2x16xf32>
  %kr = nn.rotary %k, %t : (tensor<1x16x2x16xf32>, tensor<16x8x2xf32>) -> tensor<1x16x2x16xf32>
  %o, %l = nsa.compressed_attention %qr, %kr, %v {block = 1 : i64, stride = 1 : i64} : (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x2x16xf32>)
  %o2, %l2 = nsa.window_attention %qr, %kr, %v {window = 8 : i64} : (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x2x16xf32>)
  return %o, %o2 : tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>
}

// CHECK-LABEL: func.func @keys_of_rotated_queries
// CHECK: %[[F:.*]] = nsa.rotary_attention %arg0
// CHECK: nn.rotary
func.func @keys_of_rotated_queries(%q: tensor<1x16x2x16xf32>, %k: tensor<1x1x2x16xf32>, %v: tensor<1x1x2x16xf32>, %w: tensor<1x16x2x16xf32>, %t: tensor<16x8x2xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>) {
  %qr = nn.rotary %q, %t : (tensor<1x16x2x16xf32>, tensor<16x8x2xf32>) -> tensor<1x16x2x16xf32>
  %o, %l = nsa.compressed_attention %qr, %k, %v {block = 16 : i64, stride = 16 : i64} : (tensor<1x16x2x16xf32>, tensor<1x1x2x16xf32>, tensor<1x1x2x16xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x2x16xf32>)
  %kr = nn.rotary %qr, %t : (tensor<1x16x2x16xf32>, tensor<16x8x2xf32>) -> tensor<1x16x2x16xf32>
  %o2, %l2 = nsa.window_attention %qr, %kr, %w {window = 8 : i64} : (tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>) -> (tensor<1x16x2x16xf32>, tensor<1x2x16xf32>)
  return %o, %o2 : tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>
}
