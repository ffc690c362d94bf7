// RUN: nsa-opt %s --nsa-buffer | FileCheck %s
// RUN: nsa-opt %s --pass-pipeline='builtin.module(nsa-buffer,rt.entry(nsa-overlap-all-reduce),nsa-plan)' | FileCheck %s --check-prefix=OVERLAP

// A gather begins when its operand is there, and is waited for before the first
// reader. It takes the chunks from where they are, and sums come to where they
// are needed.

// CHECK-LABEL: rt.entry @f
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %[[X:.*]] :
// CHECK: %[[WHOLE:.*]] = rt.buffer : memref<1x16x1x4xf32>
// CHECK: rt.collective_start gather_sequence %[[WHOLE]] rows %{{.*}} {ranks = 2 : i64} : memref<1x16x1x4xf32>, memref<2x4x1x4xf32>
// CHECK-NEXT: rt.collective_done %[[WHOLE]] rows %{{.*}} : memref<1x16x1x4xf32>, memref<2x4x1x4xf32>
// CHECK: rt.collective_start reduce_scatter_sequence %[[SUM:.*]] rows %[[OWN:.*]] {ranks = 2 : i64} : memref<1x16x1x4xf32>, memref<2x4x1x4xf32>
// CHECK-NEXT: rt.collective_done %[[SUM]] rows %[[OWN]]
// CHECK-NOT: rt.copy

// OVERLAP-LABEL: rt.entry @f
// OVERLAP: rt.collective_start gather_sequence
// OVERLAP-NEXT: rt.gemm
func.func @f(%x: tensor<2x4x8xf32> {nn.name = "x", nn.role = "input"},
             %w: tensor<4x8xf32> {nn.name = "w", nn.role = "input"},
             %g: tensor<2x4x4xf32> {nn.name = "g", nn.role = "input"}) -> (tensor<2x4x1x4xf32>, tensor<8x4xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x4xf32>
  %h = nn.split_heads %p {heads = 1 : i64} : (tensor<2x4x4xf32>) -> tensor<2x4x1x4xf32>
  %s = nn.gather_sequence %h {ranks = 2 : i64} : (tensor<2x4x1x4xf32>) -> tensor<1x16x1x4xf32>
  %other = nn.matmul %x, %g {transpose_lhs} : (tensor<2x4x8xf32>, tensor<2x4x4xf32>) -> tensor<8x4xf32>
  %m = nn.merge_heads %s : (tensor<1x16x1x4xf32>) -> tensor<1x16x4xf32>
  %y = nn.matmul %m, %other {transpose_rhs} : (tensor<1x16x4xf32>, tensor<8x4xf32>) -> tensor<1x16x8xf32>
  %z = nn.matmul %y, %other : (tensor<1x16x8xf32>, tensor<8x4xf32>) -> tensor<1x16x4xf32>
  %zh = nn.split_heads %z {heads = 1 : i64} : (tensor<1x16x4xf32>) -> tensor<1x16x1x4xf32>
  %r = nn.reduce_scatter_sequence %zh {ranks = 2 : i64} : (tensor<1x16x1x4xf32>) -> tensor<2x4x1x4xf32>
  return %r, %other : tensor<2x4x1x4xf32>, tensor<8x4xf32>
}

// Rows of windows are joined of chunks and the last tokens of those before, which
// are sent from the rows that end with them, as sums come to the end of rows.
// CHECK-LABEL: rt.entry @halo
// CHECK: rt.write_sequence own %[[X:.*]], %[[ROWS:.*]] {ranks = 2 : i64} : memref<2x8x1x4xf32>, memref<2x10x1x4xf32>
// CHECK-NEXT: rt.collective_start gather_sequence %[[TAILS:.*]] rows %[[X]] {ranks = 2 : i64} : memref<1x8x1x4xf32>, memref<2x8x1x4xf32>
// CHECK-NEXT: rt.collective_done %[[TAILS]] rows %[[X]]
// CHECK-NEXT: rt.slice_sequence halo %[[TAILS]], %[[ROWS]] {ranks = 2 : i64}
// CHECK: rt.fill 0.0{{.*}}, %[[SUMS:.*]] : memref<1x8x1x4xf32>
// CHECK-NEXT: rt.write_sequence halo %[[ROWS]], %[[SUMS]]
// CHECK-NEXT: rt.fill 0.0{{.*}}, %[[RECEIVED:.*]] : memref<2x8x1x4xf32>
// CHECK-NEXT: rt.collective_start reduce_scatter_sequence %[[SUMS]] rows %[[RECEIVED]]
// CHECK-NEXT: rt.collective_done %[[SUMS]]
// CHECK-NEXT: rt.slice_sequence own %[[ROWS]], %[[OWN:.*]] {ranks = 2 : i64} : memref<2x10x1x4xf32>, memref<2x8x1x4xf32>
func.func @halo(%x: tensor<2x8x1x4xf32>) -> (tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>) {
  %y = nn.gather_halo %x {ranks = 2 : i64, tokens = 2 : i64} : (tensor<2x8x1x4xf32>) -> tensor<2x10x1x4xf32>
  %own, %received = nn.reduce_scatter_halo %y {ranks = 2 : i64, tokens = 2 : i64}
      : (tensor<2x10x1x4xf32>) -> (tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>)
  return %own, %received : tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>
}

// Two of them are gathered together: no copy of one waits for the other.
// OVERLAP-LABEL: rt.entry @halos
// OVERLAP: rt.collective_start gather_sequence %{{.*}} rows %{{.*}} {grouped, ranks = 2 : i64}
// OVERLAP-NEXT: rt.collective_start gather_sequence %{{.*}} rows %{{.*}} {ranks = 2 : i64}
// OVERLAP: rt.write_sequence own
// OVERLAP: rt.collective_done
// OVERLAP: rt.slice_sequence halo
// OVERLAP: rt.slice_sequence halo
// OVERLAP-NEXT: rt.gemm
func.func @halos(%a: tensor<2x8x1x4xf32>, %b: tensor<2x8x1x4xf32>) -> tensor<4x4xf32> {
  %x = nn.gather_halo %a {ranks = 2 : i64, tokens = 2 : i64} : (tensor<2x8x1x4xf32>) -> tensor<2x10x1x4xf32>
  %y = nn.gather_halo %b {ranks = 2 : i64, tokens = 2 : i64} : (tensor<2x8x1x4xf32>) -> tensor<2x10x1x4xf32>
  %xm = nn.merge_heads %x : (tensor<2x10x1x4xf32>) -> tensor<2x10x4xf32>
  %ym = nn.merge_heads %y : (tensor<2x10x1x4xf32>) -> tensor<2x10x4xf32>
  %z = nn.matmul %xm, %ym {transpose_lhs} : (tensor<2x10x4xf32>, tensor<2x10x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
