// RUN: nsa-opt %s --verify-roundtrip

tile.kernel private @double(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<128xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.addf %e, %e : f32
    tile.yield %s : f32
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

func.func @launch(%x: tensor<128xf32>) -> tensor<128xf32> {
  %y = tile.launch @double(%x) : (tensor<128xf32>) -> tensor<128xf32>
  return %y : tensor<128xf32>
}

tile.kernel private @compute(%q: memref<1x256x4x16xbf16>, %loss: memref<f32>)
    attributes {grid = array<i32: 4, 4, 1>, num_outputs = 1 : i32} {
  %h = tile.program_id 1 : i32
  %zero = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %rows = tile.range %zero : !tile.tile<64x1xi32>
  %cols = tile.range %zero {step = 2 : i32} : !tile.tile<1x16xi32>
  %a = tile.load %q[%zero, %rows, %h, %cols] : memref<1x256x4x16xbf16>, (i32, !tile.tile<64x1xi32>, i32, !tile.tile<1x16xi32>) -> !tile.tile<64x16xbf16>
  %acc = tile.splat %f0 : !tile.tile<64x64xf32>
  %s = tile.dot %a, %a, %acc {transpose_b} : !tile.tile<64x16xbf16>, !tile.tile<64x16xbf16>, !tile.tile<64x64xf32>
  %t = tile.transpose %s : !tile.tile<64x64xf32> -> !tile.tile<64x64xf32>
  %m = tile.reduce max %t {axis = 1 : i32} : !tile.tile<64x64xf32> -> !tile.tile<64x1xf32>
  %p, %mask = tile.map (%t, %m : !tile.tile<64x64xf32>, !tile.tile<64x1xf32>) -> !tile.tile<64x64xf32>, !tile.tile<64x64xi1> {
  ^bb0(%x: f32, %max: f32):
    %d = arith.subf %x, %max : f32
    %e = math.exp %d : f32
    %c = arith.cmpf olt, %d, %f0 : f32
    tile.yield %e, %c : f32, i1
  }
  %some = tile.any %mask : !tile.tile<64x64xi1>
  %column = tile.splat %some : !tile.tile<64x1xi1, #tile.mma<warps = 4>>
  %own = tile.any %column warp_uniform : !tile.tile<64x1xi1, #tile.mma<warps = 4>>
  %none = arith.constant -1 : i32
  %minus = arith.constant -1.0 : f32
  %v0 = tile.splat %minus : !tile.tile<64x4xf32>
  %i0 = tile.splat %none : !tile.tile<64x4xi32>
  %v, %i = tile.top_n %p, %zero, %v0, %i0 : !tile.tile<64x64xf32>, !tile.tile<64x4xf32>, !tile.tile<64x4xi32>
  %sorted = tile.sort %i : !tile.tile<64x4xi32>
  %old = tile.load %loss[] : memref<f32>, () -> f32
  tile.store %old, %loss[] : f32, memref<f32>, ()
  tile.return
}

// A dimension of size 0 is legal: every element reads as zero.
tile.kernel private @empty(%k: memref<1x0x2x16xf32>, %o: memref<16xf32>)
    attributes {grid = array<i32: 0, 1, 1>, num_outputs = 1 : i32} {
  %zero = arith.constant 0 : i32
  %i = tile.range %zero : !tile.tile<16xi32>
  %v = tile.load %k[%zero, %zero, %zero, %i] : memref<1x0x2x16xf32>, (i32, i32, i32, !tile.tile<16xi32>) -> !tile.tile<16xf32>
  tile.store %v, %o[%i] : !tile.tile<16xf32>, memref<16xf32>, (!tile.tile<16xi32>)
  tile.return
}

tile.kernel private @view(%x: memref<2x3x4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  %flat = tile.view %x : memref<2x3x4xf32> -> memref<24xf32>
  tile.return
}

// Columns of a wider matrix: rows of 32 elements, 96 apart.
tile.kernel private @columns(%x: memref<2x64x4x8xf32, strided<[6144, 96, 8, 1]>>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  %rows = tile.view %x : memref<2x64x4x8xf32, strided<[6144, 96, 8, 1]>> -> memref<128x32xf32, strided<[96, 1]>>
  tile.return
}

tile.kernel private @layouts(%q: memref<48x32xbf16>, %o: memref<48x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %zero = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %rows = tile.range %zero : !tile.tile<48x1xi32, #tile.rematerialized>
  %cols = tile.range %zero : !tile.tile<1x32xi32, #tile.rematerialized>
  %a = tile.load %q[%rows, %cols] : memref<48x32xbf16>, (!tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<48x32xbf16, #tile.shared>
  %f = tile.convert %a : !tile.tile<48x32xbf16, #tile.shared> -> !tile.tile<48x32xbf16, #tile.mma<warps = 3>>
  %acc = tile.splat %f0 : !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  %s = tile.dot %f, %a, %acc {transpose_b} : !tile.tile<48x32xbf16, #tile.mma<warps = 3>>, !tile.tile<48x32xbf16, #tile.shared>, !tile.tile<48x48xf32, #tile.mma<warps = 3>>
  %m = tile.reduce add %s {axis = 1 : i32} : !tile.tile<48x48xf32, #tile.mma<warps = 3>> -> !tile.tile<48x1xf32, #tile.mma<warps = 3>>
  %p = tile.map (%m, %rows : !tile.tile<48x1xf32, #tile.mma<warps = 3>>, !tile.tile<48x1xi32, #tile.rematerialized>) -> !tile.tile<48x1xf32, #tile.mma<warps = 3>> {
  ^bb0(%x: f32, %row: i32):
    %y = arith.sitofp %row : i32 to f32
    %z = arith.mulf %x, %y : f32
    tile.yield %z : f32
  }
  %none = tile.convert %p : !tile.tile<48x1xf32, #tile.mma<warps = 3>> -> !tile.tile<48x1xf32>
  tile.store %p, %o[%rows, %zero] : !tile.tile<48x1xf32, #tile.mma<warps = 3>>, memref<48x64xf32>, (!tile.tile<48x1xi32, #tile.rematerialized>, i32)
  tile.return
}
