// RUN: nsa-opt %s | nsa-opt | FileCheck %s
// RUN: nsa-opt %s --mlir-print-op-generic | nsa-opt | FileCheck %s

// CHECK-LABEL: func.func @forward
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = nsa.gated_attention sigmoid %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8 visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep} :
func.func @forward(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  %r:5 = nsa.gated_attention sigmoid %q, %oc, %ks, %vs, %i, %kw, %vw, %g, %b
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {keep}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return
}

// Without a gradient nothing is kept; given gates have no bias.
// CHECK-LABEL: func.func @inference
// CHECK: %o = nsa.gated_attention given %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7 visible(#nsa.selected<block = 16>, #nsa.window<32>) {scale = 5.000000e-01 : f64} :
func.func @inference(%q: tensor<1x64x4x16xf32>, %oc: tensor<1x64x4x16xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>, %vw: tensor<1x64x2x16xf32>, %g: tensor<1x64x4x3xf32>) {
  %r = nsa.gated_attention given %q, %oc, %ks, %vs, %i, %kw, %vw, %g
      visible(#nsa.selected<block = 16>, #nsa.window<32>) {scale = 0.5 : f64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>)
      -> (tensor<1x64x4x16xf32>)
  return
}

// CHECK-LABEL: func.func @backward
// CHECK: %dq, %dk_cmp, %dv_cmp, %dk_slc, %dv_slc, %dk_win, %dv_win, %dgates, %dbias = nsa.gated_attention_backward softmax
// CHECK-SAME: visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
func.func @backward(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>,
    %b: tensor<12xf32>) {
  %r:9 = nsa.gated_attention_backward softmax %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g, %b
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>, tensor<12xf32>)
  return
}

// Without a bias it has no gradient.
// CHECK-LABEL: func.func @no_bias
// CHECK: %dq, %dk_cmp, %dv_cmp, %dk_slc, %dv_slc, %dk_win, %dv_win, %dgates = nsa.gated_attention_backward sigmoid
func.func @no_bias(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x12xf32>) {
  %r:8 = nsa.gated_attention_backward sigmoid %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x12xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x12xf32>)
  return
}

// CHECK-LABEL: func.func @rotated_back
// CHECK: nsa.gated_attention_backward given {{.*}} rotary %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
func.func @rotated_back(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x4x3xf32>, %t: tensor<64x8x2xf32>) {
  %r:8 = nsa.gated_attention_backward given %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g rotary %t
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>)
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x4x3xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>)
  return
}

// CHECK-LABEL: func.func @all_rotated_back
// CHECK: nsa.gated_attention_backward given {{.*}} rotary %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>) {rotate_tokens}
func.func @all_rotated_back(%do: tensor<1x64x4x16xf32>, %q: tensor<1x64x4x16xf32>, %kc: tensor<1x15x2x16xf32>, %vc: tensor<1x15x2x16xf32>,
    %oc: tensor<1x64x4x16xf32>, %lc: tensor<1x4x64xf32>, %ks: tensor<1x64x2x16xf32>, %vs: tensor<1x64x2x16xf32>,
    %os: tensor<1x64x4x16xf32>, %ls: tensor<1x4x64xf32>, %i: tensor<1x2x64x3xi32>, %kw: tensor<1x64x2x16xf32>,
    %vw: tensor<1x64x2x16xf32>, %ow: tensor<1x64x4x16xf32>, %lw: tensor<1x4x64xf32>, %g: tensor<1x64x4x3xf32>, %t: tensor<64x8x2xf32>) {
  %r:8 = nsa.gated_attention_backward given %do, %q, %kc, %vc, %oc, %lc, %ks, %vs, %os, %ls, %i, %kw, %vw, %ow, %lw, %g rotary %t
      visible(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16>, #nsa.window<32>) {rotate_tokens}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x2x64x3xi32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>,
         tensor<1x4x64xf32>, tensor<1x64x4x3xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x4x3xf32>)
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
  // CHECK: %[[KC:.*]], %[[VC:.*]] = nsa.compress_key_value mean %arg0, %arg1 {block = 8 : i64, stride = 4 : i64}
  %kc, %vc = nsa.compress_key_value mean %k, %v {block = 8 : i64, stride = 4 : i64} : (!x, !x) -> (!y, !y)
  // CHECK: nsa.compress_key_value mlp %arg0(%arg2, %arg3, %arg4), %arg1(%arg2, %arg3, %arg4) rotary %arg5 {block = 8 : i64, stride = 4 : i64}
  %a, %b = nsa.compress_key_value mlp %k (%w, %w2, %p), %v (%w, %w2, %p) rotary %t {block = 8 : i64, stride = 4 : i64}
      : (!x, !x, !w, !w2, !p, !w, !w2, !p, tensor<64x8x2xf32>) -> (!y, !y)
  // CHECK: %dk, %dv = nsa.compress_key_value_backward mean %[[KC]], %[[VC]], %arg0, %arg1 {block = 8 : i64, stride = 4 : i64}
  %c:2 = nsa.compress_key_value_backward mean %kc, %vc, %k, %v {block = 8 : i64, stride = 4 : i64} : (!y, !y, !x, !x) -> (!x, !x)
  // CHECK: nsa.compress_key_value_backward linear %[[KC]], %[[VC]], %arg0(%arg2), %arg1(%arg2) {block = 8 : i64, stride = 4 : i64}
  %d:4 = nsa.compress_key_value_backward linear %kc, %vc, %k (%w), %v (%w) {block = 8 : i64, stride = 4 : i64}
      : (!y, !y, !x, !x, !w, !w) -> (!x, !x, !w, !w)
  return
}
