// Kernels of the entry `decode` may begin early, with what nothing in it writes:
// the weights here, not %x, which the first launch writes. Bytes of an argument
// that a kernel does not use are prefetched.
// RUN: nsa-opt %s --nsa-note-launch-overlap | FileCheck %s

// CHECK: tile.kernel private @scale
// CHECK-SAME: nsa.late_dependents, nsa.launch_overlap = array<i64: 1, 2>, nsa.prefetch = array<i64: 2, 0, 4096>
tile.kernel private @scale(%x: memref<64xf32>, %w: memref<64xf32>, %next: memref<1024xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %w[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  tile.store %v, %y[%i] : !tile.tile<1x64xf32>, memref<64xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// A launch that asks for bytes lets the next one begin when it has waited itself: then
// what launches before it wrote is settled, %x here, not %y, which it writes.
// CHECK: tile.kernel private @first
// CHECK-SAME: nsa.late_dependents, nsa.launch_overlap = array<i64>
// CHECK-NOT: nsa.prefetch
// CHECK: tile.kernel private @last
// CHECK-SAME: nsa.launch_overlap = array<i64: 0>
tile.kernel private @first(%u: memref<64xf32>, %x: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
tile.kernel private @last(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}

// CHECK: tile.kernel private @other
// CHECK-NOT: nsa.launch_overlap
// CHECK: rt.entry @decode
tile.kernel private @other(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}

rt.tensor parameter @w : memref<64xf32> init #nn.init<constant, 0.0>
rt.tensor parameter @next : memref<1024xf32> init #nn.init<constant, 0.0>
rt.tensor state @x : memref<64xf32> init #nn.init<constant, 0.0>
rt.tensor state @y : memref<64xf32> init #nn.init<constant, 0.0>
rt.tensor state @z : memref<64xf32> init #nn.init<constant, 0.0>

rt.entry @decode inputs [] outputs [] {
  %x = rt.get @x : memref<64xf32>
  %y = rt.get @y : memref<64xf32>
  %z = rt.get @z : memref<64xf32>
  rt.launch @first ins(%y : memref<64xf32>) outs(%x : memref<64xf32>)
  %w = rt.get @w : memref<64xf32>
  %next = rt.get @next : memref<1024xf32>
  rt.launch @scale ins(%x, %w, %next : memref<64xf32>, memref<64xf32>, memref<1024xf32>) outs(%y : memref<64xf32>)
  rt.launch @last ins(%x, %y : memref<64xf32>, memref<64xf32>) outs(%z : memref<64xf32>)
}
