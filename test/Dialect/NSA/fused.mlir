// RUN: nsa-opt %s | nsa-opt | FileCheck %s
// RUN: nsa-opt %s --mlir-print-op-generic | nsa-opt | FileCheck %s

!q = tensor<1x64x4x16xf32>
!k = tensor<1x64x2x16xf32>
!kc = tensor<1x15x2x16xf32>
!l = tensor<1x4x64xf32>
!i = tensor<1x2x64x3xi32>
!table = tensor<64x8x2xf32>

// One branch is given, two are inside with their gates; one of these is kept.
// CHECK-LABEL: func.func @sum
// CHECK: %[[F:.*]]:3 = nsa.fused %arg0, %arg1, %arg2, %arg3, %arg4 : ({{.*}}) -> ({{.*}}) {
// CHECK-NEXT: ^bb0(%[[Q:[^:]*]]: {{.*}}, %[[OC:[^:]*]]: {{.*}}, %[[K:[^:]*]]: {{.*}}, %[[I:[^:]*]]: {{.*}}, %[[Z:[^:]*]]: {{.*}}):
// CHECK-NEXT: %[[OS:.*]], %[[LS:.*]] = nsa.attention %[[Q]], %[[K]], %[[K]] visible(#nsa.selected<block = 16>, %[[I]] : {{.*}})
// CHECK-NEXT: %[[OW:.*]], %{{.*}} = nsa.attention %[[Q]], %[[K]], %[[K]] visible(#nsa.window<32>)
// CHECK-NEXT: %[[G:.*]] = nn.gate softmax %[[Z]]
// CHECK-NEXT: %[[O:.*]] = nsa.combine %[[G]], %[[OC]], %[[OS]], %[[OW]]
// CHECK-NEXT: nsa.yield %[[O]], %[[OS]], %[[LS]]
func.func @sum(%q: !q, %oc: !q, %k: !k, %i: !i, %z: tensor<1x64x12xf32>) -> !q {
  %o:3 = nsa.fused %q, %oc, %k, %i, %z : (!q, !q, !k, !i, tensor<1x64x12xf32>) -> (!q, !q, !l) {
  ^bb0(%x: !q, %c: !q, %key: !k, %b: !i, %logits: tensor<1x64x12xf32>):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 16>, %b : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<32>) : !q, !k, !k
    %g = nn.gate softmax %logits : (tensor<1x64x12xf32>) -> tensor<1x64x4x3xf32>
    %sum = nsa.combine %g, %c, %os, %ow : (tensor<1x64x4x3xf32>, !q, !q, !q) -> !q
    nsa.yield %sum, %os, %ls : !q, !q, !l
  }
  return %o#0 : !q
}

// CHECK-LABEL: func.func @gradients
// CHECK: nsa.fused
// CHECK: nsa.combine_backward
// CHECK: nsa.yield
func.func @gradients(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: tensor<1x64x8xf32>, %t: !table) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t
      : (!q, !q, !kc, !k, !q, !l, !i, tensor<1x64x8xf32>, !table) -> (!q, !kc, !kc, !k, !k, tensor<1x64x8xf32>) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: tensor<1x64x8xf32>, %angles: !table):
    %g = nn.gate sigmoid %logits {branches = 2 : i64} : (tensor<1x64x8xf32>) -> tensor<1x64x4x2xf32>
    %dg, %dc, %ds = nsa.combine_backward %dout, %g, %out, %out : (!q, tensor<1x64x4x2xf32>, !q, !q) -> (tensor<1x64x4x2xf32>, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %g {logits_type = f32}
        : (tensor<1x64x4x2xf32>, tensor<1x64x4x2xf32>) -> (tensor<1x64x8xf32>, tensor<8xf32>)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 16>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    %dqt = nn.rotary %dq, %angles {inverse} : (!q, !table) -> !q
    %dkct = nn.rotary %dkc, %angles {inverse, stride = 4 : i64} : (!kc, !table) -> !kc
    %dkst = nn.rotary %dks, %angles {inverse} : (!k, !table) -> !k
    nsa.yield %dqt, %dkct, %dvc, %dkst, %dvs, %dz : !q, !kc, !kc, !k, !k, tensor<1x64x8xf32>
  }
  return
}

// CHECK-LABEL: func.func @rotated
// CHECK: %o, %lse, %q_rotated, %k_rotated, %k_rotated_0 = nsa.rotary_attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} rotary %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>)
// CHECK: nsa.rotary_attention %{{.*}}, %{{.*}}, %{{.*}} rotary %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>) {scale = 5.000000e-01 : f64}
func.func @rotated(%q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x8xf32>, %ks: tensor<1x64x2x16xf32>,
    %kw: tensor<1x64x1x16xf32>, %t: tensor<64x8x2xf32>) {
  %r:5 = nsa.rotary_attention %q, %kc, %vc, %ks, %kw rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x8xf32>, tensor<1x64x2x16xf32>, tensor<1x64x1x16xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x8xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x1x16xf32>)
  %n:3 = nsa.rotary_attention %q, %kc, %vc rotary %t visible(#nsa.compressed<block = 8, stride = 4>) {scale = 0.5 : f64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x8xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x8xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>)
  return
}

!x = tensor<1x64x2x16xf32>
!y = tensor<1x15x2x16xf32>
!w = tensor<2x128x16xf32>
!w2 = tensor<2x16x16xf32>
!p = tensor<2x8x16xf32>

// CHECK-LABEL: func.func @compress_key_value
func.func @compress_key_value(%k: !x, %v: !x, %w: !w, %w2: !w2, %p: !p, %t: tensor<64x8x2xf32>) {
  // CHECK: %[[KC:.*]], %[[VC:.*]] = nsa.compress_key_value mean %arg0, %arg1 by(#nsa.compressed<block = 8, stride = 4>)
  %kc, %vc = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 4 : i64} : (!x, !x) -> (!y, !y)
  // CHECK: nsa.compress_key_value mlp %arg0(%arg2, %arg3, %arg4), %arg1(%arg2, %arg3, %arg4) rotary %arg5 by(#nsa.compressed<block = 8, stride = 4>)
  %a, %b = nsa.compress_key_value mlp %k (%w, %w2, %p), %v (%w, %w2, %p) rotary %t {block = 8 : i64, stride = 4 : i64}
      : (!x, !x, !w, !w2, !p, !w, !w2, !p, tensor<64x8x2xf32>) -> (!y, !y)
  // CHECK: %dk, %dv = nsa.compress_key_value_backward mean %[[KC]], %[[VC]], %arg0, %arg1 by(#nsa.compressed<block = 8, stride = 4>)
  %c:2 = nsa.compress_key_value_backward mean %kc, %vc, %k, %v {block = 8 : i64, stride = 4 : i64} : (!y, !y, !x, !x) -> (!x, !x)
  // CHECK: nsa.compress_key_value_backward linear %[[KC]], %[[VC]], %arg0(%arg2), %arg1(%arg2) by(#nsa.compressed<block = 8, stride = 4>)
  %d:4 = nsa.compress_key_value_backward linear %kc, %vc, %k (%w), %v (%w) {block = 8 : i64, stride = 4 : i64}
      : (!y, !y, !x, !x, !w, !w) -> (!x, !x, !w, !w)
  return
}

!packed = tensor<1x16x2x16xf32>
!start = tensor<1x64xi32>

// CHECK-LABEL: func.func @packed_sequences
func.func @packed_sequences(%q: !q, %k: !x, %w: !w, %t: tensor<64x8x2xf32>, %s: !start) {
  // CHECK: %[[KC:.*]], %[[VC:.*]] = nsa.compress_key_value linear %arg1(%arg2), %arg1(%arg2) rotary %arg3 start(%arg4) by(#nsa.compressed<block = 8, stride = 4>)
  %kc, %vc = nsa.compress_key_value linear %k (%w), %k (%w) rotary %t start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (!x, !x, !w, !w, tensor<64x8x2xf32>, !start) -> (!packed, !packed)
  // CHECK: nsa.compress_key_value_backward mean %[[KC]], %[[VC]], %arg1, %arg1 start(%arg4) by(#nsa.compressed<block = 8, stride = 4>)
  %d:2 = nsa.compress_key_value_backward mean %kc, %vc, %k, %k start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (!packed, !packed, !x, !x, !start) -> (!x, !x)
  // CHECK: nsa.rotary_attention %arg0, %[[KC]], %[[VC]], %arg1 rotary %arg3 start(%arg4) visible(#nsa.compressed<block = 8, stride = 4>)
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %k rotary %t start(%s) visible(#nsa.compressed<block = 8, stride = 4>)
      : (!q, !packed, !packed, !x, tensor<64x8x2xf32>, !start) -> (!q, !l, !q, !x)
  return
}
