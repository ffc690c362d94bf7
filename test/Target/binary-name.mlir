// RUN: nsa-opt %s --nsa-binary | FileCheck %s

// A kernel or an entry may have the usual name of the code.
// CHECK: rt.binary @kernels_0
// CHECK: rt.kernel @kernels :
tile.kernel private @kernels(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32, flops = 128 : i64, bytes = 1024 : i64} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<128xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.addf %e, %e : f32
    tile.yield %s : f32
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
  tile.return
}
