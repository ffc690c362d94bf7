// RUN: nsa-opt %s --convert-tile-gpu-to-nvvm | FileCheck %s

// CHECK-LABEL: @barriers
llvm.func @barriers(%x: i1) -> i1 {
  // CHECK-NEXT: nvvm.barrier{{$}}
  tile_gpu.barrier
  // CHECK-DAG: %[[ID:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[THREADS:.*]] = arith.constant 128 : i32
  // CHECK: nvvm.barrier id = %[[ID]] number_of_threads = %[[THREADS]]
  scf.if %x {
    tile_gpu.barrier
  } {tile_gpu.consumers = 128 : i32}
  // CHECK: %[[WORD:.*]] = arith.extui %arg0 : i1 to i32
  // CHECK-NEXT: %[[ANY:.*]] = nvvm.barrier #nvvm.reduction<or> %[[WORD]] -> i32
  // CHECK: arith.cmpi ne, %[[ANY]]
  %0 = tile_gpu.any_thread %x
  llvm.return %0 : i1
}

// CHECK-LABEL: @copies
llvm.func @copies() {
  // CHECK-NEXT: nvvm.cp.async.commit.group
  // CHECK-NEXT: nvvm.cp.async.wait.group 1
  // CHECK-NEXT: nvvm.fence.proxy
  tile_gpu.async_commit
  tile_gpu.async_wait pending 1
  tile_gpu.fence_async
  llvm.return
}

// CHECK-LABEL: @wgmma
llvm.func @wgmma(%x: f32, %y: f32) -> f32 {
  // CHECK-NEXT: nvvm.wgmma.commit.group.sync.aligned
  // CHECK-NEXT: %[[SUMS:.*]] = llvm.inline_asm has_side_effects {{.*}}"wgmma.wait_group.sync.aligned 1;", "=f,=f,0,1" %arg0, %arg1
  // CHECK: %[[SUM:.*]] = llvm.extractvalue %[[SUMS]][1]
  // CHECK: llvm.return %[[SUM]]
  %0:2 = tile_gpu.wgmma_commit %x, %y : f32, f32
  %1:2 = tile_gpu.wgmma_wait pending 1 %0#0, %0#1 : f32, f32
  llvm.return %1#1 : f32
}
