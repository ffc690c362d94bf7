// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-fuse-attention --nsa-select-schedule --nsa-rotate-with-compression --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// On a GPU each program would read the table again: programs of the launch that
// compresses keys rotate instead, a few heads of 64 rows each.
// CHECK-LABEL: func.func @with_compression
// CHECK: %[[C:.+]]:4 = tile.launch @compress_key_value_rotary_mean_{{[^(]*}}(%arg1, %arg4, %arg2, %arg0, %arg4, %arg3, %arg4)
// CHECK-NEXT: %[[O:.+]]:2 = tile.launch @compressed_attention_{{[^(]*}}(%[[C]]#2, %[[C]]#0, %[[C]]#1)
// CHECK-NEXT: return %[[O]]#0, %[[C]]#2, %[[C]]#3
func.func @with_compression(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>, %ks: tensor<1x64x2x16xf32>,
                            %t: tensor<64x8x2xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>) {
  %kc, %vc = nsa.compress_key_value mean %k, %v rotary %t {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>) -> (tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>)
  %r:4 = nsa.rotary_attention %q, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  return %r#0, %r#2, %r#3 : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>
}

!q = tensor<1x64x4x16xf32>
!k = tensor<1x64x2x16xf32>
!kc = tensor<1x15x2x16xf32>
!l = tensor<1x4x64xf32>
!g = tensor<1x64x4x3xf32>
!t = tensor<64x8x2xf32>
!i = tensor<1x2x64x3xi32>

// So do programs of the last launch for the gradients.
// CHECK-LABEL: func.func @backward
// CHECK: tile.launch @gated_attention_backward_dq_selected
// CHECK: %[[DQ:.+]] = tile.launch @gated_attention_backward_dq_dense
// CHECK: %[[W:.+]]:2 = tile.launch @gated_attention_backward_dkdv_window
// CHECK: %[[S:.+]]:2 = tile.launch @gated_attention_backward_dkdv_selected
// CHECK: %[[C:.+]]:5 = tile.launch @gated_attention_backward_dkdv_compressed_{{[^(]*}}({{.*}}, %[[DQ]], %{{[^,]*}}, %[[W]]#0, %{{[^,]*}}, %[[S]]#0, %
// CHECK-NEXT: return %[[C]]#2, %[[C]]#0, %[[C]]#1, %[[C]]#4, %[[S]]#1, %[[C]]#3, %[[W]]#1
func.func @backward(%do: !q, %q: !q, %kc: !kc, %l: !l, %k: !k, %i: !i, %g: !g, %t: !t) -> (!q, !kc, !kc, !k, !k, !k, !k) {
  %dg, %dc, %ds, %dw = nsa.combine_backward %do, %g, %do, %do, %do : (!q, !g, !q, !q, !q) -> (!g, !q, !q, !q)
  %dqc, %dkc, %dvc = nsa.attention_backward %dc, %q, %kc, %kc, %do, %l visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
  %dqs, %dks, %dvs = nsa.attention_backward %ds, %q, %k, %k, %do, %l visible(#nsa.selected<block = 16>, %i : !i) : !q, !q, !k, !k, !q, !l
  %dqw, %dkw, %dvw = nsa.attention_backward %dw, %q, %k, %k, %do, %l visible(#nsa.window<32>) : !q, !q, !k, !k, !q, !l
  %d0 = nn.add %dqc, %dqs : (!q, !q) -> !q
  %dq = nn.add %d0, %dqw : (!q, !q) -> !q
  %dqt = nn.rotary %dq, %t {inverse} : (!q, !t) -> !q
  %dkct = nn.rotary %dkc, %t {inverse, stride = 4 : i64} : (!kc, !t) -> !kc
  %dkst = nn.rotary %dks, %t {inverse} : (!k, !t) -> !k
  %dkwt = nn.rotary %dkw, %t {inverse} : (!k, !t) -> !k
  return %dqt, %dkct, %dvc, %dkst, %dvs, %dkwt, %dvw : !q, !kc, !kc, !k, !k, !k, !k
}
