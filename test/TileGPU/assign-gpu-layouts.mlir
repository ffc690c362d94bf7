// RUN: nsa-opt %s --nsa-assign-layouts=wgmma --tile-gpu-assign-layouts=wgmma | FileCheck %s
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts | FileCheck %s --check-prefix=MMA
// RUN: nsa-opt %s --tile-gpu-assign-layouts=threads=64 | FileCheck %s --check-prefix=THREADS
// RUN: not nsa-opt %s --tile-gpu-assign-layouts=threads=65 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not nsa-opt %s --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm 2>&1 | FileCheck %s --check-prefix=NONE

// MANY: a block cannot have 65 threads; multiples of 32 up to 1024 are possible
// NONE: kernel @scale has no tile_gpu.threads, which tile-gpu-assign-layouts gives it

// CHECK-DAG: #[[TILE:.*]] = #tile_gpu.blocked<threads = 256, threads_per_row = 8, width = 4>
// CHECK-DAG: #[[COLUMN:.*]] = #tile_gpu.blocked<threads = 256, threads_per_row = 8, width = 1>
// CHECK: tile.kernel private @scale
// CHECK-SAME: tile_gpu.threads = 256 : i32
// CHECK: tile.range {{.*}} : !tile.tile<64x1xi32, #[[COLUMN]]>
// CHECK: -> !tile.tile<64x32xf32, #[[TILE]]>
// THREADS-LABEL: tile.kernel private @scale
// THREADS-SAME: tile_gpu.threads = 64 : i32
tile.kernel private @scale(%x: memref<64x32xf32>, %y: memref<64x32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<64x1xi32>
  %c = tile.range %c0 : !tile.tile<1x32xi32>
  %v = tile.load %x[%r, %c] : memref<64x32xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<64x32xf32>
  tile.store %v, %y[%r, %c] : !tile.tile<64x32xf32>, memref<64x32xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x32xi32>)
  tile.return
}

// A dot of 64 rows is one of a warpgroup where there are such, and has a in
// shared memory then.
// CHECK-LABEL: tile.kernel private @product
// CHECK-SAME: tile_gpu.threads = 128 : i32
// CHECK: tile.dot {{.*}} {tile_gpu.mma = #mma} : !tile.tile<64x16xbf16, #tile.shared>
// MMA: #mma = #tile_gpu.mma<version = 2>
// MMA-LABEL: tile.kernel private @product
// MMA: tile.dot {{.*}} {tile_gpu.mma = #mma} : !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
tile.kernel private @product(%x: memref<64x16xbf16>, %y: memref<16x16xbf16>, %z: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<64x1xi32>
  %k = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%r, %c] : memref<64x16xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  %b = tile.load %y[%k, %c] : memref<16x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %none = tile.splat %zero : !tile.tile<64x16xf32>
  %d = tile.dot %a, %b, %none : !tile.tile<64x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<64x16xf32>
  tile.store %d, %z[%r, %c] : !tile.tile<64x16xf32>, memref<64x16xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// A later schedule has registers for one copy of a wide tile: where it is stored, too,
// dots read one in shared memory.
// MMA-LABEL: tile.kernel private @wide
// MMA: tile.load {{.*}} -> !tile.tile<16x192xbf16, #tile.shared>
// MMA: tile.load {{.*}} -> !tile.tile<16x192xbf16, #tile.mma<warps = 1>>
// MMA: tile.dot {{.*}} : !tile.tile<16x192xbf16, #tile.shared>
// MMA: tile.store {{.*}} : !tile.tile<16x192xbf16, #tile.mma<warps = 1>>
tile.kernel private @wide(%x: memref<16x192xbf16>, %y: memref<192x16xbf16>, %z: memref<16x16xf32>, %copy: memref<16x192xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32, nsa.schedule = {kernel = "0", number = 1 : i64, sizes = #nsa.schedule<min_blocks = 1>}} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %k = tile.range %c0 : !tile.tile<192x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %w = tile.range %c0 : !tile.tile<1x192xi32>
  %a = tile.load %x[%r, %w] : memref<16x192xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x192xi32>) -> !tile.tile<16x192xbf16>
  %b = tile.load %y[%k, %c] : memref<192x16xbf16>, (!tile.tile<192x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<192x16xbf16>
  %none = tile.splat %zero : !tile.tile<16x16xf32>
  %d = tile.dot %a, %b, %none : !tile.tile<16x192xbf16>, !tile.tile<192x16xbf16>, !tile.tile<16x16xf32>
  tile.store %d, %z[%r, %c] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.store %a, %copy[%r, %w] : !tile.tile<16x192xbf16>, memref<16x192xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x192xi32>)
  tile.return
}
