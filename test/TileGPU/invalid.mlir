// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=shared-limit=1000 --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm --split-input-file --verify-diagnostics

// expected-error @below {{kernel @large needs 2176 bytes of shared memory, more than the 1000 that a block may have}}
tile.kernel private @large(%x: memref<16x16xf32>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  %d = tile.dot %a, %a, %acc : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<16x16xf32>
  tile.store %d, %z[%r, %c] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// expected-error @below {{kernel @tall has 70000 programs along axis 1 of its grid, more than the 65535 that CUDA has}}
tile.kernel private @tall(%x: memref<1xf32>)
    attributes {grid = array<i32: 1, 70000, 1>, num_outputs = 1 : i32} {
  tile.return
}
