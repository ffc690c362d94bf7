// RUN: nsa-opt %s --nsa-buffer | FileCheck %s
// RUN: nsa-opt %s --pass-pipeline='builtin.module(nsa-buffer,rt.entry(nsa-overlap-all-reduce),nsa-plan)' | FileCheck %s --check-prefix=OVERLAP

// A gather begins when its operand is there, and is waited for before the first
// reader; a sum takes the place of an operand that nothing else reads.

// CHECK-LABEL: rt.entry @f
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %[[X:.*]] :
// CHECK: %[[WHOLE:.*]] = rt.buffer : memref<1x16x1x4xf32>
// CHECK: rt.write_sequence chunks %{{.*}}, %[[WHOLE]] {ranks = 2 : i64} : memref<2x4x1x4xf32>, memref<1x16x1x4xf32>
// CHECK-NEXT: rt.collective_start gather_sequence %[[WHOLE]] {ranks = 2 : i64} : memref<1x16x1x4xf32>
// CHECK-NEXT: rt.collective_done %[[WHOLE]] : memref<1x16x1x4xf32>
// CHECK: rt.collective_start reduce_scatter_sequence %[[SUM:.*]] {ranks = 2 : i64} : memref<1x16x1x4xf32>
// CHECK-NEXT: rt.collective_done %[[SUM]]
// CHECK-NEXT: rt.slice_sequence chunks %[[SUM]], %{{.*}} {ranks = 2 : i64} : memref<1x16x1x4xf32>, memref<2x4x1x4xf32>
// CHECK-NOT: rt.copy

// OVERLAP-LABEL: rt.entry @f
// OVERLAP: rt.write_sequence
// OVERLAP-NEXT: rt.collective_start gather_sequence
// OVERLAP-NEXT: rt.gemm
func.func @f(%x: tensor<2x4x8xf32> {nn.name = "x", nn.role = "input"},
             %w: tensor<4x8xf32> {nn.name = "w", nn.role = "input"}) -> (tensor<2x4x1x4xf32>, tensor<8x4xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x4xf32>
  %h = nn.split_heads %p {heads = 1 : i64} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %s = nn.gather_sequence %h {ranks = 2 : i64} : (tensor<2x4x1x4xf32>) -> tensor<1x16x1x4xf32>
  %other = nn.matmul %x, %p {transpose_lhs} : (tensor<2x4x8xf32>, tensor<2x4x4xf32>) -> tensor<8x4xf32>
  %m = nn.merge_heads %s : (tensor<1x16x1x4xf32>) -> tensor<1x16x4xf32>
  %y = nn.matmul %m, %other {transpose_rhs} : (tensor<1x16x4xf32>, tensor<8x4xf32>) -> tensor<1x16x8xf32>
  %z = nn.matmul %y, %other : (tensor<1x16x8xf32>, tensor<8x4xf32>) -> tensor<1x16x4xf32>
  %zh = nn.split_heads %z {heads = 1 : i64} : (tensor<1x16x4xf32>) -> tensor<1x16x1x4xf32>
  %r = nn.reduce_scatter_sequence %zh {ranks = 2 : i64} : (tensor<1x16x1x4xf32>) -> tensor<2x4x1x4xf32>
  return %r, %other : tensor<2x4x1x4xf32>, tensor<8x4xf32>
}

// What is read later stays.
// CHECK-LABEL: rt.entry @kept
// CHECK: rt.copy %{{.*}}, %[[COPY:.*]] : memref<1x16x1x4xf32>
// CHECK-NEXT: rt.collective_start reduce_scatter_sequence %[[COPY]]
func.func @kept(%x: tensor<1x16x8xf32>, %w: tensor<8x4xf32>) -> (tensor<2x4x1x4xf32>, tensor<1x16x16xf32>) {
  %z = nn.matmul %x, %w : (tensor<1x16x8xf32>, tensor<8x4xf32>) -> tensor<1x16x4xf32>
  %zh = nn.split_heads %z {heads = 1 : i64} : (tensor<1x16x4xf32>) -> tensor<1x16x1x4xf32>
  %r = nn.reduce_scatter_sequence %zh {ranks = 2 : i64} : (tensor<1x16x1x4xf32>) -> tensor<2x4x1x4xf32>
  %y = nn.matmul %z, %z {transpose_rhs} : (tensor<1x16x4xf32>, tensor<1x16x4xf32>) -> tensor<1x16x16xf32>
  return %r, %y : tensor<2x4x1x4xf32>, tensor<1x16x16xf32>
}

// Rows of windows are joined of chunks and the last tokens of those before.
// CHECK-LABEL: rt.entry @halo
// CHECK: rt.write_sequence tails %[[X:.*]], %[[TAILS:.*]] {ranks = 2 : i64} : memref<2x8x1x4xf32>, memref<1x8x1x4xf32>
// CHECK-NEXT: rt.collective_start gather_sequence %[[TAILS]] {ranks = 2 : i64}
// CHECK-NEXT: rt.collective_done %[[TAILS]]
// CHECK-NEXT: rt.write_sequence own %[[X]], %[[ROWS:.*]] {ranks = 2 : i64} : memref<2x8x1x4xf32>, memref<2x10x1x4xf32>
// CHECK-NEXT: rt.slice_sequence halo %[[TAILS]], %[[ROWS]] {ranks = 2 : i64}
// CHECK: rt.fill 0.0{{.*}}, %[[SUMS:.*]] : memref<1x8x1x4xf32>
// CHECK-NEXT: rt.write_sequence halo %[[ROWS]], %[[SUMS]]
// CHECK-NEXT: rt.collective_start reduce_scatter_sequence %[[SUMS]]
// CHECK-NEXT: rt.collective_done %[[SUMS]]
// CHECK-NEXT: rt.slice_sequence own %[[ROWS]], %[[OWN:.*]] {ranks = 2 : i64} : memref<2x10x1x4xf32>, memref<2x8x1x4xf32>
// CHECK-NEXT: rt.fill 0.0{{.*}}, %[[RECEIVED:.*]] : memref<2x8x1x4xf32>
// CHECK-NEXT: rt.slice_sequence tails %[[SUMS]], %[[RECEIVED]]
func.func @halo(%x: tensor<2x8x1x4xf32>) -> (tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>) {
  %y = nn.gather_halo %x {ranks = 2 : i64, tokens = 2 : i64} : (tensor<2x8x1x4xf32>) -> tensor<2x10x1x4xf32>
  %own, %received = nn.reduce_scatter_halo %y {ranks = 2 : i64, tokens = 2 : i64}
      : (tensor<2x10x1x4xf32>) -> (tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>)
  return %own, %received : tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>
}
