// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s --check-prefix=WIDTH
// RUN: nsa-opt %s --nsa-tile-to-cpu=vector-width=16 --canonicalize --cse | FileCheck %s --check-prefix=WIDE

// No vector is wider than a register.
// WIDTH-NOT: vector<{{(9|[1-9][0-9]+)x}}
// WIDE: vector<16xf32>
// WIDE-NOT: vector<{{(1[7-9]|[2-9][0-9]|[1-9][0-9][0-9]+)x}}

// The accumulator lives in the loop's buffer: the loop carries nothing, the
// blocks of the result start from memory and go back to it.
// CHECK-LABEL: func.func @columns(
// CHECK-COUNT-3: llvm.alloca {{.*}} x !llvm.array<16384 x i8> {alignment = 64 : i64}
// CHECK-NOT: llvm.alloca
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} : i32 {
// A micro-kernel of twelve sums: rows of broadcast a times vectors of b.
// CHECK: scf.for {{.*}} : i64 {
// CHECK-COUNT-12: llvm.load %{{.*}} -> vector<8xf32>
// CHECK: %{{.*}}:12 = scf.for {{.*}} iter_args(
// CHECK: llvm.load {{.*}} -> f32
// CHECK: vector.broadcast {{.*}} : f32 to vector<8xf32>
// CHECK-COUNT-12: llvm.intr.fmuladd
// CHECK-NOT: llvm.intr.fmuladd
// CHECK: scf.yield
// CHECK-COUNT-12: llvm.store %{{.*}} : vector<8xf32>
tile.kernel private @columns(%a: memref<64x64xf32>, %b: memref<64x64xf32>, %o: memref<64x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c4 = arith.constant 4 : i32
  %f0 = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<64x1xi32>
  %c = tile.range %c0 : !tile.tile<1x64xi32>
  %x = tile.load %a[%r, %c] : memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
  %y = tile.load %b[%r, %c] : memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
  %zeros = tile.splat %f0 : !tile.tile<64x64xf32>
  %sum = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %zeros) -> (!tile.tile<64x64xf32>) : i32 {
    %next = tile.dot %x, %y, %acc : !tile.tile<64x64xf32>, !tile.tile<64x64xf32>, !tile.tile<64x64xf32>
    scf.yield %next : !tile.tile<64x64xf32>
  }
  tile.store %sum, %o[%r, %c] : !tile.tile<64x64xf32>, memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// Zeros are no memory: sums start from a constant.
// CHECK-LABEL: func.func @zeros(
// CHECK: %{{.*}}:{{.*}} = scf.for {{.*}} iter_args(%{{.*}} = %cst,
// With many rows, b is transposed into scratch memory, eight by eight.
// CHECK-LABEL: func.func @packed(
// CHECK-COUNT-24: vector.shuffle
// CHECK-NOT: vector.shuffle
// CHECK: llvm.intr.fmuladd
tile.kernel private @zeros(%a: memref<16x16xf32>, %o: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %x = tile.load %a[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %zeros = tile.splat %f0 : !tile.tile<16x16xf32>
  %s = tile.dot %x, %x, %zeros {transpose_a} : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<16x16xf32>
  tile.store %s, %o[%r, %c] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
tile.kernel private @packed(%a: memref<16x16xf32>, %o: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %x = tile.load %a[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %zeros = tile.splat %f0 : !tile.tile<16x16xf32>
  %s = tile.dot %x, %x, %zeros {transpose_b} : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<16x16xf32>
  tile.store %s, %o[%r, %c] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// With few rows, vectors run along k and are summed at the end, four at a time.
// CHECK-LABEL: func.func @along_k(
// CHECK: %{{.*}}:12 = scf.for {{.*}} iter_args(
// CHECK-COUNT-12: llvm.intr.fmuladd
// CHECK: scf.yield
// CHECK: vector.shuffle {{.*}} [0, 2, 8, 10, 4, 6, 12, 14] : vector<8xf32>, vector<8xf32>
// CHECK: llvm.store {{.*}} : vector<4xf32>
tile.kernel private @along_k(%a: memref<6x64xf32>, %b: memref<64x64xf32>, %o: memref<6x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<6x1xi32>
  %n = tile.range %c0 : !tile.tile<64x1xi32>
  %c = tile.range %c0 : !tile.tile<1x64xi32>
  %x = tile.load %a[%r, %c] : memref<6x64xf32>, (!tile.tile<6x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<6x64xf32>
  %y = tile.load %b[%n, %c] : memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
  %zeros = tile.splat %f0 : !tile.tile<6x64xf32>
  %s = tile.dot %x, %y, %zeros {transpose_b} : !tile.tile<6x64xf32>, !tile.tile<64x64xf32>, !tile.tile<6x64xf32>
  tile.store %s, %o[%r, %c] : !tile.tile<6x64xf32>, memref<6x64xf32>, (!tile.tile<6x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}
