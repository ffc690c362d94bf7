// RUN: nsa-opt %s --tile-gpu-warp-specialize --split-input-file --verify-diagnostics

// expected-error @below {{has tile_gpu.producer, but no loop with tile_gpu.pipeline to copy for}}
tile.kernel private @no_loop()
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 512 : i64,
                tile_gpu.producer = #tile_gpu.producer<barriers = 0, blocks = 1>} {
  tile.return
}

// -----

// Nor one whose copies TMA can make.
// expected-error @below {{has tile_gpu.producer, but no loop with tile_gpu.pipeline to copy for}}
tile.kernel private @no_copies(%n: memref<1xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 512 : i64,
                tile_gpu.producer = #tile_gpu.producer<barriers = 256, blocks = 1>} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %count = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  scf.for %i = %c0 to %count step %c1 : i32 {
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 2, bytes = 128, offset = 0, producer = true>}
  tile.return
}
