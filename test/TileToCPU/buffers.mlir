// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// Online softmax: the carried tiles are updated where they are. Scores and the
// probabilities made of them are one buffer (16 KiB), the accumulator another;
// the loop carries no values and copies no tile.
// CHECK-LABEL: func.func @online_softmax(
// CHECK-COUNT-5: llvm.alloca {{.*}} x !llvm.array<16384 x i8>
// CHECK-NOT: llvm.array<16384 x i8>
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} : i32 {
tile.kernel private @online_softmax(%q: memref<64x64xf32>, %k: memref<256x64xf32>, %v: memref<256x64xf32>, %o: memref<64x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %c256 = arith.constant 256 : i32
  %f0 = arith.constant 0.0 : f32
  %lowest = arith.constant -1.0e30 : f32
  %rows = tile.range %c0 : !tile.tile<64x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x64xi32>
  %a = tile.load %q[%rows, %cols] : memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
  %m0 = tile.splat %lowest : !tile.tile<64x1xf32>
  %none = tile.splat %f0 : !tile.tile<64x64xf32>
  %max, %out = scf.for %i = %c0 to %c256 step %c64 iter_args(%m = %m0, %acc = %none) -> (!tile.tile<64x1xf32>, !tile.tile<64x64xf32>) : i32 {
    %r = tile.range %i : !tile.tile<64x1xi32>
    %b = tile.load %k[%r, %cols] : memref<256x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
    %c = tile.load %v[%r, %cols] : memref<256x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>) -> !tile.tile<64x64xf32>
    %s = tile.dot %a, %b, %none {transpose_b} : !tile.tile<64x64xf32>, !tile.tile<64x64xf32>, !tile.tile<64x64xf32>
    %top = tile.reduce max %s {axis = 1 : i32} : !tile.tile<64x64xf32> -> !tile.tile<64x1xf32>
    %next = tile.map (%m, %top : !tile.tile<64x1xf32>, !tile.tile<64x1xf32>) -> !tile.tile<64x1xf32> {
    ^bb0(%x: f32, %y: f32):
      %z = arith.maxnumf %x, %y : f32
      tile.yield %z : f32
    }
    %p = tile.map (%s, %next : !tile.tile<64x64xf32>, !tile.tile<64x1xf32>) -> !tile.tile<64x64xf32> {
    ^bb0(%x: f32, %y: f32):
      %d = arith.subf %x, %y : f32
      %e = math.exp %d : f32
      tile.yield %e : f32
    }
    %scaled = tile.map (%acc, %m, %next : !tile.tile<64x64xf32>, !tile.tile<64x1xf32>, !tile.tile<64x1xf32>) -> !tile.tile<64x64xf32> {
    ^bb0(%x: f32, %old: f32, %new: f32):
      %d = arith.subf %old, %new : f32
      %e = math.exp %d : f32
      %z = arith.mulf %x, %e : f32
      tile.yield %z : f32
    }
    %sum = tile.dot %p, %c, %scaled : !tile.tile<64x64xf32>, !tile.tile<64x64xf32>, !tile.tile<64x64xf32>
    scf.yield %next, %sum : !tile.tile<64x1xf32>, !tile.tile<64x64xf32>
  }
  tile.store %out, %o[%rows, %cols] : !tile.tile<64x64xf32>, memref<64x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
  tile.return
}

// Tiles that are swapped are copied through a third buffer.
// CHECK-LABEL: func.func @exchange(
// CHECK-COUNT-3: llvm.alloca {{.*}} x !llvm.array<32 x i8>
// CHECK-NOT: llvm.alloca
// CHECK: scf.for
// CHECK: %[[FIRST:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.store %[[FIRST]]
tile.kernel private @exchange(%x: memref<8xf32>, %y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %f0 = arith.constant 0.0 : f32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%i] : memref<8xf32>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf32>
  %zeros = tile.splat %f0 : !tile.tile<1x8xf32>
  %a, %b = scf.for %n = %c0 to %c3 step %c1 iter_args(%s = %v, %t = %zeros) -> (!tile.tile<1x8xf32>, !tile.tile<1x8xf32>) : i32 {
    scf.yield %t, %s : !tile.tile<1x8xf32>, !tile.tile<1x8xf32>
  }
  tile.store %b, %y[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}

// Branches write the result's buffer.
// CHECK-LABEL: func.func @branch(
// CHECK: scf.if
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.store {{.*}}, %[[RESULT:[0-9]+]] {{.*}} : vector<8xf32>
// CHECK: } else {
// CHECK: llvm.store %cst{{.*}}, %[[RESULT]] {{.*}} : vector<8xf32>
tile.kernel private @branch(%x: memref<8xf32>, %n: memref<i32>, %y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f0 = arith.constant 0.0 : f32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %flag = tile.load %n[] : memref<i32>, () -> i32
  %set = arith.cmpi ne, %flag, %c0 : i32
  %zeros = tile.splat %f0 : !tile.tile<1x8xf32>
  %r = scf.if %set -> (!tile.tile<1x8xf32>) {
    %v = tile.load %x[%i] : memref<8xf32>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf32>
    scf.yield %v : !tile.tile<1x8xf32>
  } else {
    scf.yield %zeros : !tile.tile<1x8xf32>
  }
  tile.store %r, %y[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}
