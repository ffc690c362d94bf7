// RUN: nsa-opt %s --split-input-file --nsa-set-input-shapes="micro-batch=3 seq-len=40" | FileCheck %s
// RUN: nsa-opt %s --split-input-file --nsa-set-input-shapes | FileCheck %s --check-prefix=KEEP
// RUN: nsa-opt %s --split-input-file --nsa-set-input-shapes="seq-len=40" --remarks-filter=nsa-set-input-shapes -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK

// Types of arguments, results and everything between follow; what has no named
// dimension stays.
// CHECK-LABEL: func @graph(
// CHECK-SAME: %[[X:.*]]: tensor<3x40x8xf32> {{.*}}, %[[W:.*]]: tensor<8x12xf32>)
// CHECK-SAME: -> (tensor<3x40x3x4xf32>, tensor<8x12xf32>)
// CHECK: nn.matmul %[[X]], %[[W]] : (tensor<3x40x8xf32>, tensor<8x12xf32>) -> tensor<3x40x12xf32>
// CHECK: nn.split_heads {{.*}} -> tensor<3x40x3x4xf32>
// CHECK: nn.silu %[[W]] : (tensor<8x12xf32>) -> tensor<8x12xf32>
// CHECK: return {{.*}} : tensor<3x40x3x4xf32>, tensor<8x12xf32>

// KEEP-LABEL: func @graph(
// KEEP-SAME: tensor<2x16x8xf32>

// REMARK: remark: [Analysis] SetInputShapes | Category:nsa-set-input-shapes | Function=graph
// REMARK-SAME: sequence length 40
func.func @graph(%x: tensor<2x16x8xf32> {nn.dims = ["batch", "seq", ""]}, %w: tensor<8x12xf32>)
    -> (tensor<2x16x3x4xf32>, tensor<8x12xf32>) {
  %0 = nn.matmul %x, %w : (tensor<2x16x8xf32>, tensor<8x12xf32>) -> tensor<2x16x12xf32>
  %1 = nn.split_heads %0 {heads = 3 : i64} : (tensor<2x16x12xf32>) -> tensor<2x16x3x4xf32>
  %2 = nn.silu %w : (tensor<8x12xf32>) -> tensor<8x12xf32>
  return %1, %2 : tensor<2x16x3x4xf32>, tensor<8x12xf32>
}

// -----

// The number of compressed blocks is inferred: (40 - 8) / 4 + 1.
// CHECK-LABEL: func @compressed(
// CHECK: nsa.compress mean {{.*}} : (tensor<3x40x1x4xf32>) -> tensor<3x9x1x4xf32>
// CHECK: nsa.attention {{.*}} : tensor<3x40x2x4xf32>, tensor<3x9x1x4xf32>, tensor<3x9x1x4xf32>
func.func @compressed(
    %q: tensor<1x16x2x4xf32> {nn.dims = ["batch", "seq", "", ""]},
    %k: tensor<1x16x1x4xf32> {nn.dims = ["batch", "seq", "", ""]}) -> tensor<1x16x2x4xf32> {
  %c = nsa.compress mean %k {block = 8 : i64, stride = 4 : i64} : (tensor<1x16x1x4xf32>) -> tensor<1x3x1x4xf32>
  %o, %lse = nsa.compressed_attention %q, %c, %c {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x16x2x4xf32>, tensor<1x3x1x4xf32>, tensor<1x3x1x4xf32>) -> (tensor<1x16x2x4xf32>, tensor<1x2x16xf32>)
  return %o : tensor<1x16x2x4xf32>
}
