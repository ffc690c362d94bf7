// RUN: nsa-opt %s --split-input-file --nsa-note-launch-overlap | FileCheck %s

// What the last launch of @next writes for the next run, @first may read early; @last reads what @first writes.
// CHECK: tile.kernel private @first
// CHECK-SAME: nsa.launch_overlap = array<i64: 0>
// CHECK: tile.kernel private @last
// CHECK-SAME: nsa.launch_overlap = array<i64>
tile.kernel private @first(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  tile.store %v, %y[%i] : !tile.tile<1x64xf32>, memref<64xf32>, (!tile.tile<1x64xi32>)
  tile.return
}
tile.kernel private @last(%y: memref<64xf32>, %x: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
rt.tensor state @x : memref<64xf32> init #nn.init<constant, 0.0>
rt.tensor state @y : memref<64xf32> init #nn.init<constant, 0.0>
rt.entry @next inputs [] outputs [] {
  %x = rt.get @x : memref<64xf32>
  %y = rt.get @y : memref<64xf32>
  rt.launch @first ins(%x : memref<64xf32>) outs(%y : memref<64xf32>)
  rt.launch @last ins(%y : memref<64xf32>) outs(%x : memref<64xf32>)
}
