// RUN: nsa-opt %s --split-input-file --verify-diagnostics

#blocked = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 4>
// expected-error@+1 {{has 4 columns together, which do not divide the 6 of a tile}}
func.func private @width(!tile.tile<8x6xf32, #blocked>)

// -----

#blocked = #tile_gpu.blocked<threads = 64, threads_per_row = 64, width = 1>
// expected-error@+1 {{gives each of 8 rows 64 threads, more than the 32 of a warp}}
func.func private @row(!tile.tile<8x64xf32, #blocked>)

// -----

tile.kernel @none() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 64 : i32} {
  %c0 = arith.constant 0 : i32
  // expected-error@+1 {{makes '!tile.tile<8x1xi32>' without layout, but its kernel has tile_gpu.threads}}
  %r = tile.range %c0 : !tile.tile<8x1xi32>
  tile.return
}

// -----

tile.kernel @threads() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 64 : i32} {
  %c0 = arith.constant 0 : i32
  // expected-error@+1 {{of 128 threads, but its kernel has 64}}
  %r = tile.range %c0 : !tile.tile<8x1xi32, #tile_gpu.blocked<threads = 128, threads_per_row = 8, width = 1>>
  tile.return
}

// -----

tile.kernel @warps() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 64 : i32} {
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{of 128 threads, but its kernel has 64}}
  %s = tile.splat %zero : !tile.tile<64x16xf32, #tile.mma<warps = 4>>
  tile.return
}

// -----

// expected-error@+1 {{attribute `tile_gpu.threads` cannot be 48 : i32 on tile.kernel}}
tile.kernel @block() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 48 : i32} {
  tile.return
}

// -----

func.func @dot(%x: !tile.tile<16x16xf32>) {
  // expected-error@+1 {{has tile_gpu.mma, but accumulates in no #tile.mma}}
  %0 = tile.dot %x, %x, %x {tile_gpu.mma = #tile_gpu.mma<version = 2>} : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<16x16xf32>
  return
}

// -----

#blocked = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1>
func.func @mixed(%x: !tile.tile<16x16xf32, #blocked>, %y: !tile.tile<16x16xf32>) {
  // expected-error@+1 {{input in no layout but results in #tile_gpu.blocked}}
  %0 = tile.map (%x, %y : !tile.tile<16x16xf32, #blocked>, !tile.tile<16x16xf32>) -> !tile.tile<16x16xf32, #blocked> {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    tile.yield %s : f32
  }
  return
}

// -----

#blocked = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1>
func.func @convert(%x: !tile.tile<16x16xf32>) {
  // expected-error@+1 {{is none between different places}}
  %0 = tile.convert %x : !tile.tile<16x16xf32> -> !tile.tile<16x16xf32, #blocked>
  return
}

// -----

#blocked = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1>
#other = #tile_gpu.blocked<threads = 64, threads_per_row = 4, width = 1>
func.func @lists(%x: !tile.tile<16x32xf32, #blocked>, %base: i32, %v: !tile.tile<16x4xf32, #blocked>, %i: !tile.tile<16x4xi32, #other>) {
  // expected-error@+1 {{keeps values in #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1> and indices in #tile_gpu.blocked<threads = 64, threads_per_row = 4, width = 1>}}
  %0, %1 = tile.top_n %x, %base, %v, %i : !tile.tile<16x32xf32, #blocked>, !tile.tile<16x4xf32, #blocked>, !tile.tile<16x4xi32, #other>
  return
}

// -----

func.func @pending() {
  // expected-error@+1 {{attribute 'pending' failed to satisfy constraint: 32-bit signless integer attribute whose value is non-negative}}
  tile_gpu.async_wait pending -1
  return
}

// -----

func.func @consumers(%x: i1) {
  // expected-error@+1 {{attribute `tile_gpu.consumers` cannot be 48 : i32 on scf.if}}
  scf.if %x {
  } {tile_gpu.consumers = 48 : i32}
  return
}

// -----

func.func @stages(%n: i32) {
  scf.for %i = %n to %n step %n : i32 {
  // expected-error@+1 {{a pipeline has 2 stages or more of at least a byte, not 1 of 64 bytes at 0}}
  } {tile_gpu.pipeline = #tile_gpu.pipeline<stages = 1, bytes = 64, offset = 0>}
  return
}

// -----

func.func @arrivals() {
  // expected-error@+1 {{attribute 'arrivals' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %0 = tile_gpu.mbarriers arrivals 0 at 0 : !tile_gpu.mbarriers<1>
  return
}

// -----

func.func @registers() {
  // expected-error@+1 {{hands over registers, but does not say how many a thread has at launch, as a producer and as a consumer}}
  tile_gpu.warp_specialize blocks 1 launch 168 registers [24] producer {
  } consumer {
  }
  return
}

// -----

func.func @warps(%i: i32) {
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x64xbf16>
  %full = tile_gpu.mbarriers arrivals 33 at 0 : !tile_gpu.mbarriers<2>
  tile_gpu.warp_specialize blocks 1 producer warps 2 {
    // expected-error@+1 {{'tile_gpu.tma_load' op is of warp 2 of a producer that has 2}}
    tile_gpu.tma_load map 0[%i, %i] to %0 signals %full[%i] rows 4 warps [2] : !tile_gpu.memdesc<16x64xbf16>, !tile_gpu.mbarriers<2>
  } consumer {
  }
  return
}

// -----

func.func @too_many_warps() {
  // expected-error@+1 {{attribute 'warps' failed to satisfy constraint: 64-bit signless integer attribute whose minimum value is 1 whose maximum value is 4}}
  tile_gpu.warp_specialize blocks 1 producer warps 5 {
  } consumer {
  }
  return
}

// -----

func.func @swizzled_line() {
  // expected-error@+1 {{'tile_gpu.alloc' op has a swizzle, but holds elements of 'f32'}}
  %0 = tile_gpu.alloc swizzle 32 : !tile_gpu.memdesc<1x64xf32>
  return
}

// -----

func.func @loaded_tile(%b: !tile_gpu.memdesc<1x64xf32>) {
  // expected-error@+1 {{loads '!tile.tile<64x1xf32>' from '!tile_gpu.memdesc<1x64xf32>', not a line of the same shape}}
  %0 = tile_gpu.local_load %b : !tile_gpu.memdesc<1x64xf32> -> !tile.tile<64x1xf32>
  return
}

// -----

func.func @swizzle() {
  // expected-error@+1 {{'tile_gpu.alloc' op has a swizzle of 128 bytes, not one of 32, 64 and 128 that divides the 96 of a row}}
  %0 = tile_gpu.alloc swizzle 128 : !tile_gpu.memdesc<16x33xbf16>
  return
}

// -----

func.func @width(%x: memref<16x36xbf16>, %i: !tile.tile<16x36xi32>, %to: !tile_gpu.memdesc<16x36xbf16>) {
  // expected-error@+1 {{'tile_gpu.async_copy' op moves 8 elements at once, not 1, 2, 4 or 8 that divide the 36 columns}}
  tile_gpu.async_copy %x[%i, %i] to %to width 8 : memref<16x36xbf16>, (!tile.tile<16x36xi32>, !tile.tile<16x36xi32>) to !tile_gpu.memdesc<16x36xbf16>
  return
}

// -----

func.func @view(%buffer: !tile_gpu.memdesc<16x64xbf16>) {
  // expected-error@+1 {{'tile_gpu.local_view' op shows '!tile.tile<16x64xbf16>', not '!tile.tile<16x64xbf16, #tile.shared>'}}
  %0 = tile_gpu.local_view %buffer : !tile_gpu.memdesc<16x64xbf16> -> !tile.tile<16x64xbf16>
  return
}

// -----

func.func @store(%tile: !tile.tile<16x32xbf16>, %buffer: !tile_gpu.memdesc<16x64xbf16>) {
  // expected-error@+1 {{'tile_gpu.local_store' op stores '!tile.tile<16x32xbf16>' to a buffer of '!tile_gpu.memdesc<16x64xbf16>'}}
  tile_gpu.local_store %tile to %buffer : !tile.tile<16x32xbf16> to !tile_gpu.memdesc<16x64xbf16>
  return
}
