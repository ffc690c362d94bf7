// RUN: nsa-opt %s --nsa-tile-to-nvvm --split-input-file --verify-diagnostics

// expected-error @below {{has no tile_gpu.scratch, which tile-gpu-allocate-shared-memory gives it}}
tile.kernel private @kernel()
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  tile.return
}

// -----

!row = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>
tile.kernel private @buffer(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 512 : i64} {
  %c0 = arith.constant 0 : i32
  // expected-error @below {{has no offset, which tile-gpu-allocate-shared-memory gives it}}
  %0 = tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<16x16xbf16>
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  tile_gpu.async_copy %x[%r, %c] to %0 width 1 : memref<16x16xbf16>, (!row, !col) to !tile_gpu.memdesc<16x16xbf16>
  tile.return
}

// -----

tile.kernel private @loop(%n: memref<1xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 512 : i64} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %count = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  // expected-error @below {{has tile_gpu.pipeline, which tile-gpu-pipeline or tile-gpu-warp-specialize expands}}
  scf.for %i = %c0 to %count step %c1 : i32 {
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 2, bytes = 256, offset = 0>}
  tile.return
}
