// Each kernel is right, but for the line that a command deletes, or changes.
// DEFINE: %{verify} = nsa-opt --tile-gpu-verify-synchronization --allow-unregistered-dialect
// RUN: %{verify} %s -o /dev/null

!a = !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
!b = !tile.tile<16x16xbf16, #tile.shared>
!d = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!p = !tile.tile<16x16xbf16, #tile.mma<warps = 4>>
!buffer = !tile_gpu.memdesc<16x16xbf16>
!bars = !tile_gpu.mbarriers<2>
!row = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>
#wgmma = #tile_gpu.mma<version = 3>

// RUN: sed '/fill$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=FILL
// FILL: 'tile.convert' op reads from byte 0 of shared memory what nothing has written there
// RUN: sed '/visible$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=VISIBLE
// VISIBLE: 'tile.convert' op reads shared memory that is written in 'tile_gpu.local_store', with no tile_gpu.barrier between
// VISIBLE: note: the other access is here
// RUN: sed '/iteration before$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=BEFORE
// BEFORE: 'tile_gpu.async_copy' op writes shared memory that is read in 'tile.convert', with no tile_gpu.barrier between
// RUN: sed '/arrived$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=ARRIVED
// RUN: sed '/arrived$/s/pending 0/pending 1/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=ARRIVED
// ARRIVED: 'tile.convert' op reads shared memory that is written in 'tile_gpu.async_copy', with no tile_gpu.async_wait between
// RUN: sed '/stored apart$/s/at 512/at 256/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=APART
// APART: 'tile_gpu.local_store' op writes shared memory that is written in 'tile_gpu.async_copy', with no tile_gpu.async_wait between
// RUN: sed '/other branch$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=BRANCH
// BRANCH: 'tile.store' op writes an argument that other threads read in 'tile.load', with no tile_gpu.barrier between
tile.kernel private @threads(%x: memref<16x16xbf16>, %y: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 128 : i32, tile_gpu.scratch = 4096 : i64, nsa.shared_bytes = 4096 : i64} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %n, %some = "test.scalars"() : () -> (i32, i1)
  %p = "test.tile"() : () -> !p
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %v = tile_gpu.local_view %0 : !buffer -> !b
  %1 = tile_gpu.alloc swizzle 32 at 512 : !buffer // stored apart
  %w = tile_gpu.local_view %1 : !buffer -> !b
  scf.for %i = %c0 to %n step %c1 : i32 {
    tile_gpu.barrier // iteration before
    tile_gpu.async_copy %x[%r, %c] to %0 width 8 : memref<16x16xbf16>, (!row, !col) to !buffer // fill
    tile_gpu.local_store %p to %1 : !p to !buffer
    tile_gpu.async_wait pending 0 // arrived
    tile_gpu.barrier // visible
    %q = tile.convert %w : !b -> !p
    %o = tile.convert %v : !b -> !p
  }
  %s = tile.load %x[%c0, %c0] : memref<16x16xbf16>, (i32, i32) -> bf16
  scf.if %some {
    tile_gpu.barrier
  } else {
    tile_gpu.barrier // other branch
  }
  tile.store %p, %y[%r, %c] : !p, memref<16x16xbf16>, (!row, !col)
  tile.return
}

// RUN: sed '/async proxy$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=PROXY
// PROXY: 'tile.dot' op reads shared memory that is written in 'tile_gpu.local_store', with no tile_gpu.fence_async and barrier between
// RUN: sed '/have read$/s/pending 0/pending 1/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=SUMS
// SUMS: 'tile_gpu.wgmma_wait' op returns sums that it leaves in flight
// RUN: sed '/have read$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=READ
// READ: 'tile_gpu.local_store' op writes shared memory that is read in 'tile.dot', with no tile_gpu.wgmma_wait between
// RUN: sed '/a use$/s/%%older/%%s/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=USE
// USE: 'test.use' op uses sums in flight, with no tile_gpu.wgmma_wait between
// USE: note: the dot is here
tile.kernel private @wgmma() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32, tile_gpu.scratch = 4096 : i64, nsa.shared_bytes = 4096 : i64} {
  %a, %z, %p = "test.tiles"() : () -> (!a, !d, !p)
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %v = tile_gpu.local_view %0 : !buffer -> !b
  tile_gpu.local_store %p to %0 : !p to !buffer
  tile_gpu.fence_async // async proxy
  tile_gpu.barrier
  %s = tile.dot %a, %v, %z {tile_gpu.mma = #wgmma} : !a, !b, !d
  %t = tile.dot %a, %v, %z {tile_gpu.mma = #wgmma} : !a, !b, !d
  %older = tile_gpu.wgmma_wait pending 1 %s : !d
  %u = tile_gpu.wgmma_wait pending 0 %t : !d // have read
  tile_gpu.barrier
  tile_gpu.local_store %p to %0 : !p to !buffer
  "test.use"(%older) : (!d) -> () // a use
  tile.return
}

// RUN: sed '/made$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=MADE
// MADE: 'tile_gpu.mbarrier_wait' op uses an mbarrier at byte 2064 that no tile_gpu.mbarrier_init has initialized
// RUN: sed '/full$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=FULL
// RUN: sed '/full$/s/.phase/%%other/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=FULL
// FULL: 'tile.convert' op reads shared memory that is written in 'tile_gpu.tma_load', with no tile_gpu.mbarrier_wait between
// RUN: sed '/empty$/s/.phase/%%other/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=NEVER
// RUN: sed '/expected$/s/512/528/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=NEVER
// RUN: sed '/released$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=NEVER
// NEVER: 'tile_gpu.mbarrier_wait' op waits for a phase that never ends
// RUN: sed '/empty$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: 'tile_gpu.tma_load' op writes shared memory that is written in 'tile_gpu.tma_load', with no tile_gpu.mbarrier_wait between
// RUN: sed '/released$/d;s,// earlier,tile_gpu.mbarrier_arrive %%empty[%%stage] : !bars,' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=EARLY
// EARLY: 'tile_gpu.tma_load' op writes shared memory that is read in 'tile.convert', with no tile_gpu.mbarrier_arrive and tile_gpu.mbarrier_wait between
// RUN: sed '/released$/s/: !bars/if %more &/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=LAST
// LAST: 'tile_gpu.mbarrier_init' op has stage 0 filled 9 times, but released 8 times
// RUN: sed '/tile once$/d' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=ONCE
// ONCE: 'tile_gpu.tma_load' op may still write when the kernel ends, with no tile_gpu.mbarrier_wait after it
tile.kernel private @roles() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 128 : i32, tile_gpu.scratch = 4096 : i64, nsa.shared_bytes = 4096 : i64} {
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %1 = tile_gpu.alloc swizzle 32 at 1024 : !buffer
  %full = tile_gpu.mbarriers arrivals 1 at 2048 : !bars
  %empty = tile_gpu.mbarriers arrivals 4 at 2064 : !bars
  %kept = tile_gpu.mbarriers arrivals 1 at 2080 : !bars
  tile_gpu.mbarrier_init %full, %empty, %kept : !bars, !bars, !bars // made
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c512 = arith.constant 512 : i32
  tile_gpu.warp_specialize blocks 1 producer {
    %id = tile.program_id 0 : i32
    %n = arith.addi %id, %c1 : i32
    scf.for %i = %c0 to %n step %c1 iter_args(%stage = %c0, %phase = %c1) -> (i32, i32) : i32 {
      %other = arith.xori %phase, %c1 : i32
      tile_gpu.mbarrier_wait %empty[%stage] parity %phase : !bars // empty
      tile_gpu.mbarrier_expect %full[%stage] bytes 512 : !bars // expected
      %bytes = arith.muli %stage, %c512 : i32
      tile_gpu.tma_load map 0[%c0, %i] to %0 stage %bytes signals %full[%stage] : !buffer, !bars
      %next = arith.subi %c1, %stage : i32
      %flipped = arith.xori %phase, %stage : i32
      scf.yield %next, %flipped : i32, i32
    }
    tile_gpu.mbarrier_expect %kept[%c0] bytes 512 : !bars
    tile_gpu.tma_load map 0[%c0, %c0] to %1 signals %kept[%c0] : !buffer, !bars
  } consumer {
    // The number of iterations follows from a bound that the producer does not have.
    %id = tile.program_id 0 : i32
    scf.for %i = %id to %c512 step %c1 : i32 {
    }
    %n = arith.addi %id, %c1 : i32
    %last = arith.subi %n, %c1 : i32
    scf.for %i = %c0 to %n step %c1 iter_args(%stage = %c0, %phase = %c0) -> (i32, i32) : i32 {
      %other = arith.xori %phase, %c1 : i32
      tile_gpu.mbarrier_wait %full[%stage] parity %phase : !bars // full
      %more = arith.cmpi ne, %i, %last : i32
      %bytes = arith.muli %stage, %c512 : i32
      // earlier
      %v = tile_gpu.local_view %0 stage %bytes : !buffer -> !b
      %q = tile.convert %v : !b -> !p
      tile_gpu.mbarrier_arrive %empty[%stage] : !bars // released
      %next = arith.subi %c1, %stage : i32
      %flipped = arith.xori %phase, %stage : i32
      scf.yield %next, %flipped : i32, i32
    }
    tile_gpu.mbarrier_wait %kept[%c0] parity %c0 : !bars // tile once
  }
  tile.return
}

// RUN: sed 's/^  %%0 = tile_gpu.alloc.*/  %%0 = "test.buffer"() : () -> !buffer/' %s | not %{verify} 2>&1 | FileCheck %s --check-prefix=OPERAND
// OPERAND: takes a '!tile_gpu.memdesc<16x16xbf16>' that no operation of its kernel makes
