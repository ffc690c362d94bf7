// RUN: nsa-opt %s | nsa-opt | FileCheck %s

// A row and a column have layouts of their own beside the tile that they address.
// CHECK-DAG: #[[TILE:.*]] = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 4>
// CHECK-DAG: #[[COLUMN:.*]] = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1>
// CHECK-DAG: #mma = #tile_gpu.mma<version = 3>
#tile = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 4>
#column = #tile_gpu.blocked<threads = 64, threads_per_row = 8, width = 1>

// CHECK: tile.kernel @blocked{{.*}} tile_gpu.threads = 64 : i32
tile.kernel @blocked(%x: memref<8x32xf32>, %y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 64 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<8x1xi32, #column>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile>
  // CHECK: -> !tile.tile<8x32xf32, #[[TILE]]>
  %v = tile.load %x[%r, %c] : memref<8x32xf32>, (!tile.tile<8x1xi32, #column>, !tile.tile<1x32xi32, #tile>) -> !tile.tile<8x32xf32, #tile>
  // CHECK: tile.reduce add {{.*}} -> !tile.tile<8x1xf32, #[[COLUMN]]>
  %s = tile.reduce add %v {axis = 1 : i32} : !tile.tile<8x32xf32, #tile> -> !tile.tile<8x1xf32, #column>
  tile.store %s, %y[%r] : !tile.tile<8x1xf32, #column>, memref<8xf32>, (!tile.tile<8x1xi32, #column>)
  tile.return
}

// CHECK-LABEL: func.func @mma
func.func @mma(%a: !tile.tile<64x16xbf16, #tile.shared>, %acc: !tile.tile<64x64xf32, #tile.mma<warps = 4>>) {
  // CHECK: tile.dot {{.*}} {tile_gpu.mma = #mma, transpose_b}
  %0 = tile.dot %a, %a, %acc {tile_gpu.mma = #tile_gpu.mma<version = 3>, transpose_b} : !tile.tile<64x16xbf16, #tile.shared>, !tile.tile<64x16xbf16, #tile.shared>, !tile.tile<64x64xf32, #tile.mma<warps = 4>>
  return
}
