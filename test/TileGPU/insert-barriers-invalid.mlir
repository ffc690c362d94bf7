// RUN: nsa-opt %s --tile-gpu-insert-barriers --allow-unregistered-dialect --split-input-file --verify-diagnostics

// expected-error @below {{kernel @layouts has no tile_gpu.threads, which tile-gpu-assign-layouts gives it}}
tile.kernel private @layouts() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  tile.return
}

// -----

tile.kernel private @producer() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                                            tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 0 : i64} {
  tile_gpu.warp_specialize blocks 1 producer {
    // expected-error @below {{needs a barrier, but not all threads of the block come by}}
    tile_gpu.barrier
  } consumer {
  }
  tile.return
}

// -----

tile.kernel private @vote() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                                       tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 0 : i64} {
  tile_gpu.warp_specialize blocks 1 producer {
    %t = "test.tile"() : () -> !tile.tile<64x1xi1, #tile_gpu.blocked<threads = 128, threads_per_row = 2, width = 1>>
    // expected-error @below {{needs all votes, but not all threads of the block come by}}
    %0 = tile.any %t : !tile.tile<64x1xi1, #tile_gpu.blocked<threads = 128, threads_per_row = 2, width = 1>>
  } consumer {
  }
  tile.return
}

// -----

tile.kernel private @wgmma() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
                                         tile_gpu.scratch = 512 : i64, nsa.shared_bytes = 512 : i64} {
  %0 = tile_gpu.alloc swizzle 32 at 0 : !tile_gpu.memdesc<16x16xbf16>
  tile_gpu.warp_specialize blocks 1 producer {
    %a = "test.tile"() : () -> !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
    %d = "test.tile"() : () -> !tile.tile<64x16xf32, #tile.mma<warps = 4>>
    %v = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x16xbf16> -> !tile.tile<16x16xbf16, #tile.shared>
    // expected-error @below {{needs whole warpgroups, but not all threads of the block come by}}
    %e = tile.dot %a, %v, %d {tile_gpu.mma = #tile_gpu.mma<version = 3>}
        : !tile.tile<64x16xbf16, #tile.mma<warps = 4>>, !tile.tile<16x16xbf16, #tile.shared>, !tile.tile<64x16xf32, #tile.mma<warps = 4>>
  } consumer {
  }
  tile.return
}
