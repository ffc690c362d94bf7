// The code is the same however many threads make it.
// RUN: nsa-opt %s --nsa-binary | FileCheck %s
// RUN: nsa-opt %s --nsa-binary > %t.2
// RUN: nsa-opt %s --nsa-binary=threads=1 > %t.1
// RUN: cmp %t.1 %t.2
// RUN: nsa-opt %s --nsa-binary=cpu=native | FileCheck %s --check-prefix=NATIVE
// RUN: not nsa-opt %s --nsa-binary=cpu=z80 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: rt.binary @kernels format "objects-x86-64" cpu "x86-64-v3" size {{[0-9]+}} hash "{{[0-9a-f]+}}"
// CHECK: rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> () {bytes = 1024 : i64,
// CHECK-SAME: code_bytes = {{[1-9][0-9]*}} : i64, flops = 128 : i64, grid = array<i32: 2, 1, 1>,
// CHECK-SAME: num_outputs = 1 : i32, stack_bytes = {{[0-9]+}} : i64}
// CHECK: rt.kernel @zero
// CHECK-NOT: tile.kernel
// CHECK-NOT: builtin.module

// NATIVE: rt.binary @kernels format "objects-x86-64" cpu "{{[a-z0-9-]+}}" size

// UNKNOWN: error: unknown cpu 'z80'; known are x86-64-v2, x86-64-v3, x86-64-v4 and native

tile.kernel private @double(%x: memref<128xf32>, %y: memref<128xf32>)
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

tile.kernel private @zero(%y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %zero = arith.constant 0.0 : f32
  %v = tile.splat %zero : !tile.tile<1x8xf32>
  tile.store %v, %y[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}

rt.tensor input @x : memref<128xf32>
rt.tensor output @y : memref<128xf32>
// CHECK: rt.launch @double
rt.entry @main inputs [@x] outputs [@y] {
  %x = rt.get @x : memref<128xf32>
  %y = rt.get @y : memref<128xf32>
  rt.launch @double ins(%x : memref<128xf32>) outs(%y : memref<128xf32>)
}
