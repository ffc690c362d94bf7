// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// Loads, maps and the store share one loop; nothing is kept in memory.
// CHECK-LABEL: func.func @fused(
// CHECK-SAME: %[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK-NOT: llvm.alloca
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: arith.mulf {{.*}} : vector<8xf32>
// CHECK: math.exp {{.*}} : vector<8xf32>
// CHECK: llvm.store {{.*}} : vector<8xf32>
// CHECK-NOT: scf.for
// CHECK: return
tile.kernel private @fused(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<128xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %e : f32
    tile.yield %s : f32
  }
  %z = tile.map (%w : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
  ^bb0(%e: f32):
    %s = math.exp %e : f32
    tile.yield %s : f32
  }
  tile.store %z, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// A column is one value per row; ranges are computed where they are used.
// CHECK-LABEL: func.func @broadcast(
// CHECK: %[[COLUMN:.*]] = llvm.alloca
// CHECK-NOT: llvm.alloca
// CHECK: scf.for
// CHECK: %[[SCALAR:.*]] = llvm.load {{.*}} -> f32
// CHECK: %[[REPEATED:.*]] = vector.broadcast %[[SCALAR]] : f32 to vector<8xf32>
// CHECK: scf.for
// CHECK: %[[PLACES:.*]] = arith.addi {{.*}} : vector<8xi32>
// CHECK: arith.cmpi sle, %[[PLACES]], %{{.*}} : vector<8xi32>
// CHECK: arith.addf %{{.*}}, %[[REPEATED]]
tile.kernel private @broadcast(%x: memref<4x16xf32>, %y: memref<4x16xf32>, %c: memref<4xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %c2 = arith.constant 2 : i32
  %f0 = arith.constant 0.0 : f32
  %rows = tile.range %c0 : !tile.tile<4x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%rows, %cols] : memref<4x16xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<4x16xf32>
  %b = tile.load %c[%rows] : memref<4xf32>, (!tile.tile<4x1xi32>) -> !tile.tile<4x1xf32>
  %w = tile.map (%v, %b, %cols : !tile.tile<4x16xf32>, !tile.tile<4x1xf32>, !tile.tile<1x16xi32>) -> !tile.tile<4x16xf32> {
  ^bb0(%e: f32, %k: f32, %i: i32):
    %visible = arith.cmpi sle, %i, %c2 : i32
    %s = arith.addf %e, %k : f32
    %r = arith.select %visible, %s, %f0 : f32
    tile.yield %r : f32
  }
  tile.store %w, %y[%rows, %cols] : !tile.tile<4x16xf32>, memref<4x16xf32>, (!tile.tile<4x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// Division by a variable is not for vectors, and not for padding.
// CHECK-LABEL: func.func @divide(
// CHECK: arith.divsi %{{.*}}, %{{.*}} : i32
// CHECK-NOT: vector<
tile.kernel private @divide(%x: memref<5xi32>, %y: memref<5xi32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x5xi32>
  %v = tile.load %x[%i] : memref<5xi32>, (!tile.tile<1x5xi32>) -> !tile.tile<1x5xi32>
  %w = tile.map (%v : !tile.tile<1x5xi32>) -> !tile.tile<1x5xi32> {
  ^bb0(%e: i32):
    %s = arith.divsi %e, %e : i32
    tile.yield %s : i32
  }
  tile.store %w, %y[%i] : !tile.tile<1x5xi32>, memref<5xi32>, (!tile.tile<1x5xi32>)
  tile.return
}
