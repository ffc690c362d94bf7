// RUN: nsa-opt %s --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm=wgmma --split-input-file --verify-diagnostics
// RUN: not nsa-opt %s --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm --split-input-file 2>&1 | FileCheck %s

!a = !tile.tile<48x16xbf16, #tile.shared>
tile.kernel private @none(%x: memref<48x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 96 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<48x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %a = tile.load %x[%r, %c] : memref<48x16xbf16>, (!tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>) -> !a
  %acc = tile.splat %zero : !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  // expected-error @below {{has no tile_gpu.mma, which tile-gpu-assign-layouts gives it}}
  %d = tile.dot %a, %a, %acc {transpose_b} : !a, !a, !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  tile.return
}

// -----

!a = !tile.tile<48x16xbf16, #tile.shared>
tile.kernel private @warps(%x: memref<48x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 96 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<48x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %a = tile.load %x[%r, %c] : memref<48x16xbf16>, (!tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>) -> !a
  %acc = tile.splat %zero : !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  // CHECK: has #tile_gpu.mma<version = 3>, but the target has version 2 only
  // expected-error @below {{cannot have #tile_gpu.mma<version = 3>: its 3 warps are no warpgroups}}
  %d = tile.dot %a, %a, %acc {tile_gpu.mma = #tile_gpu.mma<version = 3>, transpose_b} : !a, !a, !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  tile.return
}
