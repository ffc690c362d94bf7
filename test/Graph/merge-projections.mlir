// RUN: nsa-opt %s --nsa-merge-projections --split-input-file | FileCheck %s
// RUN: nsa-opt %s --nsa-merge-projections --split-input-file --remarks-filter-passed=nsa-merge-projections -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSED
// RUN: nsa-opt %s --nsa-merge-projections --split-input-file --remarks-filter-missed=nsa-merge-projections -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// Parts follow each other as the parameters do, whatever the order of the
// matmuls; other readers of the value and other values are left alone.
// CHECK-LABEL: func.func @merged
// CHECK-NEXT: %[[W:.*]] = nn.flatten %arg2, %arg3 in ["a", "b"] : (tensor<32x8xf32>, tensor<16x8xf32>) -> tensor<48x8xf32>
// CHECK-NEXT: %[[Y:.*]] = nn.matmul %arg0, %[[W]] {transpose_rhs} : {{.*}} -> tensor<2x4x48xf32>
// CHECK-NEXT: %[[P:.*]]:2 = nn.split %[[Y]] {sizes = array<i64: 32, 16>}
// CHECK-NEXT: %[[S:.*]] = nn.silu %arg0
// CHECK-NEXT: %[[C:.*]] = nn.matmul %arg1, %arg3 {transpose_rhs}
// CHECK-NEXT: return %[[P]]#1, %[[S]], %[[P]]#0, %[[C]], %[[P]]#1
// PASSED: [Passed] Merge | Category:nsa-merge-projections | Function=merged | Remark="2 projections in one matmul of 48 columns"
func.func @merged(%x: tensor<2x4x8xf32>, %z: tensor<2x4x8xf32>,
    %a: tensor<32x8xf32> {nn.name = "a", nn.role = "parameter"},
    %b: tensor<16x8xf32> {nn.name = "b", nn.role = "parameter"})
    -> (tensor<2x4x16xf32>, tensor<2x4x8xf32>, tensor<2x4x32xf32>, tensor<2x4x16xf32>, tensor<2x4x16xf32>) {
  %0 = nn.matmul %x, %b {transpose_rhs} : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
  %1 = nn.silu %x : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.matmul %x, %a {transpose_rhs} : (tensor<2x4x8xf32>, tensor<32x8xf32>) -> tensor<2x4x32xf32>
  %3 = nn.matmul %z, %b {transpose_rhs} : (tensor<2x4x8xf32>, tensor<16x8xf32>) -> tensor<2x4x16xf32>
  return %0, %1, %2, %3, %0 : tensor<2x4x16xf32>, tensor<2x4x8xf32>, tensor<2x4x32xf32>, tensor<2x4x16xf32>, tensor<2x4x16xf32>
}

// -----

// CHECK-LABEL: func.func @refused
// CHECK-NOT: nn.flatten
// CHECK: return
// MISSED: [[@LINE+10]]:{{.*}} [Missed] Merge | Category:nsa-merge-projections | Function=refused | Reason="its weight is not [out, in]"
// MISSED: [[@LINE+10]]:{{.*}} Reason="its parameter would be followed by a gap"
// MISSED: [[@LINE+10]]:{{.*}} Reason="its right-hand side is no parameter"
// MISSED: [[@LINE+10]]:{{.*}} Reason="it is added to something"
func.func @refused(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %acc: tensor<4x16xf32>,
    %t: tensor<8x16xf32> {nn.name = "t", nn.role = "parameter"},
    %o: tensor<3x8xf32> {nn.name = "o", nn.role = "parameter"},
    %s: tensor<16x8xf32> {nn.name = "s", nn.role = "parameter"},
    %d: tensor<16x8xf32> {nn.name = "d", nn.role = "parameter", nn.decay})
    -> (tensor<4x16xf32>, tensor<4x3xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>) {
  %0 = nn.matmul %x, %t : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = nn.matmul %x, %o {transpose_rhs} : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32>
  %2 = nn.matmul %x, %w {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %3 = nn.matmul %x, %s, %acc {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  // Updates of weights with and without decay keep their tensors apart.
  %4 = nn.matmul %x, %s {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %5 = nn.matmul %x, %d {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<4x16xf32>, tensor<4x3xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
}

// -----

// The functions share the memory of the parameters.
// CHECK-LABEL: func.func @first
// CHECK: nn.flatten %{{.*}} in ["a", "b", "c"]
func.func @first(%x: tensor<4x8xf32>,
    %a: tensor<16x8xf32> {nn.name = "a", nn.role = "parameter"},
    %b: tensor<16x8xf32> {nn.name = "b", nn.role = "parameter"},
    %c: tensor<16x8xf32> {nn.name = "c", nn.role = "parameter"})
    -> (tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>) {
  %0 = nn.matmul %x, %a {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %1 = nn.matmul %x, %b {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %2 = nn.matmul %x, %c {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0, %1, %2 : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x16xf32>
}
// CHECK-LABEL: func.func @range
// CHECK: nn.flatten %{{.*}} in ["b", "c"]
func.func @range(%x: tensor<4x8xf32>,
    %b: tensor<16x8xf32> {nn.name = "b", nn.role = "parameter"},
    %c: tensor<16x8xf32> {nn.name = "c", nn.role = "parameter"})
    -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %0 = nn.matmul %x, %b {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %1 = nn.matmul %x, %c {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0, %1 : tensor<4x16xf32>, tensor<4x16xf32>
}
// CHECK-LABEL: func.func @other_order
// CHECK-NOT: nn.flatten
// CHECK: return
// MISSED: Function=other_order | Reason="other matmuls have these weights in another order"
func.func @other_order(%x: tensor<4x8xf32>,
    %a: tensor<16x8xf32> {nn.name = "a", nn.role = "parameter"},
    %c: tensor<16x8xf32> {nn.name = "c", nn.role = "parameter"})
    -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %0 = nn.matmul %x, %a {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %1 = nn.matmul %x, %c {transpose_rhs} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return %0, %1 : tensor<4x16xf32>, tensor<4x16xf32>
}
