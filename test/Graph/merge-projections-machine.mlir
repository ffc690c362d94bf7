// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-merge-projections | FileCheck %s
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-merge-projections --remarks-filter-missed=nsa-merge-projections -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED
// RUN: nsa-opt %s --nsa-merge-projections | FileCheck %s --check-prefix=ANY

// Twelve columns would leave those after them, and all rows but the first, at
// addresses that are no multiple of 8 elements.
// CHECK: %[[W:.*]] = nn.flatten %arg1, %arg3 in ["a", "c"]
// CHECK: nn.matmul %arg0, %[[W]] {transpose_rhs} : {{.*}} -> tensor<4x40xf32>
// CHECK: nn.matmul %arg0, %arg2 {transpose_rhs} : {{.*}} -> tensor<4x12xf32>
// MISSED: [[@LINE+8]]:{{.*}} Reason="its columns are no multiple of what rows are aligned to"
// ANY: nn.flatten %arg1, %arg2, %arg3 in ["a", "b", "c"]
func.func @odd(%x: tensor<4x8xf32>,
    %a: tensor<32x8xf32> {nn.name = "a", nn.role = "parameter"},
    %b: tensor<12x8xf32> {nn.name = "b", nn.role = "parameter"},
    %c: tensor<8x8xf32> {nn.name = "c", nn.role = "parameter"})
    -> (tensor<4x32xf32>, tensor<4x12xf32>, tensor<4x8xf32>) {
  %0 = nn.matmul %x, %a {transpose_rhs} : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %1 = nn.matmul %x, %b {transpose_rhs} : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %2 = nn.matmul %x, %c {transpose_rhs} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x32xf32>, tensor<4x12xf32>, tensor<4x8xf32>
}
