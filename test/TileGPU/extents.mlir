// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s

// 7 stands for the batch and 10007 for the length: sizes are computed from the
// last parameters, and nothing is proven by the numbers. That of 16 columns is a
// constant: they are moved together.
// CHECK-LABEL: llvm.func @scale(
// CHECK-SAME: %[[X:[^ ]*]]: !llvm.ptr<1> {{{[^}]*}}}, %[[Y:[^ ]*]]: !llvm.ptr<1> {{{[^}]*}}}, %[[BATCH:[^ ]*]]: i64, %[[LENGTH:[^ ]*]]: i64)
// CHECK-DAG: %[[C16:.*]] = arith.constant 16 : i64
// CHECK-DAG: %[[STRIDE:.*]] = arith.muli %[[LENGTH]], %[[C16]]
// CHECK-DAG: %[[END:.*]] = arith.trunci %[[LENGTH]] : i64 to i32
// CHECK: %[[PLACE:.*]] = arith.muli %{{.*}}, %[[STRIDE]] overflow<nsw> : i64
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %[[END]] : i32
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> vector<4xf32>
tile.kernel private @scale(%x: memref<7x10007x16xf32>, %y: memref<7x10007x16xf32>)
    attributes {grid = array<i32: 157, 7, 1>, num_outputs = 1 : i32,
                nsa.extents = [[7, affine_map<()[b, t] -> (b)>], [10007, affine_map<()[b, t] -> (t)>]],
                nsa.grid_extents = [affine_map<()[b, t] -> (t ceildiv 64)>, affine_map<()[b, t] -> (b)>, affine_map<()[b, t] -> (1)>]} {
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %tile = tile.program_id 0 : i32
  %batch = tile.program_id 1 : i32
  %first = arith.muli %tile, %c64 : i32
  %rows = tile.range %first : !tile.tile<64x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%batch, %rows, %cols] : memref<7x10007x16xf32>, (i32, !tile.tile<64x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<64x16xf32>
  tile.store %v, %y[%batch, %rows, %cols] : !tile.tile<64x16xf32>, memref<7x10007x16xf32>, (i32, !tile.tile<64x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// The number that stands for the length is even, but the length may be odd: the
// elements of a row are moved one by one. A grid of so many programs is the
// launch's to refuse.
// CHECK-LABEL: llvm.func @odd(
// CHECK-NOT: vector<
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK-NOT: vector<
tile.kernel private @odd(%x: memref<4x100000xf32>, %y: memref<4x100000xf32>)
    attributes {grid = array<i32: 1, 100000, 1>, num_outputs = 1 : i32,
                nsa.extents = [[100000, affine_map<()[b, t] -> (t)>]],
                nsa.grid_extents = [affine_map<()[b, t] -> (1)>, affine_map<()[b, t] -> (t)>, affine_map<()[b, t] -> (1)>]} {
  %c0 = arith.constant 0 : i32
  %length = tile.extent 1 : i32
  %first = arith.subi %length, %length : i32
  %rows = tile.range %c0 : !tile.tile<4x1xi32>
  %cols = tile.range %first : !tile.tile<1x16xi32>
  %v = tile.load %x[%rows, %cols] : memref<4x100000xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<4x16xf32>
  tile.store %v, %y[%rows, %cols] : !tile.tile<4x16xf32>, memref<4x100000xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
