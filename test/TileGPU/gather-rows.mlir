// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --tile-gpu-verify-synchronization | FileCheck %s
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm | FileCheck %s --check-prefix=NVVM

// Without the group of rows there is nothing that a producer could load.
// RUN: sed 's/remsi %%x, %%c4/remsi %%x, %%c3/' %s | not nsa-opt - --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma 2>&1 | FileCheck %s --check-prefix=ROWS
// ROWS: error: kernel @gather gathers no rows that a producer can load in two stages of shared memory
// Nor with more blocks at once than have memory for two stages.
// RUN: sed 's/nsa.producer = 2/nsa.producer = 13/' %s | not nsa-opt - --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma 2>&1 | FileCheck %s --check-prefix=ROWS
// Who asks for no producer gets none, and so does sm_80.
// RUN: sed 's/nsa.producer = 2 : i64, //' %s | nsa-opt - --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma | FileCheck %s --check-prefix=NONE
// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory | FileCheck %s --check-prefix=NONE
// NONE-NOT: tile_gpu.producer

!k = !tile.tile<64x64xbf16, #tile.shared>
!q = !tile.tile<32x64xbf16, #tile.shared>
!s = !tile.tile<64x32xf32, #tile.mma<warps = 4>>
!p = !tile.tile<64x32xbf16, #tile.mma<warps = 4>>
!o = !tile.tile<64x64xf32, #tile.mma<warps = 4>>
!t = !tile.tile<1x32xf32, #tile.mma<warps = 4>>
!key = !tile.tile<64x1xi32, #tile.rematerialized>
!row = !tile.tile<32x1xi32, #tile.rematerialized>
!rows = !tile.tile<1x32xi32, #tile.rematerialized>
!col = !tile.tile<1x64xi32, #tile.rematerialized>

// Rows are the four heads of eight queries, which a list names: a box of four
// rows each. Lanes read the list of an iteration in the one before. Roles are
// in the branch, which all threads take or none.
// CHECK-LABEL: tile.kernel private @gather(
// CHECK-SAME: nsa.tensor_maps = [#rt.tensor_map<argument = 3, element = bf16, extents = array<i64: 64, 64>, strides = array<i64: 128>, box = array<i64: 64, 64>, swizzle = 128>,
// CHECK-SAME: #rt.tensor_map<argument = 1, element = bf16, extents = array<i64: 64, 8, 100>, strides = array<i64: 128, 1024>, box = array<i64: 64, 4, 1>, swizzle = 128>]
// CHECK: scf.if
// CHECK: %[[FULL:[^ ]*]] = tile_gpu.mbarriers arrivals 33 at {{.*}} : !tile_gpu.mbarriers<6>
// CHECK: %[[EMPTY:[^ ]*]] = tile_gpu.mbarriers arrivals 128 at
// CHECK: %[[KEPT:[^ ]*]] = tile_gpu.mbarriers arrivals 1 at
// CHECK: tile_gpu.warp_specialize blocks 2 launch 128 registers [32, 224] producer warps 1 {
// CHECK: tile_gpu.mbarrier_expect %[[KEPT]][%{{.*}}] bytes 8192 elect
// CHECK: tile_gpu.tma_load map 0[{{.*}}] to {{.*}} rows 64
// CHECK: %[[FIRST:[^ ]*]] = tile_gpu.to_lanes %{{[^ ]*}} group 4 : !tile.tile<32x1xi32
// CHECK: %[[FIRST1:[^ ]*]] = tile_gpu.to_lanes %{{[^ ]*}} group 4 : !tile.tile<1x32xi32
// CHECK: scf.for {{.*}}, %[[OWN:[^ ]*]] = %[[FIRST]], %[[OWN1:[^ ]*]] = %[[FIRST1]])
// CHECK: %[[NEXT:[^ ]*]] = tile_gpu.to_lanes %{{[^ ]*}} group 4 : !tile.tile<32x1xi32
// CHECK: %[[NEXT1:[^ ]*]] = tile_gpu.to_lanes %{{[^ ]*}} group 4 : !tile.tile<1x32xi32
// CHECK: %[[QUERY:[^ ]*]] = tile_gpu.from_lanes %[[OWN]] group 4 : !tile.tile<32x1xi32
// CHECK: %[[QUERY1:[^ ]*]] = tile_gpu.from_lanes %[[OWN1]] group 4 : !tile.tile<1x32xi32
// CHECK: tile_gpu.mbarrier_wait %[[EMPTY]]
// CHECK-NOT: tile.load
// CHECK: tile_gpu.mbarrier_expect %[[FULL]][%{{.*}}] bytes 4096 elect
// CHECK: %[[BOX:[^ ]*]] = tile_gpu.to_lanes %[[QUERY]] group 4
// CHECK: tile_gpu.tma_load map 1[{{.*}}, %[[BOX]]] to {{.*}} rows 4
// CHECK: tile_gpu.async_copy %arg2[%{{.*}}, %[[QUERY1]]] to {{.*}} signals %[[FULL]]
// CHECK: tile_gpu.mbarrier_arrive %[[FULL]][%{{.*}}] copies
// CHECK: scf.yield {{.*}}, %[[NEXT]], %[[NEXT1]]
// CHECK: } consumer {
// CHECK: tile_gpu.mbarrier_wait %[[KEPT]]
// CHECK: tile_gpu.mbarrier_wait %[[FULL]]
// CHECK: tile_gpu.mbarrier_arrive %[[EMPTY]][%{{.*}}] each

// A warp of the producer. Lanes without a group have its last one, and load
// nothing; each copies an element of the line.
// NVVM-LABEL: llvm.func @gather(
// NVVM: nvvm.setmaxregister decrease 32
// NVVM: scf.for
// NVVM: nvvm.mbarrier.try_wait.parity
// NVVM: scf.if
// NVVM: nvvm.mbarrier.arrive.expect_tx
// NVVM: nvvm.shfl.sync idx
// NVVM: scf.if
// NVVM: nvvm.cp.async.bulk.tensor.shared.cluster.global
// NVVM-NOT: nvvm.cp.async.bulk.tensor
// NVVM: nvvm.shfl.sync idx
// NVVM: nvvm.cp.async.shared.global
// NVVM-NOT: nvvm.cp.async.shared.global
// NVVM: nvvm.cp.async.mbarrier.arrive %{{.*}} {noinc = true}
tile.kernel private @gather(%list: memref<40xi32>, %q: memref<100x8x64xbf16>, %terms: memref<8x100xf32>, %k: memref<64x64xbf16>, %y: memref<64x64xf32>)
    attributes {grid = array<i32: 2, 1, 1>, nsa.producer = 2 : i64, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c3 = arith.constant 3 : i32
  %c4 = arith.constant 4 : i32
  %c8 = arith.constant 8 : i32
  %zero = arith.constant 0.0 : f32
  %id = tile.program_id 0 : i32
  %first = tile.load %list[%id] : memref<40xi32>, (i32) -> i32
  %some = arith.cmpi slt, %c0, %first : i32
  scf.if %some {
    %key = tile.range %c0 : !key
    %c = tile.range %c0 : !col
    %kt = tile.load %k[%key, %c] : memref<64x64xbf16>, (!key, !col) -> !k
    %r = tile.range %c0 : !row
    %rs = tile.range %c0 : !rows
    %none = tile.splat %zero : !o
    %empty = tile.splat %zero : !s
    %sum = scf.for %i = %c0 to %first step %c8 iter_args(%o = %none) -> (!o) : i32 {
      %number = tile.map (%r : !row) -> !row {
      ^bb0(%x: i32):
        %token = arith.divsi %x, %c4 : i32
        %entry = arith.addi %i, %token : i32
        tile.yield %entry : i32
      }
      %head = tile.map (%r : !row) -> !row {
      ^bb0(%x: i32):
        %h = arith.remsi %x, %c4 : i32
        tile.yield %h : i32
      }
      %query = tile.load %list[%number] : memref<40xi32>, (!row) -> !row
      %numbers = tile.map (%rs : !rows) -> !rows {
      ^bb0(%x: i32):
        %token = arith.divsi %x, %c4 : i32
        %entry = arith.addi %i, %token : i32
        tile.yield %entry : i32
      }
      %heads = tile.map (%rs : !rows) -> !rows {
      ^bb0(%x: i32):
        %h = arith.remsi %x, %c4 : i32
        tile.yield %h : i32
      }
      %queries = tile.load %list[%numbers] : memref<40xi32>, (!rows) -> !rows
      %qt = tile.load %q[%query, %head, %c] : memref<100x8x64xbf16>, (!row, !row, !col) -> !q
      %s = tile.dot %kt, %qt, %empty {transpose_b} : !k, !q, !s
      %term = tile.load %terms[%heads, %queries] : memref<8x100xf32>, (!rows, !rows) -> !t
      %p = tile.map (%s, %term : !s, !t) -> !p {
      ^bb0(%x: f32, %z: f32):
        %d = arith.subf %x, %z : f32
        %e = math.exp2 %d : f32
        %h = arith.truncf %e : f32 to bf16
        tile.yield %h : bf16
      }
      %next = tile.dot %p, %qt, %o : !p, !q, !o
      scf.yield %next : !o
    }
    tile.store %sum, %y[%key, %c] : !o, memref<64x64xf32>, (!key, !col)
  }
  tile.return
}
