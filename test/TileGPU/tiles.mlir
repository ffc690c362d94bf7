// RUN: nsa-opt %s --tile-gpu-assign-layouts=threads=64 --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s

// One element of 64 belongs to each thread: no loop, no barrier.
// CHECK: llvm.mlir.global external @nsa_shared_memory() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK-LABEL: llvm.func @double(
// CHECK-SAME: %[[X:.*]]: !llvm.ptr<1> {llvm.align = 16 : i64}, %[[Y:.*]]: !llvm.ptr<1> {llvm.align = 16 : i64})
// CHECK-SAME: nsa.shared_bytes = 0
// CHECK-SAME: nvvm.kernel, nvvm.reqntid = array<i32: 64, 1, 1>
// CHECK-NOT: nvvm.barrier
// CHECK: %[[T:.*]] = nvvm.read.ptx.sreg.tid.x : i32
// CHECK: %[[P:.*]] = llvm.getelementptr %[[X]][%[[T]]]
// CHECK: %[[V:.*]] = llvm.load %[[P]]
// CHECK: %[[W:.*]] = arith.addf %[[V]], %[[V]]
// CHECK: %[[Q:.*]] = llvm.getelementptr %[[Y]][%[[T]]]
// CHECK: llvm.store %[[W]], %[[Q]]
tile.kernel private @double(%x: memref<64xf32>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.addf %e, %e : f32
    tile.yield %s : f32
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xf32>, memref<64xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// -----

// Coordinates outside: element 0 is read and thrown away, nothing is written.
// CHECK-LABEL: llvm.func @ragged(
// CHECK: %[[P:.*]] = nvvm.read.ptx.sreg.ctaid.x
// CHECK: %[[IN:.*]] = arith.cmpi ult, %{{.*}}, %c100_i32
// CHECK: arith.select %[[IN]], %{{.*}}, %c0_i32
// CHECK: %[[V:.*]] = llvm.load
// CHECK: arith.select %[[IN]], %[[V]], %{{.*}} : f32
// CHECK: scf.if %[[IN]] {
// CHECK: llvm.store
tile.kernel private @ragged(%x: memref<100xf32>, %y: memref<100xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<100xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  tile.store %v, %y[%i] : !tile.tile<1x64xf32>, memref<100xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// -----

// Both operands go to shared memory, rows a word longer than they are; a thread
// sums the products of its own four elements.
// CHECK-LABEL: llvm.func @product(
// CHECK-SAME: nsa.shared_bytes = 2176
// CHECK: nvvm.barrier
// CHECK-COUNT-8: llvm.store {{.*}} !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (f32, f32, f32, f32)
// CHECK: math.fma
tile.kernel private @product(%x: memref<16x16xf32>, %y: memref<16x16xf32>, %z: memref<16x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x16xi32>
  %a = tile.load %x[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %b = tile.load %y[%r, %c] : memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<16x16xf32>
  %acc = tile.splat %zero : !tile.tile<16x16xf32>
  %d = tile.dot %a, %b, %acc : !tile.tile<16x16xf32>, !tile.tile<16x16xf32>, !tile.tile<16x16xf32>
  tile.store %d, %z[%r, %c] : !tile.tile<16x16xf32>, memref<16x16xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// -----

// Eight threads share a row, 16 bytes of it each. They exchange their sums by
// shuffles, in a fixed order; all of them have the result, and one writes it.
// CHECK-LABEL: llvm.func @rows(
// CHECK-SAME: nsa.shared_bytes = 0
// CHECK: llvm.load {{.*}}alignment = 16{{.*}} -> vector<4xf32>
// CHECK: nvvm.shfl.sync bfly {{.*}}%c4_i32
// CHECK: nvvm.shfl.sync bfly {{.*}}%c2_i32
// CHECK: nvvm.shfl.sync bfly {{.*}}%c1_i32
// CHECK: %[[FIRST:.*]] = arith.cmpi slt, {{.*}}%c1_i32
// CHECK: scf.if %[[FIRST]]
tile.kernel private @rows(%x: memref<16x32xf32>, %y: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x32xi32>
  %a = tile.load %x[%r, %c] : memref<16x32xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<16x32xf32>
  %s = tile.reduce add %a {axis = 1 : i32} : !tile.tile<16x32xf32> -> !tile.tile<16x1xf32>
  tile.store %s, %y[%r] : !tile.tile<16x1xf32>, memref<16xf32>, (!tile.tile<16x1xi32>)
  tile.return
}

// -----

// Threads vote with their own elements, and wait for each other once. Of the
// four of a thread, the last two may lie past the end.
// CHECK-LABEL: llvm.func @any(
// CHECK: %[[TWO:.*]] = arith.ori
// CHECK: %[[THIRD:.*]] = arith.andi
// CHECK: %[[THREE:.*]] = arith.ori %[[TWO]], %[[THIRD]]
// CHECK: %[[FOURTH:.*]] = arith.andi
// CHECK: %[[FOUR:.*]] = arith.ori %[[THREE]], %[[FOURTH]]
// CHECK: %[[WORD:.*]] = arith.extui %[[FOUR]] : i1 to i32
// CHECK: %[[VOTE:.*]] = nvvm.barrier #nvvm.reduction<or> %[[WORD]] -> i32
// CHECK: arith.cmpi ne, %[[VOTE]]
tile.kernel private @any(%x: memref<200xi32>, %y: memref<1xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<1x200xi32>
  %v = tile.load %x[%r] : memref<200xi32>, (!tile.tile<1x200xi32>) -> !tile.tile<1x200xi32>
  %is = tile.map (%v : !tile.tile<1x200xi32>) -> !tile.tile<1x200xi1> {
  ^bb0(%e: i32):
    %f = arith.cmpi eq, %e, %c0 : i32
    tile.yield %f : i1
  }
  %some = tile.any %is : !tile.tile<1x200xi1>
  %word = arith.extui %some : i1 to i32
  tile.store %word, %y[%c0] : i32, memref<1xi32>, (i32)
  tile.return
}

// -----

// A row that all warps share: sums of warps meet in shared memory, from where
// every thread reads all of them.
// CHECK-LABEL: llvm.func @long_row(
// CHECK-SAME: nsa.shared_bytes = 16
// CHECK-COUNT-2: llvm.load {{.*}}vector<8xbf16>
// CHECK: nvvm.shfl.sync bfly {{.*}}%c16_i32
// CHECK: nvvm.shfl.sync bfly {{.*}}%c1_i32
// CHECK: nvvm.barrier
// CHECK-COUNT-2: llvm.load {{.*}} !llvm.ptr<3>
// CHECK-NOT: llvm.load {{.*}} !llvm.ptr<3>
// CHECK: llvm.return
tile.kernel private @long_row(%x: memref<1024xbf16>, %y: memref<1xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x1024xi32>
  %r = tile.range %c0 : !tile.tile<1x1xi32>
  %v = tile.load %x[%i] : memref<1024xbf16>, (!tile.tile<1x1024xi32>) -> !tile.tile<1x1024xbf16>
  %f = tile.map (%v : !tile.tile<1x1024xbf16>) -> !tile.tile<1x1024xf32> {
  ^bb0(%e: bf16):
    %s = arith.extf %e : bf16 to f32
    tile.yield %s : f32
  }
  %s = tile.reduce add %f {axis = 1 : i32} : !tile.tile<1x1024xf32> -> !tile.tile<1x1xf32>
  tile.store %s, %y[%r] : !tile.tile<1x1xf32>, memref<1xf32>, (!tile.tile<1x1xi32>)
  tile.return
}

// -----

// Columns of a wider matrix begin where the launch says: 8 bytes together.
// CHECK-LABEL: llvm.func @columns(
// CHECK: llvm.load {{.*}}alignment = 8{{.*}} -> vector<4xbf16>
// CHECK: llvm.store {{.*}}alignment = 16{{.*}} vector<8xbf16>
tile.kernel private @columns(%x: memref<64x64xbf16, strided<[100, 1]>> {nsa.alignment = 8 : i64}, %y: memref<64x64xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<64x1xi32>
  %c = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%r, %c] : memref<64x64xbf16, strided<[100, 1]>>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xbf16>
  tile.store %v, %y[%r, %c] : !tile.tile<64x64xbf16>, memref<64x64xbf16>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// -----

// Without a word from the launch, of an element.
// CHECK-LABEL: llvm.func @columns_anywhere(
// CHECK-NOT: llvm.load {{.*}}vector
// CHECK: llvm.store {{.*}}alignment = 4{{.*}} vector<2xbf16>
// CHECK: llvm.return
tile.kernel private @columns_anywhere(%x: memref<16x8xbf16, strided<[16, 1]>>, %y: memref<16x8xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<16x1xi32>
  %c = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%r, %c] : memref<16x8xbf16, strided<[16, 1]>>, (!tile.tile<16x1xi32>, !tile.tile<1x8xi32>) -> !tile.tile<16x8xbf16>
  tile.store %v, %y[%r, %c] : !tile.tile<16x8xbf16>, memref<16x8xbf16>, (!tile.tile<16x1xi32>, !tile.tile<1x8xi32>)
  tile.return
}
