// RUN: nsa-opt %s --nsa-assign-layouts --split-input-file | FileCheck %s --check-prefix=LAYOUTS
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s

// A loop copies a line ahead that it gathers: any thread computes its indices,
// although a tile in the MMA layout has them, too.

// LAYOUTS-LABEL: tile.kernel private @gather_line
// LAYOUTS: scf.for
// LAYOUTS-DAG: tile.load {{.*}} -> !tile.tile<1x16xi32, #tile.mma<warps = 1>>
// LAYOUTS-DAG: %[[PLACES:.*]] = tile.load {{.*}} -> !tile.tile<1x16xi32, #tile.rematerialized>
// LAYOUTS: tile.load %{{.*}}[%[[PLACES]]] {{.*}} -> !tile.tile<1x16xf32, #tile.mma<warps = 1>>
// The tile by 16 bytes, what is gathered by 4, before the loop and in it.
// CHECK-LABEL: llvm.func @gather_line
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4,
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4,
tile.kernel private @gather_line(%list: memref<64xi32>, %x: memref<64x16xbf16>, %l: memref<64xf32>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c7 = arith.constant 7 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x16xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %sum = scf.for %i = %c0 to %c64 step %c16 iter_args(%acc = %init) -> (!tile.tile<16x16xf32>) : i32 {
    %first = tile.range %i : !tile.tile<16x1xi32>
    %across = tile.range %i : !tile.tile<1x16xi32>
    %places = tile.load %list[%across] : memref<64xi32>, (!tile.tile<1x16xi32>) -> !tile.tile<1x16xi32>
    %b = tile.load %x[%first, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
    %line = tile.load %l[%places] : memref<64xf32>, (!tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
    %d = tile.dot %a, %b, %acc {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    %e = tile.map (%d, %line, %places : !tile.tile<16x16xf32>, !tile.tile<1x16xf32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32> {
    ^bb0(%s: f32, %m: f32, %p: i32):
      %y = arith.subf %s, %m : f32
      %seen = arith.cmpi sge, %p, %c7 : i32
      %r = arith.select %seen, %y, %s : f32
      tile.yield %r : f32
    }
    scf.yield %e : !tile.tile<16x16xf32>
  }
  tile.store %sum, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// Only the inner one of two loops copies ahead: two stages of 1,024 bytes for
// its tile, one for that of the outer loop.

// CHECK-LABEL: llvm.func @nested
// CHECK-SAME: nsa.shared_bytes = 3072 : i64
tile.kernel private @nested(%x: memref<64x16xbf16>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x16xf32>
  %sum = scf.for %i = %c0 to %c64 step %c16 iter_args(%outer = %init) -> (!tile.tile<16x16xf32>) : i32 {
    %first = tile.range %i : !tile.tile<16x1xi32>
    %b = tile.load %x[%first, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
    %inner = scf.for %j = %c0 to %c64 step %c16 iter_args(%acc = %outer) -> (!tile.tile<16x16xf32>) : i32 {
      %second = tile.range %j : !tile.tile<16x1xi32>
      %a = tile.load %x[%second, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
      %d = tile.dot %a, %b, %acc {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
      scf.yield %d : !tile.tile<16x16xf32>
    }
    scf.yield %inner : !tile.tile<16x16xf32>
  }
  tile.store %sum, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// Rows are multiplied with their factors, unless those of a warp are all one.

// CHECK-LABEL: llvm.func @scaled
// CHECK: %[[ONE:.*]] = arith.cmpf oeq
// CHECK: %[[ALL:.*]] = nvvm.vote.sync all
// CHECK: scf.if %[[ALL]]
// CHECK-NEXT: scf.yield
// CHECK: } else {
// CHECK-COUNT-16: arith.mulf
// CHECK: scf.yield
tile.kernel private @scaled(%x: memref<64x16xbf16>, %f: memref<16xf32>, %z: memref<16x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %down = tile.range %c0 : !tile.tile<64x1xi32>
  %across = tile.range %c0 : !tile.tile<1x64xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x64xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %b = tile.load %x[%down, %cols] : memref<64x16xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  %factors = tile.load %f[%rows] : memref<16xf32>, (!tile.tile<16x1xi32>) -> !tile.tile<16x1xf32>
  %d = tile.dot %a, %b, %init {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<64x16xbf16>, !tile.tile<16x64xf32>
  %e = tile.map (%d, %factors : !tile.tile<16x64xf32>, !tile.tile<16x1xf32>) -> !tile.tile<16x64xf32> {
  ^bb0(%s: f32, %m: f32):
    %y = arith.mulf %s, %m : f32
    tile.yield %y : f32
  }
  tile.store %e, %z[%rows, %across] : !tile.tile<16x64xf32>, memref<16x64xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// -----

// A factor of the surroundings is no row.

// CHECK-LABEL: llvm.func @scaled_by_a_number
// CHECK-NOT: nvvm.vote.sync
tile.kernel private @scaled_by_a_number(%x: memref<64x16xbf16>, %f: memref<16xf32>, %z: memref<16x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %down = tile.range %c0 : !tile.tile<64x1xi32>
  %across = tile.range %c0 : !tile.tile<1x64xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x64xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %b = tile.load %x[%down, %cols] : memref<64x16xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  %factors = tile.load %f[%rows] : memref<16xf32>, (!tile.tile<16x1xi32>) -> !tile.tile<16x1xf32>
  %d = tile.dot %a, %b, %init {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<64x16xbf16>, !tile.tile<16x64xf32>
  %e = tile.map (%d, %factors : !tile.tile<16x64xf32>, !tile.tile<16x1xf32>) -> !tile.tile<16x64xf32> {
  ^bb0(%s: f32, %m: f32):
    %y = arith.mulf %s, %half : f32
    tile.yield %y : f32
  }
  tile.store %e, %z[%rows, %across] : !tile.tile<16x64xf32>, memref<16x64xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}
