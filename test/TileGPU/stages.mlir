// Stages in shared memory of the tile that a loop loads, 512 bytes of bf16 in a
// stage of 1,024: with one, each iteration copies its own and waits; with more,
// as many less one are copied before the loop, each in a group of its own, and
// an iteration leaves all but the oldest group in flight.
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=stages=1 --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=ONE --implicit-check-not=nvvm.cp.async
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=stages=2 --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=TWO --implicit-check-not=nvvm.cp.async
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm | FileCheck %s --check-prefix=TWO
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=stages=3 --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=THREE --implicit-check-not=nvvm.cp.async

// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=3 shared-limit=3071" | FileCheck %s --check-prefix=PLAN

// PLAN: #[[PIPELINE:.*]] = #tile_gpu.pipeline<stages = 2, bytes = 1024, offset = 0>
// PLAN: tile.kernel private @loop
// PLAN-SAME: nsa.shared_bytes = 2048 : i64
// PLAN-SAME: tile_gpu.scratch = 2048 : i64
// PLAN: scf.for
// PLAN: tile_gpu.alloc swizzle {{.*}} at 0 : !tile_gpu.memdesc
// PLAN: tile_gpu.pipeline = #[[PIPELINE]]

// ONE: llvm.func @loop
// ONE-SAME: nsa.shared_bytes = 1024 : i64
// ONE: scf.for
// ONE-SAME: -> (f32, f32, f32, f32, f32, f32, f32, f32)  :
// ONE: nvvm.cp.async.shared.global
// ONE: nvvm.cp.async.commit.group
// ONE-NEXT: nvvm.cp.async.wait.group 0
// ONE-NEXT: nvvm.barrier
// ONE: nvvm.mma.sync

// TWO: llvm.func @loop
// TWO-SAME: nsa.shared_bytes = 2048 : i64
// TWO: nvvm.cp.async.shared.global
// TWO: nvvm.cp.async.commit.group
// The loop also carries the stage that it reads.
// TWO: scf.for
// TWO-SAME: -> (f32, f32, f32, f32, f32, f32, f32, f32, i32)  :
// TWO: nvvm.cp.async.wait.group 0
// TWO-NEXT: nvvm.barrier
// TWO: nvvm.cp.async.shared.global
// TWO: nvvm.cp.async.commit.group
// TWO: nvvm.mma.sync

// THREE: llvm.func @loop
// THREE-SAME: nsa.shared_bytes = 3072 : i64
// THREE: nvvm.cp.async.shared.global
// THREE: nvvm.cp.async.commit.group
// THREE: nvvm.cp.async.shared.global
// THREE: nvvm.cp.async.commit.group
// THREE: scf.for
// THREE-SAME: -> (f32, f32, f32, f32, f32, f32, f32, f32, i32)  :
// THREE: nvvm.cp.async.wait.group 1
// THREE-NEXT: nvvm.barrier
// THREE: nvvm.cp.async.shared.global
// THREE: nvvm.cp.async.commit.group
// THREE: nvvm.mma.sync

// A limit that all stages fit into changes nothing; below, there are as many as
// fit, and below one an error.
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=3 shared-limit=3072" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=THREE
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=3 shared-limit=3071" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=TWO --implicit-check-not=nvvm.cp.async
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=3 shared-limit=2047" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=2 shared-limit=1024" --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: not nsa-opt %s --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="stages=3 shared-limit=1023" --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm 2>&1 \
// RUN:   | FileCheck %s --check-prefix=LARGE
// LARGE: error: kernel @loop needs 1024 bytes of shared memory, more than the 1023 that a block may have
tile.kernel private @loop(%x: memref<64x16xbf16>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %zero = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<16x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %init = tile.splat %zero : !tile.tile<16x16xf32>
  %a = tile.load %x[%rows, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
  %sum = scf.for %i = %c0 to %c64 step %c16 iter_args(%acc = %init) -> (!tile.tile<16x16xf32>) : i32 {
    %first = tile.range %i : !tile.tile<16x1xi32>
    %b = tile.load %x[%first, %cols] : memref<64x16xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xbf16>
    %d = tile.dot %a, %b, %acc {transpose_b} : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16>, !tile.tile<16x16xf32>
    scf.yield %d : !tile.tile<16x16xf32>
  }
  tile.store %sum, %z[%rows, %cols] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}
