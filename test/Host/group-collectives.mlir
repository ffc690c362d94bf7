// RUN: nsa-opt %s --nsa-overlap-all-reduce | FileCheck %s

tile.kernel @attend(%y: memref<64xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, bytes = 512 : i64, flops = 65536 : i64} {
  tile.return
}
tile.kernel @read(%a: memref<1x16xf32>, %b: memref<1x16xf32>, %y: memref<1x16xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, bytes = 512 : i64, flops = 64 : i64} {
  tile.return
}
rt.tensor input @x : memref<64x64xf32>
rt.tensor input @rows : memref<2x4xf32>
rt.tensor input @sequence : memref<1x16xf32>
rt.tensor output @y : memref<64x64xf32>
rt.tensor output @out : memref<64xf32>
rt.tensor output @s : memref<1x16xf32>
rt.tensor output @t : memref<1x16xf32>

// What nothing hides before it is read waits for what is there soon, but not for
// a matmul; what attention hides waits for one as well.
// CHECK-LABEL: rt.entry @gathers
// CHECK: rt.copy
// CHECK: rt.copy
// CHECK: rt.collective_start gather_sequence %[[A:.*]] rows %{{.*}} {grouped, ranks = 2 : i64}
// CHECK-NEXT: rt.collective_start gather_sequence %[[B:.*]] rows %{{.*}} {ranks = 2 : i64}
// CHECK: rt.copy
// CHECK-NOT: rt.collective_start
// CHECK: rt.gemm
// CHECK: rt.copy
// CHECK: rt.collective_start gather_sequence %[[C:.*]] rows %{{.*}} {grouped, ranks = 2 : i64}
// CHECK-NEXT: rt.collective_start gather_sequence %[[D:.*]] rows %{{.*}} {ranks = 2 : i64}
// CHECK: rt.collective_done %[[A]]
// CHECK-NEXT: rt.collective_done %[[B]]
// CHECK-NEXT: rt.launch @read
// CHECK: rt.launch @attend
// CHECK-NEXT: rt.collective_done %[[C]]
// CHECK-NEXT: rt.collective_done %[[D]]
// CHECK-NEXT: rt.launch @read
rt.entry @gathers inputs [@x, @rows] outputs [@y, @out, @s, @t] {
  %x = rt.get @x : memref<64x64xf32>
  %rows = rt.get @rows : memref<2x4xf32>
  %y = rt.get @y : memref<64x64xf32>
  %out = rt.get @out : memref<64xf32>
  %s = rt.get @s : memref<1x16xf32>
  %t = rt.get @t : memref<1x16xf32>
  %a = rt.buffer : memref<2x4xf32>
  %b = rt.buffer : memref<2x4xf32>
  %c = rt.buffer : memref<2x4xf32>
  %d = rt.buffer : memref<2x4xf32>
  %wa = rt.buffer : memref<1x16xf32>
  %wb = rt.buffer : memref<1x16xf32>
  %wc = rt.buffer : memref<1x16xf32>
  %wd = rt.buffer : memref<1x16xf32>
  rt.copy %rows, %a : memref<2x4xf32>
  rt.collective_start gather_sequence %wa rows %a {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %wa rows %a : memref<1x16xf32>, memref<2x4xf32>
  rt.copy %rows, %b : memref<2x4xf32>
  rt.collective_start gather_sequence %wb rows %b {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %wb rows %b : memref<1x16xf32>, memref<2x4xf32>
  rt.copy %rows, %c : memref<2x4xf32>
  rt.collective_start gather_sequence %wc rows %c {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %wc rows %c : memref<1x16xf32>, memref<2x4xf32>
  rt.gemm %x, %x, %y : memref<64x64xf32>, memref<64x64xf32>, memref<64x64xf32>
  rt.copy %rows, %d : memref<2x4xf32>
  rt.collective_start gather_sequence %wd rows %d {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %wd rows %d : memref<1x16xf32>, memref<2x4xf32>
  rt.launch @read ins(%wa, %wb : memref<1x16xf32>, memref<1x16xf32>) outs(%s : memref<1x16xf32>)
  rt.launch @attend ins() outs(%out : memref<64xf32>)
  rt.launch @read ins(%wc, %wd : memref<1x16xf32>, memref<1x16xf32>) outs(%t : memref<1x16xf32>)
}

// Nothing hides these, and a matmul lies between them: each begins when it can.
// CHECK-LABEL: rt.entry @sums
// CHECK: rt.collective_start reduce_scatter_sequence %{{.*}} rows %{{.*}} {ranks = 2 : i64}
// CHECK-NEXT: rt.gemm
// CHECK: rt.collective_start reduce_scatter_sequence %{{.*}} rows %{{.*}} {ranks = 2 : i64}
rt.entry @sums inputs [@x, @sequence] outputs [@y] {
  %x = rt.get @x : memref<64x64xf32>
  %sequence = rt.get @sequence : memref<1x16xf32>
  %y = rt.get @y : memref<64x64xf32>
  %a = rt.buffer : memref<1x16xf32>
  %b = rt.buffer : memref<1x16xf32>
  %ra = rt.buffer : memref<2x4xf32>
  %rb = rt.buffer : memref<2x4xf32>
  rt.copy %sequence, %a : memref<1x16xf32>
  rt.gemm %x, %x, %y : memref<64x64xf32>, memref<64x64xf32>, memref<64x64xf32>
  rt.copy %sequence, %b : memref<1x16xf32>
  rt.collective_start reduce_scatter_sequence %a rows %ra {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %a rows %ra : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_start reduce_scatter_sequence %b rows %rb {ranks = 2 : i64} : memref<1x16xf32>, memref<2x4xf32>
  rt.collective_done %b rows %rb : memref<1x16xf32>, memref<2x4xf32>
}
