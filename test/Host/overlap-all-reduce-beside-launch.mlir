// RUN: nsa-opt %s --nsa-overlap-all-reduce | FileCheck %s

// A reduction starts with the next launch that is bound by computing, not beside
// the matmul and the copy before it.

tile.kernel @attend(%y: memref<64xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, bytes = 512 : i64, flops = 65536 : i64} {
  tile.return
}
tile.kernel @move(%y: memref<64xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, bytes = 512 : i64, flops = 64 : i64} {
  tile.return
}
rt.tensor gradient @grad : memref<64xf32>
rt.tensor output @out : memref<64xf32>

// CHECK-LABEL: rt.entry @step
// CHECK: rt.fill
// CHECK-NEXT: rt.launch @move
// CHECK-NEXT: rt.collective_start all_reduce %grad
// CHECK-NEXT: rt.launch @attend
// CHECK-NEXT: rt.launch @attend
// CHECK-NEXT: rt.collective_done %grad
rt.entry @step inputs [] outputs [@out] {
  %grad = rt.get @grad : memref<64xf32>
  %out = rt.get @out : memref<64xf32>
  rt.fill 1.0, %grad : memref<64xf32>
  rt.launch @move ins() outs(%out : memref<64xf32>)
  rt.launch @attend ins() outs(%out : memref<64xf32>)
  rt.launch @attend ins() outs(%out : memref<64xf32>)
  rt.collective_start all_reduce %grad : memref<64xf32>
  rt.collective_done %grad : memref<64xf32>
}
