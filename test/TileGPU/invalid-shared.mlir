// RUN: nsa-opt %s --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm --split-input-file --verify-diagnostics

!row = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>
tile.kernel private @load(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  // expected-error @below {{makes '!tile.tile<16x16xbf16, #tile.shared>' without a buffer, which tile-gpu-promote-to-shared makes}}
  %a = tile.load %x[%r, %c] : memref<16x16xbf16>, (!row, !col) -> !tile.tile<16x16xbf16, #tile.shared>
  tile.return
}

// -----

tile.kernel private @view(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %0 = tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<16x16xbf16>
  // expected-error @below {{reads no buffer of its kernel that its block has filled once}}
  %1 = tile_gpu.local_view %0 : !tile_gpu.memdesc<16x16xbf16> -> !tile.tile<16x16xbf16, #tile.shared>
  tile.return
}

// -----

tile.kernel private @map(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32} {
  %c0 = arith.constant 0 : i32
  %b = tile_gpu.mbarriers arrivals 1 at 0 : !tile_gpu.mbarriers<2>
  %0 = tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<16x16xbf16>
  // expected-error @below {{loads by tensor map 0 of a kernel that has 0}}
  tile_gpu.tma_load map 0[%c0, %c0] to %0 signals %b[%c0] : !tile_gpu.memdesc<16x16xbf16>, !tile_gpu.mbarriers<2>
  tile.return
}

// -----

tile.kernel private @columns(%x: memref<16x128xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32,
        nsa.tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 128, 16>, strides = array<i64: 256>, box = array<i64: 64, 4>, swizzle = 128>]} {
  %c0 = arith.constant 0 : i32
  %b = tile_gpu.mbarriers arrivals 1 at 0 : !tile_gpu.mbarriers<2>
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x128xbf16>
  // expected-error @below {{has warps for 1 of 2 columns of boxes}}
  tile_gpu.tma_load map 0[%c0, %c0] to %0 signals %b[%c0] rows 4 warps [0] : !tile_gpu.memdesc<16x128xbf16>, !tile_gpu.mbarriers<2>
  tile.return
}

// -----

tile.kernel private @sum(%x: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %c0 = arith.constant 0 : index
  // expected-error @below {{has no lowering to CUDA}}
  %0 = memref.load %x[%c0] : memref<16xf32>
  tile.return
}

// -----

tile.kernel private @carried(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %c0 = arith.constant 0 : i32
  %b = tile_gpu.mbarriers arrivals 1 at 0 : !tile_gpu.mbarriers<2>
  %c = arith.constant true
  %either = arith.select %c, %b, %b : !tile_gpu.mbarriers<2>
  // expected-error @below {{takes a '!tile_gpu.mbarriers<2>' that no operation of its kernel makes}}
  tile_gpu.mbarrier_wait %either[%c0] parity %c0 : !tile_gpu.mbarriers<2>
  tile.return
}

// -----

tile.kernel private @line(%s: memref<4x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32} {
  %c0 = arith.constant 0 : i32
  %c = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %x = tile_gpu.alloc at 0 : !tile_gpu.memdesc<1x16xf32>
  // expected-error @below {{copies a line that nothing loads}}
  tile_gpu.async_copy %s[%c0, %c] to %x width 4 : memref<4x16xf32>, (i32, !tile.tile<1x16xi32, #tile.rematerialized>) to !tile_gpu.memdesc<1x16xf32>
  tile.return
}
