// RUN: nsa-opt %s -split-input-file --nsa-buffer | FileCheck %s
// RUN: nsa-opt %s -split-input-file --nsa-buffer --nsa-bucket-all-reduce | FileCheck %s --check-prefix=BUCKET
// RUN: nsa-opt %s -split-input-file --nsa-buffer --nsa-bucket-all-reduce --nsa-overlap-all-reduce | FileCheck %s --check-prefix=OVERLAP
// RUN: nsa-opt %s -split-input-file --nsa-buffer --nsa-phase-collective --nsa-plan -o /dev/null
// RUN: not nsa-opt %s --nsa-bucket-all-reduce=bucket-mib=0 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not nsa-opt %s -split-input-file --nsa-buffer --nsa-phase-collective=bucket-mib=9000000000000000000 2>&1 | FileCheck %s --check-prefix=OVERFLOW
// OVERFLOW: bucket-mib 9000000000000000000, expected 1 to 1099511627776
// LIMIT: error: bucket of 0 MiB, expected 1 to 1099511627776

// Gradients are reduced in place, where matmuls have summed them up. Those
// that lie one after the other are one bucket, and the reduction runs beside the
// matmuls that follow.

// CHECK-LABEL: rt.entry @step
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %grad.a {beta = 1.0
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %grad.b {beta = 1.0
// CHECK-NOT: rt.copy
// CHECK: rt.collective_start all_reduce %grad.a : memref<16x16xf32>
// CHECK-NEXT: rt.collective_done %grad.a : memref<16x16xf32>
// CHECK-NEXT: rt.collective_start all_reduce %grad.b : memref<16x16xf32>
// CHECK-NEXT: rt.collective_done %grad.b : memref<16x16xf32>
// CHECK-NOT: rt.copy

// BUCKET-LABEL: rt.entry @step
// BUCKET-NOT: rt.collective_start all_reduce %grad
// BUCKET: %[[SPAN:.*]] = rt.flat_view [@grad.a, @grad.b] : memref<512xf32>
// BUCKET-NEXT: rt.collective_start all_reduce %[[SPAN]] : memref<512xf32>
// BUCKET-NEXT: rt.collective_done %[[SPAN]] : memref<512xf32>
// BUCKET-NOT: rt.all_reduce
// BUCKET-LABEL: rt.entry @copied

// OVERLAP-LABEL: rt.entry @step
// OVERLAP: rt.gemm %{{.*}}, %{{.*}}, %grad.a {beta = 1.0
// OVERLAP: rt.gemm %{{.*}}, %{{.*}}, %grad.b {beta = 1.0
// OVERLAP-NEXT: %[[SPAN:.*]] = rt.flat_view [@grad.a, @grad.b] : memref<512xf32>
// OVERLAP-NEXT: rt.collective_start all_reduce %[[SPAN]] : memref<512xf32>
// OVERLAP-NEXT: rt.gemm %{{.*}}, %{{.*}}, %result0
// OVERLAP: rt.collective_done %[[SPAN]] : memref<512xf32>
// OVERLAP-NEXT: rt.gemm
func.func @step(%x: tensor<16x16xf32> {nn.name = "x", nn.role = "input"},
                %a: tensor<16x16xf32> {nn.name = "grad.a", nn.role = "gradient"},
                %b: tensor<16x16xf32> {nn.name = "grad.b", nn.role = "gradient"})
    -> (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>,
        tensor<16x16xf32> {nn.alias = "grad.a"}, tensor<16x16xf32> {nn.alias = "grad.b"}) {
  %a1 = nn.matmul %x, %x, %a : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %b1 = nn.matmul %x, %x, %b {transpose_lhs} : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %other = nn.matmul %x, %x {transpose_rhs} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %a2 = nn.all_reduce %a1 : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %b2 = nn.all_reduce %b1 : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %p = nn.matmul %x, %a2 : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %q = nn.matmul %x, %b2 : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %zero = nn.fill 0.0 : tensor<16x16xf32>
  return %other, %p, %q, %zero, %zero : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// What is read elsewhere is reduced in a copy.

// CHECK-LABEL: rt.entry @copied
// CHECK: rt.copy %x, %[[COPY:.*]] :
// CHECK-NEXT: rt.collective_start all_reduce %[[COPY]]
// CHECK-NEXT: rt.collective_done %[[COPY]]
func.func @copied(%x: tensor<16x16xf32> {nn.name = "x", nn.role = "input"})
    -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %mean = nn.all_reduce %x : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %y = nn.matmul %x, %mean : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %mean, %y : tensor<16x16xf32>, tensor<16x16xf32>
}
