// What runs one element at a time is estimated, and named where it takes more
// than a quarter of a kernel's time.
// RUN: nsa-opt %s --nsa-tile-to-cpu | FileCheck %s
// RUN: nsa-opt %s --nsa-tile-to-cpu --remarks-filter-missed=nsa-tile-to-cpu -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: performance-lints.mlir:{{[0-9]+}}:{{.*}}PerformanceLint
// REMARK-SAME: Function=strided
// REMARK-SAME: Reason="tile.load takes an estimated {{[0-9]+}}% of the kernel's time one element at a time (scalar-access)"
// REMARK: Function=divides
// REMARK-SAME: (scalar-loop)
// REMARK-NOT: PerformanceLint

// The elements of a column are 64 apart in memory.
// CHECK-LABEL: func.func @strided
// CHECK-SAME: attributes {nsa.performance_lints = ["scalar-access"]}
tile.kernel private @strided(%x: memref<4096x64xf32>, %y: memref<64x4096xf32>)
    attributes {grid = array<i32: 64, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %r = tile.range %c0 : !tile.tile<64x1xi32>
  %c = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%c, %r] : memref<4096x64xf32>, (!tile.tile<1x64xi32>, !tile.tile<64x1xi32>) -> !tile.tile<64x64xf32>
  tile.store %v, %y[%r, %c] : !tile.tile<64x64xf32>, memref<64x4096xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// Vectors do not divide integers.
// CHECK-LABEL: func.func @divides
// CHECK-SAME: attributes {nsa.performance_lints = ["scalar-loop"]}
tile.kernel private @divides(%x: memref<65536xi32>, %z: memref<1xi32>, %y: memref<65536xi32>)
    attributes {grid = array<i32: 1024, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %d = tile.load %z[%c0] : memref<1xi32>, (i32) -> i32
  %v = tile.load %x[%i] : memref<65536xi32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xi32>
  %w = tile.map (%v : !tile.tile<1x64xi32>) -> !tile.tile<1x64xi32> {
  ^bb0(%e: i32):
    %q = arith.divsi %e, %d : i32
    tile.yield %q : i32
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xi32>, memref<65536xi32>, (!tile.tile<1x64xi32>)
  tile.return
}

// One element of each pair is picked out of vectors.
// CHECK-LABEL: func.func @pairs
// CHECK-NOT: nsa.performance_lints
// CHECK-DAG: vector.shuffle {{.*}} [0, 2, 4, 6, 8, 10, 12, 14]
// CHECK-DAG: vector.shuffle {{.*}} [1, 3, 5, 7, 9, 11, 13, 15]
tile.kernel private @pairs(%x: memref<4096x32x2xf32>, %y: memref<4096x32xf32>)
    attributes {grid = array<i32: 4096, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %i = tile.range %c0 : !tile.tile<1x32xi32>
  %a = tile.load %x[%p, %i, %c0] : memref<4096x32x2xf32>, (i32, !tile.tile<1x32xi32>, i32) -> !tile.tile<1x32xf32>
  %b = tile.load %x[%p, %i, %c1] : memref<4096x32x2xf32>, (i32, !tile.tile<1x32xi32>, i32) -> !tile.tile<1x32xf32>
  %w = tile.map (%a, %b : !tile.tile<1x32xf32>, !tile.tile<1x32xf32>) -> !tile.tile<1x32xf32> {
  ^bb0(%e: f32, %f: f32):
    %s = arith.addf %e, %f : f32
    tile.yield %s : f32
  }
  tile.store %w, %y[%p, %i] : !tile.tile<1x32xf32>, memref<4096x32xf32>, (i32, !tile.tile<1x32xi32>)
  tile.return
}

// Next to nothing is not slow.
// CHECK-LABEL: func.func @small
// CHECK-NOT: nsa.performance_lints
tile.kernel private @small(%x: memref<8x8xf32>, %y: memref<8x8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<8x1xi32>
  %c = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%c, %r] : memref<8x8xf32>, (!tile.tile<1x8xi32>, !tile.tile<8x1xi32>) -> !tile.tile<8x8xf32>
  tile.store %v, %y[%r, %c] : !tile.tile<8x8xf32>, memref<8x8xf32>, (!tile.tile<8x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}
