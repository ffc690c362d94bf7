// RUN: nsa-opt %s | nsa-opt | FileCheck %s

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>

// CHECK-LABEL: func.func @twice(
// CHECK: %[[O:.*]] = tile_gpu.warp_if %arg0 : !tile.tile<64x1xi1, {{.*}}> -> !tile.tile<64x1xf32, {{.*}}> {
// CHECK: tile_gpu.yield %{{.*}} : !tile.tile<64x1xf32
// CHECK-NEXT: } else {
// CHECK-NEXT: tile_gpu.yield %arg1 : !tile.tile<64x1xf32
func.func @twice(%rows: !mask, %x: !column) -> !column {
  %0 = tile_gpu.warp_if %rows : !mask -> !column {
    %1 = tile.map (%x : !column) -> !column {
    ^bb0(%e: f32):
      %2 = arith.addf %e, %e : f32
      tile.yield %2 : f32
    }
    tile_gpu.yield %1 : !column
  } else {
    tile_gpu.yield %x : !column
  }
  return %0 : !column
}
