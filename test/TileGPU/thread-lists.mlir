// RUN: nsa-opt %s --tile-gpu-assign-layouts=threads=128 -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: nsa-opt %t.mlir --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm | FileCheck %s --check-prefix=CODE

// Lists of up to 16 elements of 32 rows and more lie in one thread each.
// CHECK-DAG: #[[$THREAD:.+]] = #tile_gpu.blocked<threads = 128, threads_per_row = 1, width = 4>
// CHECK-DAG: #[[$LANES:.+]] = #tile_gpu.blocked<threads = 128, threads_per_row = 8, width = 1>

// CHECK-LABEL: tile.kernel private @short
// CHECK: tile.top_n {{.*}} !tile.tile<64x16xf32, #[[$THREAD]]>, !tile.tile<64x16xi32, #[[$THREAD]]>
// CHECK: tile.sort {{.*}} !tile.tile<64x16xi32, #[[$THREAD]]>

// CODE-LABEL: llvm.func @short(
// CODE-NOT: shfl
// Warps past the 64 lists have nothing to do. Bits say which of 32 candidates are
// above the last element of a list.
// CODE: %[[LIST:.+]]:32 = scf.if
// CODE-COUNT-32: arith.cmpf ogt
// CODE: %[[COUNT:.+]] = llvm.intr.ctpop
// CODE: %[[MANY:.+]] = arith.cmpi sgt, %[[COUNT]], %{{.+}}
// CODE: %[[ANY:.+]] = nvvm.vote.sync any %{{.+}}, %[[MANY]]
// CODE: scf.if %[[ANY]]
// CODE: } else {
// CODE: scf.for %{{.+}} = %{{.+}} to %[[COUNT]]
// CODE: llvm.intr.cttz
// CODE-COUNT-16: arith.cmpf ogt
// CODE-NOT: nvvm.barrier
// CODE: arith.minui
// CODE-NOT: shfl
// CODE: llvm.return
tile.kernel private @short(%x: memref<64x32xf32>, %y: memref<64x16xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %none = arith.constant -1.0 : f32
  %no_index = arith.constant -1 : i32
  %row = tile.range %c0 : !tile.tile<64x1xi32>
  %col = tile.range %c0 : !tile.tile<1x32xi32>
  %place = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%row, %col] : memref<64x32xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<64x32xf32>
  %values = tile.splat %none : !tile.tile<64x16xf32>
  %indices = tile.splat %no_index : !tile.tile<64x16xi32>
  %best, %numbers = tile.top_n %v, %c0, %values, %indices : !tile.tile<64x32xf32>, !tile.tile<64x16xf32>, !tile.tile<64x16xi32>
  %sorted = tile.sort %numbers : !tile.tile<64x16xi32>
  tile.store %sorted, %y[%row, %place] : !tile.tile<64x16xi32>, memref<64x16xi32>, (!tile.tile<64x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// CHECK-LABEL: tile.kernel private @long
// CHECK: tile.top_n {{.*}} !tile.tile<64x24xf32, #[[$LANES]]>
tile.kernel private @long(%x: memref<64x32xf32>, %y: memref<64x24xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %none = arith.constant -1.0 : f32
  %no_index = arith.constant -1 : i32
  %row = tile.range %c0 : !tile.tile<64x1xi32>
  %col = tile.range %c0 : !tile.tile<1x32xi32>
  %place = tile.range %c0 : !tile.tile<1x24xi32>
  %v = tile.load %x[%row, %col] : memref<64x32xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<64x32xf32>
  %values = tile.splat %none : !tile.tile<64x24xf32>
  %indices = tile.splat %no_index : !tile.tile<64x24xi32>
  %best, %numbers = tile.top_n %v, %c0, %values, %indices : !tile.tile<64x32xf32>, !tile.tile<64x24xf32>, !tile.tile<64x24xi32>
  tile.store %numbers, %y[%row, %place] : !tile.tile<64x24xi32>, memref<64x24xi32>, (!tile.tile<64x1xi32>, !tile.tile<1x24xi32>)
  tile.return
}
