// RUN: nsa-opt %s --nsa-assign-layouts --remarks-filter-passed=nsa-assign-layouts -o /dev/null 2>&1 | FileCheck %s
// RUN: nsa-opt %s --nsa-assign-layouts=warps=2 | FileCheck %s --check-prefix=GIVEN
// RUN: not nsa-opt %s --nsa-assign-layouts=warps=33 2>&1 | FileCheck %s --check-prefix=MANY

// MANY: a block cannot have 33 warps; up to 32 are possible

// CHECK: 6 M-tiles of 16 rows for 6 warps
// GIVEN-LABEL: @ninety
// GIVEN: tile.dot {{.*}} #tile.mma<warps = 2>
tile.kernel private @ninety(%x: memref<90x16xbf16>, %z: memref<90x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<90x1xi32>
  %some = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%rows, %cols] : memref<90x16xbf16>, (!tile.tile<90x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<90x16xbf16>
  %b = tile.load %x[%some, %cols] : memref<90x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<90x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<90x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<90x16xf32>
  tile.store %d, %z[%rows, %cols] : !tile.tile<90x16xf32>, memref<90x16xf32>, (!tile.tile<90x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// Nine M-tiles for eight warps would leave seven of sixteen empty.
// CHECK: 9 M-tiles of 16 rows for 5 warps
tile.kernel private @odd(%x: memref<144x16xbf16>, %z: memref<144x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<144x1xi32>
  %some = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%rows, %cols] : memref<144x16xbf16>, (!tile.tile<144x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<144x16xbf16>
  %b = tile.load %x[%some, %cols] : memref<144x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %acc = tile.splat %zero : !tile.tile<144x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<144x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<144x16xf32>
  tile.store %d, %z[%rows, %cols] : !tile.tile<144x16xf32>, memref<144x16xf32>, (!tile.tile<144x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
