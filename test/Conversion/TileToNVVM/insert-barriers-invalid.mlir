// RUN: nsa-opt %s --tile-gpu-insert-barriers --split-input-file --verify-diagnostics

llvm.func @some_threads(%x: i1) {
  tile_gpu.shared_access write 2048 bytes at 0
  scf.if %x {
    // expected-error@+1 {{needs a barrier, but not all threads of the block come by}}
    tile_gpu.shared_access read 2048 bytes at 0
  }
  llvm.return
}

// -----

llvm.func @warps(%x: i1) {
  scf.if %x {
    // expected-error@+1 {{needs a barrier, but not all threads of the block come by}}
    tile_gpu.barrier
  } {tile_gpu.uniform = "warp"}
  llvm.return
}

// -----

llvm.func @vote(%n: i32, %x: i1) {
  %c = llvm.mlir.constant(1 : i32) : i32
  scf.for %i = %c to %n step %c : i32 {
    // expected-error@+1 {{needs all votes, but not all threads of the block come by}}
    %0 = tile_gpu.any_thread %x
  }
  llvm.return
}

// -----

llvm.func @wgmma(%x: i1, %y: f32) {
  scf.if %x {
    // expected-error@+1 {{needs whole warpgroups, but not all threads of the block come by}}
    %0 = tile_gpu.wgmma_commit %y : f32
  }
  llvm.return
}

// -----

llvm.func @use(%x: i1, %y: f32) {
  %0 = tile_gpu.wgmma_commit %y : f32
  scf.if %x {
    // expected-error@+1 {{needs a wait for wgmma, but not all threads of the block come by}}
    tile_gpu.wgmma_use %0 : f32
  }
  llvm.return
}
