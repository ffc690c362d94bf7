// RUN: nsa-opt %s --nsa-differentiate --split-input-file --verify-diagnostics | FileCheck %s

// Queries and compressed keys get gradient through the compressed output only,
// never through the indices.
// CHECK-LABEL: func @branches(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x64x4x16xf32>
// CHECK: %[[C:.*]] = nsa.compress linear
// CHECK: %[[O0:.*]], %[[L0:.*]] = nsa.attention {{.*}}visible(#nsa.compressed
// CHECK: %[[I:.*]] = nsa.select
// CHECK: %[[O1:.*]], %[[L1:.*]] = nsa.attention {{.*}}visible(#nsa.selected
// CHECK: %[[O2:.*]], %[[L2:.*]] = nsa.attention {{.*}}visible(#nsa.window
// CHECK: nsa.combine
// CHECK: %[[DG:.*]], %[[D:.*]]:3 = nsa.combine_backward %{{.*}}, %{{.*}}, %[[O0]], %[[O1]], %[[O2]]
// CHECK: nsa.attention_backward %[[D]]#2, %[[Q]], %{{.*}}, %{{.*}}, %[[O2]], %[[L2]] visible(#nsa.window<32>) {scale = 5.000000e-01 : f64}
// CHECK: nsa.attention_backward %[[D]]#1, %[[Q]], %{{.*}}, %{{.*}}, %[[O1]], %[[L1]] visible(#nsa.selected<block = 16>, %[[I]] : 
// CHECK-NOT: nsa.select
// CHECK: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = nsa.attention_backward %[[D]]#0, %[[Q]], %[[C]], %[[C]], %[[O0]], %[[L0]]
// CHECK: %[[DC:.*]] = nn.add %[[DK]], %[[DV]]
// CHECK: nsa.compress_backward linear %[[DC]], %{{.*}}, %{{.*}} by(#nsa.compressed<block = 8, stride = 4>)
func.func @branches(%q: tensor<1x64x4x16xf32> {nn.differentiate}, %k: tensor<1x64x2x16xf32> {nn.differentiate},
                    %w: tensor<2x128x16xf32> {nn.differentiate}, %gates: tensor<1x64x4x3xf32> {nn.differentiate})
    -> (tensor<1x64x4x16xf32> {nn.objective}) {
  %c = nsa.compress linear %k, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
  %cmp, %lse = nsa.compressed_attention %q, %c, %c {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %i = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  %slc, %lse1 = nsa.selected_attention %q, %k, %k, %i {select_block = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x3xi32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %win, %lse2 = nsa.window_attention %q, %k, %k {window = 32 : i64, scale = 0.5 : f64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  %o = nsa.combine %gates, %cmp, %slc, %win
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>) -> tensor<1x64x4x16xf32>
  return %o : tensor<1x64x4x16xf32>
}

// -----

// Every parameter of a compression gets a gradient in fp32.
// CHECK-LABEL: func @mlp(
// CHECK: %{{.*}}, %[[DW:.*]], %[[DW2:.*]], %[[DP:.*]] = nsa.compress_backward mlp %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} by(#nsa.compressed<block
// CHECK-SAME: -> (tensor<1x64x2x16xbf16>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
// CHECK: %[[CW:.*]] = nn.cast %[[DW]] to bf16
// CHECK: %[[CW2:.*]] = nn.cast %[[DW2]] to bf16
// CHECK: %[[CP:.*]] = nn.cast %[[DP]] to bf16
// CHECK: return %{{.*}}, %[[CW]], %[[CW2]], %[[CP]]
func.func @mlp(%x: tensor<1x64x2x16xbf16>, %w: tensor<2x128x16xbf16> {nn.differentiate},
               %w2: tensor<2x16x16xbf16> {nn.differentiate}, %p: tensor<2x8x16xbf16> {nn.differentiate})
    -> (tensor<1x15x2x16xbf16> {nn.objective}) {
  %y = nsa.compress mlp %x, %w, %w2, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xbf16>, tensor<2x128x16xbf16>, tensor<2x16x16xbf16>, tensor<2x8x16xbf16>)
      -> tensor<1x15x2x16xbf16>
  return %y : tensor<1x15x2x16xbf16>
}

// -----

func.func @lse(%q: tensor<1x64x4x16xf32> {nn.differentiate}, %k: tensor<1x64x2x16xf32>) -> (tensor<1x4x64xf32> {nn.objective}) {
  // expected-error @below {{has no gradient with respect to lse}}
  %o, %lse = nsa.window_attention %q, %k, %k {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %lse : tensor<1x4x64xf32>
}

// -----

// Queries inside of longer sequences: the gradient of rotations, attention and
// keys is for the same place.
// CHECK-LABEL: func @at(
// CHECK-SAME: %[[AT:[^:]*]]: tensor<2x2xi32>
// CHECK: nsa.attention_backward {{.*}} visible(#nsa.window<32>) at(%[[AT]] : tensor<2x2xi32>)
// CHECK: nn.rotary %{{.*}}, %{{.*}} at(%[[AT]]) {inverse}
func.func @at(%at: tensor<2x2xi32>, %q: tensor<2x16x4x16xf32> {nn.differentiate}, %k: tensor<3x64x2x16xf32> {nn.differentiate},
              %table: tensor<64x8x2xf32>) -> (tensor<2x16x4x16xf32> {nn.objective}) {
  %r = nn.rotary %q, %table at(%at) : (tensor<2x16x4x16xf32>, tensor<64x8x2xf32>, tensor<2x2xi32>) -> tensor<2x16x4x16xf32>
  %o, %lse = nsa.attention %r, %k, %k visible(#nsa.window<32>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>
  return %o : tensor<2x16x4x16xf32>
}
