// RUN: nsa-opt %s --tile-gpu-insert-barriers --allow-unregistered-dialect | FileCheck %s

!rows = !tile.tile<16x1xi32, #tile.rematerialized>
!cols = !tile.tile<1x16xi32, #tile.rematerialized>
!mma = !tile.tile<16x16xbf16, #tile.mma<warps = 1>>
!shared = !tile.tile<16x16xbf16, #tile.shared>
!buffer = !tile_gpu.memdesc<16x16xbf16>
!blocked = !tile.tile<16x16xf32, #tile_gpu.blocked<threads = 32, threads_per_row = 4, width = 4>>
!spread = !tile.tile<16x16xf32, #tile_gpu.blocked<threads = 32, threads_per_row = 2, width = 4>>
!sums = !tile.tile<1x16xf32, #tile_gpu.blocked<threads = 32, threads_per_row = 4, width = 4>>

// What threads store to one buffer is read after a barrier, a second time
// without; what lies elsewhere is stored without, what has been read is not.
// CHECK-LABEL: @stores
tile.kernel private @stores(%x: memref<1xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 1024 : i64, nsa.shared_bytes = 1024 : i64} {
  %t = "test.tile"() : () -> !mma
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %1 = tile_gpu.alloc swizzle 32 at 512 : !buffer
  // CHECK: tile_gpu.local_store
  // CHECK-NEXT: tile_gpu.local_view
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.convert
  // CHECK-NEXT: tile.convert
  tile_gpu.local_store %t to %0 : !mma to !buffer
  %v = tile_gpu.local_view %0 : !buffer -> !shared
  %a = tile.convert %v : !shared -> !mma
  %b = tile.convert %v : !shared -> !mma
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile_gpu.local_store
  // CHECK-NEXT: tile_gpu.local_store
  // CHECK-NEXT: tile.return
  tile_gpu.local_store %t to %0 : !mma to !buffer
  tile_gpu.local_store %t to %1 : !mma to !buffer
  tile.return
}

// An iteration stores what the one before has read; nothing is in flight where
// a branch begins.
// CHECK-LABEL: @control
tile.kernel private @control(%n: memref<1xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 1024 : i64, nsa.shared_bytes = 1024 : i64} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %count = tile.load %n[%c0] : memref<1xi32>, (i32) -> i32
  %any = arith.cmpi sgt, %count, %c0 : i32
  %t = "test.tile"() : () -> !mma
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  // CHECK: scf.for
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile_gpu.local_store
  // CHECK-NEXT: tile_gpu.local_view
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.convert
  // CHECK-NEXT: }
  scf.for %i = %c0 to %count step %c1 : i32 {
    tile_gpu.local_store %t to %0 : !mma to !buffer
    %v = tile_gpu.local_view %0 : !buffer -> !shared
    %a = tile.convert %v : !shared -> !mma
  }
  // CHECK-NEXT: tile_gpu.alloc
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile_gpu.local_store
  // CHECK-NEXT: tile_gpu.local_view
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: tile.convert
  // CHECK-NEXT: }
  %1 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  tile_gpu.local_store %t to %1 : !mma to !buffer
  %w = tile_gpu.local_view %1 : !buffer -> !shared
  scf.if %any {
    %b = tile.convert %w : !shared -> !mma
  }
  tile.return
}

// Copies are awaited where they are read; the newer group stays in flight.
// CHECK-LABEL: @copies
tile.kernel private @copies(%x: memref<16x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 1024 : i64, nsa.shared_bytes = 1024 : i64} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !rows
  %c = tile.range %c0 : !cols
  %0 = tile_gpu.alloc swizzle 32 at 0 : !buffer
  %1 = tile_gpu.alloc swizzle 32 at 512 : !buffer
  tile_gpu.async_copy %x[%r, %c] to %0 width 8 : memref<16x16xbf16>, (!rows, !cols) to !buffer
  tile_gpu.async_copy %x[%r, %c] to %1 width 8 : memref<16x16xbf16>, (!rows, !cols) to !buffer
  %v = tile_gpu.local_view %0 : !buffer -> !shared
  %w = tile_gpu.local_view %1 : !buffer -> !shared
  // CHECK: tile_gpu.async_wait pending 1
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.convert
  // CHECK-NEXT: tile_gpu.async_wait pending 0
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.convert
  %a = tile.convert %v : !shared -> !mma
  %b = tile.convert %w : !shared -> !mma
  tile.return
}

// A thread may store to what it alone has loaded, not to what others have: the
// tile of other columns.
// CHECK-LABEL: @arguments
tile.kernel private @arguments(%x: memref<16x16xf32>, %y: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 0 : i64} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !rows
  %c = tile.range %c0 : !cols
  // CHECK: tile.load
  // CHECK-NEXT: tile.store
  %0 = tile.load %x[%r, %c] : memref<16x16xf32>, (!rows, !cols) -> !blocked
  tile.store %0, %y[%r, %c] : !blocked, memref<16x16xf32>, (!rows, !cols)
  // CHECK-NEXT: "test.tile"
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.store
  %1 = "test.tile"() : () -> !spread
  tile.store %1, %y[%r, %c] : !spread, memref<16x16xf32>, (!rows, !cols)
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: tile.load
  %2 = tile.load %y[%r, %c] : memref<16x16xf32>, (!rows, !cols) -> !blocked
  tile.return
}

// What goes through scratch has barriers of its own.
// CHECK-LABEL: @scratch
tile.kernel private @scratch(%x: memref<16x16xf32>, %y: memref<1x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, tile_gpu.threads = 32 : i32,
                tile_gpu.scratch = 0 : i64, nsa.shared_bytes = 64 : i64} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !rows
  %c = tile.range %c0 : !cols
  // CHECK-NOT: tile_gpu.barrier
  %0 = tile.load %x[%r, %c] : memref<16x16xf32>, (!rows, !cols) -> !blocked
  %1 = tile.convert %0 : !blocked -> !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  tile.store %1, %x[%r, %c] : !tile.tile<16x16xf32, #tile.mma<warps = 1>>, memref<16x16xf32>, (!rows, !cols)
  tile.return
}
