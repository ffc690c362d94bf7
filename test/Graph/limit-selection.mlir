// RUN: nsa-opt %s --nsa-limit-selection --split-input-file | FileCheck %s
// RUN: nsa-opt %s --nsa-limit-selection --split-input-file --remarks-filter-passed=nsa-limit-selection -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSED
// RUN: nsa-opt %s --nsa-pipeline="until=kernel fuse=false" --split-input-file | FileCheck %s --check-prefix=KERNEL

// Readers of the dialect take the 4 blocks that there are; the function's
// result keeps its shape.
// CHECK-LABEL: func.func @returned
// CHECK: %[[FEW:.*]] = nsa.select {{.*}}count = 4>) {{.*}} -> tensor<1x2x64x4xi32>
// CHECK: %[[ALL:.*]] = nsa.select {{.*}}count = 80>) {{.*}} -> tensor<1x2x64x80xi32>
// CHECK: nsa.attention %{{.*}}, %{{.*}}, %{{.*}} visible(#nsa.selected<block = 16>, %[[FEW]] : 
// CHECK: return %{{.*}}, %[[ALL]]
// PASSED: [Passed] LimitSelection | Category:nsa-limit-selection | Function=returned | Remark="the sequence has 4 blocks of 16 tokens: 76 of the 80 to select are left out"

// Kernels have no tile of 80 indices; the padding is stored 4 at a time.
// KERNEL-LABEL: func.func @returned
// KERNEL-DAG: tile.launch @select_{{.*}}n4_f32
// KERNEL-DAG: tile.launch @select_{{.*}}n80_f32
// KERNEL-DAG: tile.launch @selected_attention_{{.*}}n4_f32
// KERNEL-NOT: tile<{{[0-9]+}}x80x
func.func @returned(%q: tensor<1x64x4x16xf32>, %c: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>, %k: tensor<1x64x2x16xf32>)
    -> (tensor<1x64x4x16xf32>, tensor<1x2x64x80xi32>) {
  %i = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 80 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x80xi32>
  %o, %l = nsa.selected_attention %q, %k, %k, %i {select_block = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x80xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %o, %i : tensor<1x64x4x16xf32>, tensor<1x2x64x80xi32>
}

// -----

// As many as there are, or indices that nothing reads: nothing to do.
// CHECK-LABEL: func.func @alone
// CHECK-COUNT-2: nsa.select %
// CHECK-NOT: nsa.select %
// PASSED-NOT: Function=alone
func.func @alone(%q: tensor<1x63x4x16xf32>, %c: tensor<1x14x2x16xf32>, %lse: tensor<1x4x63xf32>)
    -> (tensor<3xf32>, tensor<1x2x63x9xi32>) {
  %i = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 4 : i64}
      : (tensor<1x63x4x16xf32>, tensor<1x14x2x16xf32>, tensor<1x4x63xf32>) -> tensor<1x2x63x4xi32>
  %s = nsa.selection_statistics %i {select_block = 16 : i64} : (tensor<1x2x63x4xi32>) -> tensor<3xf32>
  %j = nsa.select %q, %c, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 9 : i64}
      : (tensor<1x63x4x16xf32>, tensor<1x14x2x16xf32>, tensor<1x4x63xf32>) -> tensor<1x2x63x9xi32>
  return %s, %j : tensor<3xf32>, tensor<1x2x63x9xi32>
}
