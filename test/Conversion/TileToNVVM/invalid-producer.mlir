// RUN: not nsa-opt %s --tile-gpu-warp-specialize 2>&1 | FileCheck %s

// CHECK: error: has tile_gpu.producer, but no loop with tile_gpu.pipeline to copy for
tile.kernel private @producer()
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 512 : i64,
                tile_gpu.producer = #tile_gpu.producer<barriers = 0, blocks = 1>} {
  tile.return
}
