// RUN: nsa-opt %s --pass-pipeline='builtin.module(nsa-tile-to-llvm{vector-width=8})' | FileCheck %s

// One function per kernel, nothing but the llvm dialect, no calls.
// CHECK-NOT: builtin.unrealized_conversion_cast
// CHECK-NOT: llvm.call @
// CHECK-LABEL: llvm.func @softplus(%{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64) {
// CHECK-NOT: {{(arith|scf|math|vector|cf|func|tile)\.}}
// CHECK: llvm.return
tile.kernel private @softplus(%x: memref<96x7xf32>, %y: memref<96xf32>)
    attributes {grid = array<i32: 3, 1, 2>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %z = tile.program_id 2 : i32
  %c0 = arith.constant 0 : i32
  %c3 = arith.constant 3 : i32
  %c16 = arith.constant 16 : i32
  %f1 = arith.constant 1.0 : f32
  %n = arith.muli %z, %c3 : i32
  %m = arith.addi %n, %p : i32
  %start = arith.muli %m, %c16 : i32
  %r = tile.range %start : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x7xi32>
  %v = tile.load %x[%r, %c] : memref<96x7xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x7xi32>) -> !tile.tile<16x7xf32>
  %w = tile.map (%v : !tile.tile<16x7xf32>) -> !tile.tile<16x7xf32> {
  ^bb0(%e: f32):
    %a = math.exp %e : f32
    %b = arith.addf %a, %f1 : f32
    %d = math.log %b : f32
    tile.yield %d : f32
  }
  %s = tile.reduce max %w {axis = 1 : i32} : !tile.tile<16x7xf32> -> !tile.tile<16x1xf32>
  tile.store %s, %y[%r] : !tile.tile<16x1xf32>, memref<96xf32>, (!tile.tile<16x1xi32>)
  tile.return
}
