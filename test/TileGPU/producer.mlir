// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="wgmma producer-sums=0" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="wgmma producers=false" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s --check-prefix=WITHOUT
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s --check-prefix=FEW
// RUN: sed 's/num_outputs/nsa.producer, num_outputs/' %s | nsa-opt - --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s --check-prefix=ASKED
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="wgmma producer-sums=0" --tile-gpu-warp-specialize --split-input-file | FileCheck %s --check-prefix=SPLIT
// RUN: nsa-opt %s --nsa-tile-to-nvvm-llvm="wgmma producer-sums=0" --split-input-file | FileCheck %s --check-prefix=LLVM

// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="wgmma producer-sums=0" --split-input-file --remarks-filter="tile-gpu-allocate-shared-memory" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS

// REMARKS: Function=attend{{.*}}warp-specialized 1 loop: 4 stages x 1024 B, 2 CTAs/SM
// Sums of 16 registers are too few by default, unless the kernel asks for it.
// ASKED: nvvm.mbarrier.init
// WITHOUT-NOT: mbarrier
// FEW-NOT: mbarrier

!q = !tile.tile<64x32xbf16, #tile.shared>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!p = !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
!o = !tile.tile<64x32xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>

// The tile of the whole kernel and those of the loop: the same map for both
// operands from k. A row of 32 elements is one box of 64 bytes, its swizzle.
// Two blocks of 256 threads have 128 registers each at first.
// CHECK-LABEL: llvm.func @attend(
// CHECK-SAME: %[[QMAP:[^ ]*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant},
// CHECK-SAME: %[[KMAP:[^ ]*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}
// CHECK-SAME: nsa.launch_registers = 128 : i64
// CHECK-SAME: nsa.tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 32, 64>, strides = array<i64: 64>, box = array<i64: 32, 64>, swizzle = 64>,
// CHECK-SAME: #rt.tensor_map<argument = 1, element = bf16, extents = array<i64: 32, 100>, strides = array<i64: 64>, box = array<i64: 32, 16>, swizzle = 64>]
// CHECK-SAME: nvvm.minctasm = 2 : i32, nvvm.reqntid = array<i32: 256, 1, 1>

// Four stages: what arrives is announced once, each of four warps reads.
// CHECK: scf.if
// CHECK-COUNT-9: nvvm.mbarrier.init
// CHECK: nvvm.fence.mbarrier.init
// CHECK: nvvm.barrier
// CHECK: nvvm.shfl.sync idx
// CHECK: scf.if

// The consumers: the first dot, and after it the last one of the iteration
// before, whose stage is free then.
// CHECK: nvvm.setmaxregister increase 232
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: %[[LOOP:.*]]:{{.*}} = scf.for %[[I:.*]] = %[[FIRST:[^ ]*]] to
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK-COUNT-2: mma_async.sync.aligned.m64n16k16
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: mma_async.sync.aligned.m64n32k16
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"
// CHECK: "wgmma.wait_group.sync.aligned 0;"
// CHECK: %[[LATER:.*]] = arith.cmpi ne, %[[I]], %[[FIRST]]
// CHECK: scf.if %[[LATER]]
// CHECK: nvvm.bar.warp.sync
// CHECK: nvvm.mbarrier.arrive
// CHECK: scf.yield
// What is left of the last iteration.
// CHECK: mma_async.sync.aligned.m64n32k16

// The one that copies.
// CHECK: nvvm.setmaxregister decrease 24
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[QMAP]]
// CHECK: scf.for
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[KMAP]]
// CHECK-NOT: cp.async

// The same before code is made of it. The loop carries operand a of the delayed
// dot and the stage of its b.
// SPLIT-LABEL: tile.kernel private @attend
// SPLIT: %[[FULL:[^ ]*]] = tile_gpu.mbarriers arrivals 1 at {{.*}} : !tile_gpu.mbarriers<4>
// SPLIT: %[[EMPTY:[^ ]*]] = tile_gpu.mbarriers arrivals 4 at
// SPLIT: %[[KEPT:[^ ]*]] = tile_gpu.mbarriers arrivals 1 at {{.*}} : !tile_gpu.mbarriers<1>
// SPLIT: tile_gpu.mbarrier_init %[[FULL]], %[[EMPTY]], %[[KEPT]]
// SPLIT: tile_gpu.warp_specialize blocks 2 launch 128 registers [24, 232] producer {
// SPLIT: tile_gpu.mbarrier_expect %[[KEPT]][%{{.*}}] bytes 4096
// SPLIT: tile_gpu.tma_load map 0
// SPLIT: scf.for {{.*}} iter_args(%[[S:[^ ]*]] = %{{[^ ]*}}, %[[P:[^ ]*]] =
// SPLIT: tile_gpu.mbarrier_wait %[[EMPTY]][%[[S]]]
// SPLIT: tile_gpu.mbarrier_expect %[[FULL]][%[[S]]] bytes 1024
// SPLIT: tile_gpu.tma_load map 1{{.*}} signals %[[FULL]][%[[S]]] evict_last
// SPLIT: } consumer {
// SPLIT: tile_gpu.mbarrier_wait %[[KEPT]]
// SPLIT: scf.for {{.*}} iter_args(%[[SUM:[^ ]*]] = %{{[^ ]*}}, %[[A:[^ ]*]] = %{{[^ ]*}}, %[[BEFORE:[^ ]*]] = %{{[^ ]*}}, %[[STAGE:[^ ]*]] = %{{[^ ]*}}, %[[PHASE:[^ ]*]] =
// SPLIT: tile_gpu.mbarrier_wait %[[FULL]][%[[STAGE]]] parity %[[PHASE]]
// SPLIT: tile.dot {{.*}}transpose_b
// SPLIT: arith.muli %[[BEFORE]]
// SPLIT: tile.dot %[[A]], %{{.*}}, %[[SUM]]
// SPLIT: tile_gpu.mbarrier_arrive %[[EMPTY]][%[[BEFORE]]] if
// SPLIT: scf.yield
// SPLIT: scf.if
// SPLIT: tile.dot
// SPLIT: tile_gpu.mbarrier_arrive %[[EMPTY]]

// LLVM-LABEL: llvm.func @attend(
// LLVM: mbarrier.try_wait.parity
tile.kernel private @attend(%q: memref<64x32xbf16>, %k: memref<100x32xbf16>, %y: memref<64x32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c100 = arith.constant 100 : i32
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %qt = tile.load %q[%r, %c] : memref<64x32xbf16>, (!row, !col) -> !q
  %none = tile.splat %zero : !o
  %sum = scf.for %i = %c0 to %c100 step %c16 iter_args(%o = %none) -> (!o) : i32 {
    %n = tile.range %i : !key
    %kt = tile.load %k[%n, %c] : memref<100x32xbf16>, (!key, !col) -> !k
    %acc = tile.splat %zero : !s
    %s = tile.dot %qt, %kt, %acc {transpose_b} : !q, !k, !s
    %p = tile.map (%s : !s) -> !p {
    ^bb0(%x: f32):
      %e = math.exp2 %x : f32
      %h = arith.truncf %e : f32 to bf16
      tile.yield %h : bf16
    }
    %scaled = tile.map (%o : !o) -> !o {
    ^bb0(%x: f32):
      %d = arith.divf %x, %two : f32
      tile.yield %d : f32
    }
    %next = tile.dot %p, %kt, %scaled : !p, !k, !o
    scf.yield %next : !o
  }
  tile.store %sum, %y[%r, %c] : !o, memref<64x32xf32>, (!row, !col)
  tile.return
}

// -----

!q = !tile.tile<64x32xbf16, #tile.shared>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>

// Every second row is no box; threads copy.
// CHECK-LABEL: llvm.func @steps(
// CHECK-NOT: mbarrier
// CHECK: nvvm.cp.async.shared.global
// LLVM-LABEL: llvm.func @steps(
tile.kernel private @steps(%q: memref<64x32xbf16>, %k: memref<100x32xbf16>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c100 = arith.constant 100 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %qt = tile.load %q[%r, %c] : memref<64x32xbf16>, (!row, !col) -> !q
  %none = tile.splat %zero : !s
  %sum = scf.for %i = %c0 to %c100 step %c16 iter_args(%o = %none) -> (!s) : i32 {
    %n = tile.range %i {step = 2 : i32} : !key
    %kt = tile.load %k[%n, %c] : memref<100x32xbf16>, (!key, !col) -> !k
    %next = tile.dot %qt, %kt, %o {transpose_b} : !q, !k, !s
    scf.yield %next : !s
  }
  tile.store %sum, %y[%r, %m] : !s, memref<64x16xf32>, (!row, !sum)
  tile.return
}

// -----

!q = !tile.tile<64x32xbf16, #tile.shared>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!line = !tile.tile<1x16xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>

// A row of f32 is a box where it begins at a multiple of 16 bytes; threads load
// the other one, one element off, themselves. All loops take turns in one ring:
// the outer one carries its state.
// CHECK-LABEL: llvm.func @lines(
// CHECK-SAME: element = f32, extents = array<i64: 100>, strides = array<i64>, box = array<i64: 16>, swizzle = 0>
// CHECK: nvvm.setmaxregister increase
// CHECK: scf.for
// CHECK: scf.for
// CHECK: nvvm.mbarrier.try_wait.parity
// CHECK: mma_async
// CHECK: nvvm.mbarrier.arrive
// CHECK: nvvm.setmaxregister decrease
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: cp.async
// LLVM-LABEL: llvm.func @lines(
tile.kernel private @lines(%q: memref<64x32xbf16>, %k: memref<100x32xbf16>, %x: memref<100xf32>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %c16 = arith.constant 16 : i32
  %c80 = arith.constant 80 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %qt = tile.load %q[%r, %c] : memref<64x32xbf16>, (!row, !col) -> !q
  %none = tile.splat %zero : !s
  %sum = scf.for %h = %c0 to %c3 step %c1 iter_args(%outer = %none) -> (!s) : i32 {
    %own = scf.for %i = %c0 to %c80 step %c16 iter_args(%o = %outer) -> (!s) : i32 {
      %n = tile.range %i : !key
      %j = tile.range %i : !sum
      %i1 = arith.addi %i, %c1 : i32
      %j1 = tile.range %i1 : !sum
      %kt = tile.load %k[%n, %c] : memref<100x32xbf16>, (!key, !col) -> !k
      %a = tile.load %x[%j] : memref<100xf32>, (!sum) -> !line
      %b = tile.load %x[%j1] : memref<100xf32>, (!sum) -> !line
      %d = tile.dot %qt, %kt, %none {transpose_b} : !q, !k, !s
      %next = tile.map (%o, %d, %a, %b : !s, !s, !line, !line) -> !s {
      ^bb0(%e: f32, %f: f32, %g: f32, %l: f32):
        %t = arith.mulf %f, %g : f32
        %u = arith.mulf %t, %l : f32
        %v = arith.addf %e, %u : f32
        tile.yield %v : f32
      }
      scf.yield %next : !s
    }
    scf.yield %own : !s
  }
  tile.store %sum, %y[%r, %m] : !s, memref<64x16xf32>, (!row, !sum)
  tile.return
}
