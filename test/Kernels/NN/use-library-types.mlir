// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-use-library-types | FileCheck %s
// RUN: nsa-opt %s --nsa-use-library-types | FileCheck %s --check-prefix=CPU

// The library of a GPU has no matmuls of fp32 with results of 16 bits, nor of
// bf16 with results in fp16.

// CHECK-LABEL: func.func @narrow(
// CHECK-SAME: %[[X:.+]]: tensor<8x16xf32>, %[[W:.+]]: tensor<24x16xf32>
// CHECK: %[[PRODUCT:.+]] = nn.matmul %[[X]], %[[W]] {result_type = f32, transpose_rhs} : {{.*}} -> tensor<8x24xf32>
// CHECK: nn.cast %[[PRODUCT]]
// CPU-LABEL: func.func @narrow(
// CPU: nn.matmul {{.*}} -> tensor<8x24xbf16>
func.func @narrow(%x: tensor<8x16xf32>, %w: tensor<24x16xf32>) -> tensor<8x24xbf16> {
  %y = nn.matmul %x, %w {transpose_rhs, result_type = bf16} : (tensor<8x16xf32>, tensor<24x16xf32>) -> tensor<8x24xbf16>
  return %y : tensor<8x24xbf16>
}

// CHECK-LABEL: func.func @adds(
// CHECK: %[[SUM:.+]] = nn.cast
// CHECK: %[[PRODUCT:.+]] = nn.matmul %{{.+}}, %{{.+}}, %[[SUM]] {{.*}} -> tensor<8x24xf32>
// CHECK: nn.cast %[[PRODUCT]]
func.func @adds(%x: tensor<8x16xbf16>, %w: tensor<16x24xbf16>, %sum: tensor<8x24xf16>) -> tensor<8x24xf16> {
  %y = nn.matmul %x, %w, %sum {result_type = f16} : (tensor<8x16xbf16>, tensor<16x24xbf16>, tensor<8x24xf16>) -> tensor<8x24xf16>
  return %y : tensor<8x24xf16>
}

// CHECK-LABEL: func.func @same(
// CHECK-NEXT: nn.matmul {{.*}} -> tensor<8x24xbf16>
// CHECK-NEXT: nn.matmul {{.*}} -> tensor<8x24xf32>
func.func @same(%x: tensor<8x16xbf16>, %w: tensor<16x24xbf16>) -> (tensor<8x24xbf16>, tensor<8x24xf32>) {
  %y = nn.matmul %x, %w : (tensor<8x16xbf16>, tensor<16x24xbf16>) -> tensor<8x24xbf16>
  %z = nn.matmul %x, %w {result_type = f32} : (tensor<8x16xbf16>, tensor<16x24xbf16>) -> tensor<8x24xf32>
  return %y, %z : tensor<8x24xbf16>, tensor<8x24xf32>
}
