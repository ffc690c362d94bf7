// RUN: nsa-opt %s --split-input-file --verify-diagnostics

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>

func.func @barrier(%rows: !mask, %x: !column) -> !column {
  // expected-error@+1 {{'tile_gpu.warp_if' op is no branch of each warp alone: warps do 'tile_gpu.barrier' in its branch together}}
  %0 = tile_gpu.warp_if %rows : !mask -> !column {
    tile_gpu.barrier
    tile_gpu.yield %x : !column
  } else {
    tile_gpu.yield %x : !column
  }
  return %0 : !column
}

// -----

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!acc = !tile.tile<64x64xf32, #tile.mma<warps = 4>>
!a = !tile.tile<64x64xbf16, #tile.mma<warps = 4>>
!b = !tile.tile<64x64xbf16, #tile.shared>

func.func @warpgroup(%rows: !mask, %a: !a, %b: !b, %x: !acc) -> !acc {
  // expected-error@+1 {{'tile_gpu.warp_if' op is no branch of each warp alone: warps do 'tile.dot' in its branch together}}
  %0 = tile_gpu.warp_if %rows : !mask -> !acc {
    %1 = tile.dot %a, %b, %x {tile_gpu.mma = #tile_gpu.mma<version = 3>} : !a, !b, !acc
    tile_gpu.yield %1 : !acc
  } else {
    tile_gpu.yield %x : !acc
  }
  return %0 : !acc
}

// -----

!mask = !tile.tile<64x1xi1>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>

func.func @layout(%rows: !mask, %x: !column) -> !column {
  // expected-error@+1 {{'tile_gpu.warp_if' op is no branch of each warp alone: its rows are in no MMA tiles}}
  %0 = tile_gpu.warp_if %rows : !mask -> !column {
    tile_gpu.yield %x : !column
  } else {
    tile_gpu.yield %x : !column
  }
  return %0 : !column
}

// -----

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>

func.func @types(%rows: !mask, %x: !column) -> !column {
  // expected-error@+1 {{'tile_gpu.warp_if' op does not yield the types of its results}}
  %0 = tile_gpu.warp_if %rows : !mask -> !column {
    tile_gpu.yield %rows : !mask
  } else {
    tile_gpu.yield %x : !column
  }
  return %0 : !column
}

// -----

!mask = !tile.tile<64x1xi1, #tile.mma<warps = 4>>
!column = !tile.tile<64x1xf32, #tile.mma<warps = 4>>

func.func @terminator(%rows: !mask, %x: !column) -> !column {
  // expected-error@+1 {{'tile_gpu.warp_if' op does not yield the types of its results}}
  %0 = tile_gpu.warp_if %rows : !mask -> !column {
    %c0 = arith.constant 0 : i32
  } else {
    tile_gpu.yield %x : !column
  }
  return %0 : !column
}
