// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s

// One warp: Q K^T by ldmatrix and mma.sync, straight from copies of 16 bytes.
// 16 x 32 elements of q are 64 pieces, two for each thread.
// CHECK-LABEL: llvm.func @product(
// CHECK-SAME: nsa.shared_bytes = 2048 : i64
// CHECK-SAME: nvvm.maxnreg = 224 : i32, nvvm.reqntid = array<i32: 32, 1, 1>
// CHECK-COUNT-2: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK-COUNT-2: nvvm.cp.async.shared.global
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK-NEXT: nvvm.cp.async.wait.group 1
// CHECK-NEXT: nvvm.barrier
// CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<row>, num = 4
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier
// CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<row>, num = 4
// CHECK-COUNT-2: nvvm.mma.sync A[{{.*}}] B[{{.*}}] C[%[[ZERO:.*]], %[[ZERO]], %[[ZERO]], %[[ZERO]]] {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK: nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK-COUNT-4: llvm.store {{.*}} : vector<2xf32>, !llvm.ptr<1>
// CHECK-NOT: llvm.store
tile.kernel private @product(%q: memref<16x32xbf16>, %k: memref<16x32xbf16>, %s: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %n = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %qt = tile.load %q[%r, %c] : memref<16x32xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xbf16, #tile.shared>
  %kt = tile.load %k[%r, %c] : memref<16x32xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xbf16, #tile.shared>
  %qf = tile.convert %qt : !tile.tile<16x32xbf16, #tile.shared> -> !tile.tile<16x32xbf16, #tile.mma<warps = 1>>
  %acc = tile.splat %zero : !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  %d = tile.dot %qf, %kt, %acc {transpose_b} : !tile.tile<16x32xbf16, #tile.mma<warps = 1>>, !tile.tile<16x32xbf16, #tile.shared>, !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  tile.store %d, %s[%r, %n] : !tile.tile<16x16xf32, #tile.mma<warps = 1>>, memref<16x16xf32>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
  tile.return
}

// -----

// A dot of a map: rounded in pairs, b transposed by ldmatrix, a tile of
// three M-tiles in three warps; a mask by row and column, computed where it is
// used; a row's maximum in a quad.
// CHECK-LABEL: llvm.func @masked(
// CHECK-SAME: nvvm.maxnreg = 224 : i32, nvvm.reqntid = array<i32: 96, 1, 1>
// CHECK: %[[T:.*]] = nvvm.read.ptx.sreg.tid.x
// CHECK: arith.remui %[[T]], %c32_i32
// CHECK: arith.divui %[[T]], %c32_i32
// CHECK-COUNT-8: llvm.load {{.*}} -> vector<2xf32>
// CHECK: nvvm.vote.sync all
// CHECK: arith.cmpi sle
// CHECK: llvm.intr.maxnum
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c1_i32
// CHECK: llvm.intr.maxnum
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c2_i32
// CHECK: nvvm.convert.f32x2.to.bf16x2
// CHECK: nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-2: nvvm.mma.sync
tile.kernel private @masked(%x: memref<48x32xf32>, %v: memref<32x16xbf16>, %y: memref<48x16xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<48x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %k = tile.range %c0 : !tile.tile<32x1xi32, #tile.rematerialized>
  %n = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %xt = tile.load %x[%r, %c] : memref<48x32xf32>, (!tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<48x32xf32, #tile.mma<warps = 3>>
  %vt = tile.load %v[%k, %n] : memref<32x16xbf16>, (!tile.tile<32x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>) -> !tile.tile<32x16xbf16, #tile.shared>
  %m = tile.map (%xt, %r, %c : !tile.tile<48x32xf32, #tile.mma<warps = 3>>, !tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<48x32xf32, #tile.mma<warps = 3>> {
  ^bb0(%e: f32, %i: i32, %j: i32):
    %visible = arith.cmpi sle, %j, %i : i32
    %s = arith.select %visible, %e, %zero : f32
    tile.yield %s : f32
  }
  %max = tile.reduce max %m {axis = 1 : i32} : !tile.tile<48x32xf32, #tile.mma<warps = 3>> -> !tile.tile<48x1xf32, #tile.mma<warps = 3>>
  %p = tile.map (%m, %max : !tile.tile<48x32xf32, #tile.mma<warps = 3>>, !tile.tile<48x1xf32, #tile.mma<warps = 3>>) -> !tile.tile<48x32xbf16, #tile.mma<warps = 3>> {
  ^bb0(%e: f32, %top: f32):
    %d = arith.subf %e, %top : f32
    %h = arith.truncf %d : f32 to bf16
    tile.yield %h : bf16
  }
  %acc = tile.splat %zero : !tile.tile<48x16xf32, #tile.mma<warps = 3>>
  %o = tile.dot %p, %vt, %acc : !tile.tile<48x32xbf16, #tile.mma<warps = 3>>, !tile.tile<32x16xbf16, #tile.shared>, !tile.tile<48x16xf32, #tile.mma<warps = 3>>
  %oh = tile.map (%o : !tile.tile<48x16xf32, #tile.mma<warps = 3>>) -> !tile.tile<48x16xbf16, #tile.mma<warps = 3>> {
  ^bb0(%e: f32):
    %h = arith.truncf %e : f32 to bf16
    tile.yield %h : bf16
  }
  tile.store %oh, %y[%r, %n] : !tile.tile<48x16xbf16, #tile.mma<warps = 3>>, memref<48x16xbf16>, (!tile.tile<48x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
  tile.return
}

// -----

// A loop copies the next tile into the other of two stages while it multiplies
// by this one; one barrier an iteration.
// CHECK-LABEL: llvm.func @ahead(
// CHECK-SAME: nsa.shared_bytes = 2048 : i64
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// CHECK: scf.for %[[I:.*]] = %c0_i32 to %c64_i32 step %c16_i32 iter_args({{.*}}, %[[STAGE:.*]] = %c0_i32)
// CHECK-NEXT: %[[OTHER:.*]] = arith.subi %c1024_i32, %[[STAGE]]
// CHECK-NEXT: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[I]], %c16_i32
// CHECK-NEXT: %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %c64_i32
// CHECK-NEXT: scf.if %[[MORE]]
// CHECK: llvm.getelementptr %{{.*}}[%[[OTHER]]]
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// CHECK-NOT: nvvm.barrier
// CHECK: llvm.getelementptr %{{.*}}[%[[STAGE]]]
// CHECK: nvvm.ldmatrix
// CHECK-NOT: nvvm.barrier
// CHECK: scf.yield
tile.kernel private @ahead(%a: memref<16x32xbf16>, %x: memref<64x32xbf16>, %y: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c64 = arith.constant 64 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %n = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %at = tile.load %a[%r, %c] : memref<16x32xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xbf16, #tile.mma<warps = 1>>
  %zeros = tile.splat %zero : !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  %sum = scf.for %i = %c0 to %c64 step %c16 iter_args(%acc = %zeros) -> (!tile.tile<16x16xf32, #tile.mma<warps = 1>>) : i32 {
    %k = tile.range %i : !tile.tile<16x1xi32, #tile.rematerialized>
    %xt = tile.load %x[%k, %c] : memref<64x32xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xbf16, #tile.shared>
    %d = tile.dot %at, %xt, %acc {transpose_b} : !tile.tile<16x32xbf16, #tile.mma<warps = 1>>, !tile.tile<16x32xbf16, #tile.shared>, !tile.tile<16x16xf32, #tile.mma<warps = 1>>
    scf.yield %d : !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  }
  tile.store %sum, %y[%r, %n] : !tile.tile<16x16xf32, #tile.mma<warps = 1>>, memref<16x16xf32>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
  tile.return
}

// -----

// A column's sum: in the thread, across the quads of a warp, across warps. A
// MMA tile goes to shared memory in pairs, and back by ldmatrix.
// CHECK-LABEL: llvm.func @columns(
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c4_i32
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c8_i32
// CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c16_i32
// CHECK: nvvm.barrier
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK-COUNT-4: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK: llvm.store {{.*}} : vector<2xbf16>, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK: nvvm.ldmatrix
tile.kernel private @columns(%x: memref<32x16xbf16>, %y: memref<32x16xbf16>, %z: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<32x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x16xi32, #tile.rematerialized>
  %t = tile.load %x[%r, %c] : memref<32x16xbf16>, (!tile.tile<32x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>) -> !tile.tile<32x16xbf16, #tile.mma<warps = 2>>
  %f = tile.map (%t : !tile.tile<32x16xbf16, #tile.mma<warps = 2>>) -> !tile.tile<32x16xf32, #tile.mma<warps = 2>> {
  ^bb0(%e: bf16):
    %w = arith.extf %e : bf16 to f32
    tile.yield %w : f32
  }
  %s = tile.reduce add %f {axis = 0 : i32} : !tile.tile<32x16xf32, #tile.mma<warps = 2>> -> !tile.tile<1x16xf32, #tile.mma<warps = 2>>
  tile.store %s, %z[%c] : !tile.tile<1x16xf32, #tile.mma<warps = 2>>, memref<16xf32>, (!tile.tile<1x16xi32, #tile.rematerialized>)
  %shared = tile.convert %t : !tile.tile<32x16xbf16, #tile.mma<warps = 2>> -> !tile.tile<32x16xbf16, #tile.shared>
  %back = tile.convert %shared : !tile.tile<32x16xbf16, #tile.shared> -> !tile.tile<32x16xbf16, #tile.mma<warps = 2>>
  tile.store %back, %y[%r, %c] : !tile.tile<32x16xbf16, #tile.mma<warps = 2>>, memref<32x16xbf16>, (!tile.tile<32x1xi32, #tile.rematerialized>, !tile.tile<1x16xi32, #tile.rematerialized>)
  tile.return
}

// -----

// Chunks of 8 columns are stored where they begin inside.
// CHECK-LABEL: llvm.func @chunks_outside(
// CHECK: nvvm.shfl.sync
// CHECK: %[[INSIDE:.+]] = arith.cmpi ult, %{{.*}}, %c48_i32
// CHECK: scf.if %[[INSIDE]] {
// CHECK: llvm.store %{{.*}} : vector<8xbf16>, !llvm.ptr<1>
!f = !tile.tile<64x32xbf16, #tile.mma<warps = 4>>
!rd = !tile.tile<64x1xi32, #tile.rematerialized>
!cd = !tile.tile<1x32xi32, #tile.rematerialized>
tile.kernel private @chunks_outside(%x: memref<64x48xbf16>, %z: memref<64x48xbf16>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c32 = arith.constant 32 : i32
  %p = tile.program_id 0 : i32
  %s = arith.muli %p, %c32 : i32
  %rows = tile.range %c0 : !rd
  %cols = tile.range %s : !cd
  %a = tile.load %x[%rows, %cols] : memref<64x48xbf16>, (!rd, !cd) -> !f
  tile.store %a, %z[%rows, %cols] : !f, memref<64x48xbf16>, (!rd, !cd)
  tile.return
}
