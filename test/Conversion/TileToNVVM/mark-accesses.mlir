// RUN: nsa-opt %s --tile-gpu-assign-layouts=threads=64 --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm | FileCheck %s

// Threads store the elements that they have loaded themselves; all of them load
// the number of rows. What they exchange starts anew.
// CHECK-LABEL: llvm.func @accesses
tile.kernel @accesses(%x: memref<64x64xf32>, %n: memref<1xi32>, %y: memref<64x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  // CHECK: tile_gpu.global_access read %arg1 : !llvm.ptr<1>
  %rows = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  // CHECK: scf.for
  scf.for %i = %c0 to %rows step %c16 : i32 {
    %r = tile.range %i : !tile.tile<16x1xi32>
    %c = tile.range %c0 : !tile.tile<1x64xi32>
    // CHECK: tile_gpu.global_access read %arg0 owners [[OWNERS:[0-9]+]] : !llvm.ptr<1>
    %0 = tile.load %x[%r, %c] : memref<64x64xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<16x64xf32>
    // CHECK: tile_gpu.reuse
    // CHECK: tile_gpu.barrier
    %1 = tile.reduce add %0 {axis = 0 : i32} : !tile.tile<16x64xf32> -> !tile.tile<1x64xf32>
    %2 = tile.map (%0, %1 : !tile.tile<16x64xf32>, !tile.tile<1x64xf32>) -> !tile.tile<16x64xf32> {
    ^bb0(%a: f32, %b: f32):
      %s = arith.addf %a, %b : f32
      tile.yield %s : f32
    }
    // CHECK: tile_gpu.global_access write %arg2 owners [[OWNERS]] : !llvm.ptr<1>
    tile.store %2, %y[%r, %c] : !tile.tile<16x64xf32>, memref<64x64xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x64xi32>)
  }
  // CHECK: } {tile_gpu.uniform = "block"}
  // CHECK-NOT: nvvm.barrier
  tile.return
}
