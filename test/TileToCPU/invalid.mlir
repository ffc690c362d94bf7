// RUN: nsa-opt %s --nsa-tile-to-cpu --split-input-file --verify-diagnostics
// RUN: not nsa-opt %s --nsa-tile-to-cpu=vector-width=5 2>&1 | FileCheck %s --check-prefix=WIDTH

// WIDTH: vector width 5 is none of 4, 8 and 16

tile.kernel private @narrow(%x: memref<8xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%i] : memref<8xbf16>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xbf16>
  %w = tile.map (%v : !tile.tile<1x8xbf16>) -> !tile.tile<1x8xbf16> {
  ^bb0(%e: bf16):
    // expected-error@+1 {{'arith.addf' op computes on 'bf16'; convert to f32 first}}
    %s = arith.addf %e, %e : bf16
    tile.yield %s : bf16
  }
  tile.store %w, %x[%i] : !tile.tile<1x8xbf16>, memref<8xbf16>, (!tile.tile<1x8xi32>)
  tile.return
}

// -----

tile.kernel private @half(%x: memref<8xf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%i] : memref<8xf16>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf16>
  %w = tile.map (%v : !tile.tile<1x8xf16>) -> !tile.tile<1x8xf16> {
  ^bb0(%e: f16):
    // expected-error@+1 {{'arith.mulf' op computes on 'f16'; convert to f32 first}}
    %s = arith.mulf %e, %e : f16
    tile.yield %s : f16
  }
  tile.store %w, %x[%i] : !tile.tile<1x8xf16>, memref<8xf16>, (!tile.tile<1x8xi32>)
  tile.return
}

// -----

tile.kernel private @endless(%x: memref<i32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  // expected-error@+1 {{'scf.while' op has no lowering to the CPU}}
  scf.while : () -> () {
    %v = tile.load %x[] : memref<i32>, () -> i32
    %b = arith.trunci %v : i32 to i1
    scf.condition(%b)
  } do {
    scf.yield
  }
  tile.return
}

// -----

func.func private @outside()
tile.kernel private @calls(%x: memref<i32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  // expected-error@+1 {{'func.call' op has no lowering to the CPU}}
  func.call @outside() : () -> ()
  tile.return
}

// -----

// expected-error@+1 {{kernel @large needs 16777216 bytes of stack for its tiles, more than the 4194304 that a thread has}}
tile.kernel private @large(%x: memref<2048x1024xf32>, %y: memref<1024x2048xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 1.0 : f32
  %r = tile.range %c0 : !tile.tile<1024x1xi32>
  %c = tile.range %c0 : !tile.tile<1x2048xi32>
  %s = tile.splat %f0 : !tile.tile<2048x1024xf32>
  %t = tile.transpose %s : !tile.tile<2048x1024xf32> -> !tile.tile<1024x2048xf32>
  tile.store %t, %y[%r, %c] : !tile.tile<1024x2048xf32>, memref<1024x2048xf32>, (!tile.tile<1024x1xi32>, !tile.tile<1x2048xi32>)
  tile.return
}

// -----

tile.kernel private @layout(%x: memref<64x32xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  // expected-error@+1 {{'tile.range' op makes a tile of layout #tile.rematerialized, which only GPUs have}}
  %r = tile.range %c0 : !tile.tile<64x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %t = tile.load %x[%r, %c] : memref<64x32xbf16>, (!tile.tile<64x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<64x32xbf16, #tile.shared>
  tile.return
}
