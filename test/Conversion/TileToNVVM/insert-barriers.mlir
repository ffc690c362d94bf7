// RUN: nsa-opt %s --tile-gpu-insert-barriers --split-input-file | FileCheck %s

// What other threads stored is read behind one barrier.
// CHECK-LABEL: @read_after_write
llvm.func @read_after_write() {
  // CHECK-NEXT: llvm.inline_asm {{.*}} "store"
  tile_gpu.shared_access write 2048 bytes at 0
  llvm.inline_asm has_side_effects "store", "" : () -> ()
  // CHECK-NEXT: tile_gpu.barrier{{$}}
  // CHECK-NEXT: llvm.inline_asm {{.*}} "load"
  tile_gpu.shared_access read 1024 bytes at 1024
  llvm.inline_asm has_side_effects "load", "" : () -> ()
  // CHECK-NEXT: llvm.return
  tile_gpu.shared_access read 2048 bytes at 0
  llvm.return
}

// -----

// Two reads need no barrier, nor does a write beside them.
// CHECK-LABEL: @reads
// CHECK-NEXT: tile_gpu.barrier
// CHECK-NEXT: llvm.return
llvm.func @reads() {
  tile_gpu.shared_access read 2048 bytes at 0
  tile_gpu.shared_access read 2048 bytes at 0
  tile_gpu.shared_access write 2048 bytes at 0
  tile_gpu.shared_access write 2048 bytes at 2048
  llvm.return
}

// -----

// An iteration writes what the one before has read.
// CHECK-LABEL: @loop
llvm.func @loop(%n: i32) {
  %c = llvm.mlir.constant(1 : i32) : i32
  // CHECK: scf.for
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: "store"
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: "load"
  // CHECK-NEXT: }
  scf.for %i = %c to %n step %c : i32 {
    tile_gpu.shared_access write 2048 bytes at 0
    llvm.inline_asm has_side_effects "store", "" : () -> ()
    tile_gpu.shared_access read 2048 bytes at 0
    llvm.inline_asm has_side_effects "load", "" : () -> ()
  } {tile_gpu.uniform = "block"}
  llvm.return
}

// -----

// A branch starts with nothing in flight; behind it counts what either did.
// CHECK-LABEL: @branch
llvm.func @branch(%x: i1) {
  tile_gpu.shared_access write 2048 bytes at 0
  // CHECK: tile_gpu.barrier
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: "load"
  // CHECK-NEXT: }
  scf.if %x {
    tile_gpu.shared_access read 2048 bytes at 0
    llvm.inline_asm has_side_effects "load", "" : () -> ()
  } {tile_gpu.uniform = "block"}
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: llvm.return
  tile_gpu.shared_access write 2048 bytes at 0
  llvm.return
}

// -----

// The newer of two groups of copies stays in flight.
// CHECK-LABEL: @copies
llvm.func @copies() {
  // CHECK-NEXT: tile_gpu.async_commit 2048 bytes at 0
  // CHECK-NEXT: tile_gpu.async_commit 2048 bytes at 2048
  tile_gpu.shared_access copy 2048 bytes at 0
  tile_gpu.async_commit 2048 bytes at 0
  tile_gpu.shared_access copy 2048 bytes at 2048
  tile_gpu.async_commit 2048 bytes at 2048
  // CHECK-NEXT: tile_gpu.async_wait pending 1
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: "load"
  tile_gpu.shared_access read 2048 bytes at 0
  llvm.inline_asm has_side_effects "load", "" : () -> ()
  // CHECK-NEXT: tile_gpu.async_wait pending 0
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: llvm.return
  tile_gpu.shared_access read 2048 bytes at 2048
  llvm.return
}

// -----

// So do groups behind it that the code waits for itself, as loops that copy ahead
// begin with.
// CHECK-LABEL: @copies_ahead
llvm.func @copies_ahead(%n: i32) {
  %c = llvm.mlir.constant(1 : i32) : i32
  // CHECK: tile_gpu.async_commit 2048 bytes at 0
  // CHECK-NEXT: tile_gpu.async_commit{{$}}
  // CHECK-NEXT: tile_gpu.async_commit{{$}}
  tile_gpu.shared_access copy 2048 bytes at 0
  tile_gpu.async_commit 2048 bytes at 0
  tile_gpu.shared_access copy 4096 bytes at 2048
  tile_gpu.async_commit
  tile_gpu.async_commit
  // CHECK-NEXT: tile_gpu.async_wait pending 2
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: scf.for
  // CHECK-NEXT: tile_gpu.async_wait pending 1
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: "load"
  // CHECK-NEXT: tile_gpu.async_commit{{$}}
  scf.for %i = %c to %n step %c : i32 {
    tile_gpu.async_wait pending 1
    tile_gpu.shared_access arrive 4096 bytes at 2048
    tile_gpu.barrier
    tile_gpu.shared_access read 6144 bytes at 0
    llvm.inline_asm has_side_effects "load", "" : () -> ()
    tile_gpu.async_commit
  } {tile_gpu.uniform = "block"}
  // CHECK: llvm.return
  llvm.return
}

// -----

// A thread may write over what it alone has read, not over what others have.
// CHECK-LABEL: @global
llvm.func @global(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) {
  // CHECK-NEXT: "own"
  tile_gpu.global_access read %x owners 0 : !llvm.ptr<1>
  tile_gpu.global_access write %y owners 0 : !llvm.ptr<1>
  llvm.inline_asm has_side_effects "own", "" : () -> ()
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: "other"
  tile_gpu.global_access write %y owners 1 : !llvm.ptr<1>
  llvm.inline_asm has_side_effects "other", "" : () -> ()
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: llvm.return
  tile_gpu.global_access read %y owners 1 : !llvm.ptr<1>
  llvm.return
}

// -----

// Warpgroups finish before a barrier, and see behind it what threads stored.
// CHECK-LABEL: @wgmma
llvm.func @wgmma(%x: f32, %y: f32) -> f32 {
  // CHECK-NEXT: %[[X:.*]] = tile_gpu.wgmma_commit %arg0
  // CHECK-NEXT: %[[Y:.*]] = tile_gpu.wgmma_commit %arg1
  %0 = tile_gpu.wgmma_commit %x : f32
  %1 = tile_gpu.wgmma_commit %y : f32
  // CHECK-NEXT: %[[XDONE:.*]] = tile_gpu.wgmma_wait pending 1 %[[X]]
  // CHECK-NEXT: llvm.fadd %[[XDONE]], %[[XDONE]]
  tile_gpu.wgmma_use %0 : f32
  %2 = llvm.fadd %0, %0 : f32
  // CHECK-NEXT: %[[YDONE:.*]] = tile_gpu.wgmma_wait pending 0 %[[Y]]
  // CHECK-NEXT: tile_gpu.fence_async
  // CHECK-NEXT: tile_gpu.barrier
  tile_gpu.shared_access write 2048 bytes at 0
  tile_gpu.reuse
  // CHECK-NEXT: tile_gpu.barrier
  // CHECK-NEXT: llvm.return %[[YDONE]]
  tile_gpu.barrier
  tile_gpu.wgmma_use %1 : f32
  llvm.return %1 : f32
}

// -----

// The threads that multiply meet at barriers, not those that copy for them.
// CHECK-LABEL: @roles
llvm.func @roles(%x: i1) {
  // CHECK-NEXT: tile_gpu.barrier{{$}}
  tile_gpu.barrier
  // CHECK-NEXT: scf.if
  // CHECK-NEXT: tile_gpu.barrier threads 128
  // CHECK-NEXT: tile_gpu.any_thread %arg0 threads 128
  // CHECK-NEXT: }
  scf.if %x {
    tile_gpu.reuse
    %0 = tile_gpu.any_thread %x
  } else {
    tile_gpu.shared_access read 2048 bytes at 0
  } {tile_gpu.consumers = 128 : i32}
  llvm.return
}
