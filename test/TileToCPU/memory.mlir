// RUN: nsa-opt %s --nsa-tile-to-cpu --canonicalize --cse | FileCheck %s

// The grid, the loop and arithmetic on coordinates say that all is inside: no
// check is left.
// CHECK-LABEL: func.func @proven(
// CHECK-NOT: arith.cmpi
// CHECK-NOT: masked
// CHECK: return
tile.kernel private @proven(%x: memref<96x3x32xf32>, %y: memref<96x32xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c3 = arith.constant 3 : i32
  %c16 = arith.constant 16 : i32
  %c48 = arith.constant 48 : i32
  %base = arith.muli %p, %c48 : i32
  %cols = tile.range %c0 : !tile.tile<1x32xi32>
  scf.for %i = %c0 to %c3 step %c3 : i32 {
    %offset = arith.muli %i, %c16 : i32
    %start = arith.addi %base, %offset : i32
    %rows = tile.range %start : !tile.tile<16x1xi32>
    %third = tile.map (%rows : !tile.tile<16x1xi32>) -> !tile.tile<16x1xi32> {
    ^bb0(%r: i32):
      %t = arith.remsi %r, %c3 : i32
      tile.yield %t : i32
    }
    %v = tile.load %x[%rows, %third, %cols] : memref<96x3x32xf32>, (!tile.tile<16x1xi32>, !tile.tile<16x1xi32>, !tile.tile<1x32xi32>) -> !tile.tile<16x32xf32>
    tile.store %v, %y[%rows, %cols] : !tile.tile<16x32xf32>, memref<96x32xf32>, (!tile.tile<16x1xi32>, !tile.tile<1x32xi32>)
  }
  tile.return
}

// The last program reaches past the end: f32 elements move under a mask.
// CHECK-LABEL: func.func @masked(
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %{{.*}} : vector<8xi32>
// CHECK: llvm.intr.masked.load %{{.*}}, %[[INSIDE]]
// CHECK: llvm.intr.masked.store %{{.*}}, %{{.*}}, %[[INSIDE]]
tile.kernel private @masked(%x: memref<100xf32>, %y: memref<100xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<100xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  tile.store %v, %y[%i] : !tile.tile<1x64xf32>, memref<100xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// bf16 has no masks: rows are copied, or zero where they do not exist.
// CHECK-LABEL: func.func @rows(
// CHECK: %[[VALID:.*]] = arith.cmpi ult
// CHECK: scf.if %[[VALID]] {
// CHECK: llvm.load {{.*}} -> vector<8xi16>
// CHECK: } else {
// CHECK: llvm.store %cst{{.*}} : vector<8xi16>
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : vector<8xi16>
// CHECK-NOT: masked
tile.kernel private @rows(%x: memref<20x16xbf16>, %y: memref<20x16xbf16>)
    attributes {grid = array<i32: 3, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c8 = arith.constant 8 : i32
  %start = arith.muli %p, %c8 : i32
  %rows = tile.range %start : !tile.tile<8x1xi32>
  %cols = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%rows, %cols] : memref<20x16xbf16>, (!tile.tile<8x1xi32>, !tile.tile<1x16xi32>) -> !tile.tile<8x16xbf16>
  tile.store %v, %y[%rows, %cols] : !tile.tile<8x16xbf16>, memref<20x16xbf16>, (!tile.tile<8x1xi32>, !tile.tile<1x16xi32>)
  tile.return
}

// Elements that are no neighbours move one by one, each with its check.
// CHECK-LABEL: func.func @gather(
// CHECK: %[[ID:.*]] = llvm.load {{.*}} -> i32
// CHECK: %[[KNOWN:.*]] = arith.cmpi ult, %[[ID]]
// CHECK: scf.if %[[KNOWN]] -> (f32)
// CHECK: llvm.load {{.*}} -> f32
// CHECK: } else {
// CHECK-NEXT: scf.yield %cst
tile.kernel private @gather(%x: memref<20x4xf32>, %ids: memref<6xi32>, %y: memref<6xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c2 = arith.constant 2 : i32
  %i = tile.range %c0 : !tile.tile<1x6xi32>
  %id = tile.load %ids[%i] : memref<6xi32>, (!tile.tile<1x6xi32>) -> !tile.tile<1x6xi32>
  %v = tile.load %x[%id, %c2] : memref<20x4xf32>, (!tile.tile<1x6xi32>, i32) -> !tile.tile<1x6xf32>
  tile.store %v, %y[%i] : !tile.tile<1x6xf32>, memref<6xf32>, (!tile.tile<1x6xi32>)
  tile.return
}

// A scalar at an unknown index is checked; addresses are 64 bits wide.
// CHECK-LABEL: func.func @scalar(
// CHECK: %[[AT:.*]] = llvm.load {{.*}} -> i32
// CHECK-DAG: %[[INSIDE:.*]] = arith.cmpi ult, %[[AT]]
// CHECK-DAG: arith.extsi %[[AT]] : i32 to i64
// CHECK: scf.if %[[INSIDE]] -> (f32)
// CHECK: scf.if %[[INSIDE]] {
// CHECK-NEXT: llvm.store {{.*}} : f32
tile.kernel private @scalar(%at: memref<i32>, %x: memref<20xf32>, %y: memref<20xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %i = tile.load %at[] : memref<i32>, () -> i32
  %v = tile.load %x[%i] : memref<20xf32>, (i32) -> f32
  tile.store %v, %y[%i] : f32, memref<20xf32>, (i32)
  tile.return
}

// A store between a load and its use keeps the load where it is.
// CHECK-LABEL: func.func @order(
// CHECK: llvm.alloca
// CHECK: %[[OLD:.*]] = llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.store %[[OLD]], %{{.*}}
// CHECK: llvm.store %cst{{.*}}, %{{.*}} : vector<8xf32>
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: llvm.store
tile.kernel private @order(%x: memref<8xf32>, %y: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %f1 = arith.constant 1.0 : f32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%i] : memref<8xf32>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf32>
  %ones = tile.splat %f1 : !tile.tile<1x8xf32>
  tile.store %ones, %x[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.store %v, %y[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}

// A store that joins the loop of what it stores may not pass a load that comes
// before it: the load stays where it is, or the store does.
// CHECK-LABEL: func.func @moved(
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %{{.*}}[8]
// CHECK: %[[Y:.*]] = llvm.load %[[PLACE]]
// CHECK: scf.for
// CHECK-NOT: llvm.store {{.*}}, %[[Y]]
// CHECK: llvm.load %[[Y]] {{.*}} -> vector<8xf32>
// CHECK: llvm.store {{.*}}, %[[Y]] {{.*}} : vector<8xf32>
// CHECK: return
tile.kernel private @moved(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x8xi32>
  %v = tile.load %x[%i] : memref<8xf32>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf32>
  %square = tile.map (%v : !tile.tile<1x8xf32>) -> !tile.tile<1x8xf32> {
  ^bb0(%e: f32):
    %s = arith.mulf %e, %e : f32
    tile.yield %s : f32
  }
  %old = tile.load %y[%i] : memref<8xf32>, (!tile.tile<1x8xi32>) -> !tile.tile<1x8xf32>
  %sum = tile.map (%square, %old : !tile.tile<1x8xf32>, !tile.tile<1x8xf32>) -> !tile.tile<1x8xf32> {
  ^bb0(%e: f32, %f: f32):
    %s = arith.addf %e, %f : f32
    tile.yield %s : f32
  }
  %top = tile.reduce max %sum {axis = 1 : i32} : !tile.tile<1x8xf32> -> !tile.tile<1x1xf32>
  tile.store %square, %y[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  %shifted = tile.map (%sum, %top : !tile.tile<1x8xf32>, !tile.tile<1x1xf32>) -> !tile.tile<1x8xf32> {
  ^bb0(%e: f32, %f: f32):
    %s = arith.subf %e, %f : f32
    tile.yield %s : f32
  }
  tile.store %shifted, %z[%i] : !tile.tile<1x8xf32>, memref<8xf32>, (!tile.tile<1x8xi32>)
  tile.return
}
