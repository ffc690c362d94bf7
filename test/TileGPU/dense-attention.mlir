// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s

// The exponent of equal numbers is 0, natural or of 2, so that the probability of
// the only key is 1: the product is rounded before the difference is. What asks to
// be rounded once is.
// CHECK-LABEL: llvm.func @exponents(
// CHECK: %[[PRODUCT:.*]] = arith.mulf %{{.*}} fastmath<contract> : f32
// CHECK: %[[DIFFERENCE:.*]] = arith.subf %[[PRODUCT]], %{{[^ ]*}} : f32
// CHECK: %[[POWER:.*]] = arith.mulf %[[DIFFERENCE]], %{{[^ ]*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[POWER]])
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}} fastmath<contract> : f32
// CHECK: %[[SECOND:.*]] = arith.subf %[[SCALED]], %{{[^ ]*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[SECOND]])
// CHECK: %[[ONCE:.*]] = math.fma
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[ONCE]])

// 32 columns of 16 bits: a quad exchanges words, and each thread stores 8 columns
// at once.
// CHECK-COUNT-8: nvvm.shfl.sync bfly
// CHECK: %[[CHUNK:.*]] = llvm.bitcast %{{.*}} : vector<4xi32> to vector<8xbf16>
// CHECK: llvm.store %[[CHUNK]], %{{.*}} {alignment = 16 : i64} : vector<8xbf16>
tile.kernel private @exponents(%x: memref<16x32xf32>, %y: memref<16x32xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %factor = arith.constant 0.127517432 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %xt = tile.load %x[%r, %c] : memref<16x32xf32>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xf32, #tile.mma<warps = 1>>
  %max = tile.reduce max %xt {axis = 1 : i32} : !tile.tile<16x32xf32, #tile.mma<warps = 1>> -> !tile.tile<16x1xf32, #tile.mma<warps = 1>>
  %p = tile.map (%xt, %max : !tile.tile<16x32xf32, #tile.mma<warps = 1>>, !tile.tile<16x1xf32, #tile.mma<warps = 1>>) -> !tile.tile<16x32xbf16, #tile.mma<warps = 1>> {
  ^bb0(%e: f32, %top: f32):
    %s = arith.mulf %e, %factor : f32
    %d = arith.subf %s, %top : f32
    %n = math.exp %d : f32
    %t = arith.mulf %n, %factor : f32
    %u = arith.subf %t, %top : f32
    %q = math.exp2 %u : f32
    %v = math.fma %q, %factor, %top : f32
    %w = math.exp2 %v : f32
    %h = arith.truncf %w : f32 to bf16
    tile.yield %h : bf16
  }
  tile.store %p, %y[%r, %c] : !tile.tile<16x32xbf16, #tile.mma<warps = 1>>, memref<16x32xbf16>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>)
  tile.return
}

// -----

// Warps whose rows all may take a shortcut take it for all of their elements.
// CHECK-LABEL: llvm.func @shortcut(
// CHECK: %[[ALL:.*]] = nvvm.vote.sync all
// CHECK: scf.if %[[ALL]]
// CHECK: %[[ONCE:.*]] = math.fma
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[ONCE]])
// CHECK-NOT: arith.select
// CHECK: } else {
// CHECK: %[[TWICE:.*]] = arith.subf %{{[^ ]*}}, %{{[^ ]*}} : f32
// CHECK: %[[EITHER:.*]] = arith.select %{{.*}}, %{{.*}}, %[[TWICE]] {nsa.shortcut} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[EITHER]])
tile.kernel private @shortcut(%x: memref<16x32xf32>, %y: memref<16x32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %factor = arith.constant 0.127517432 : f32
  %most = arith.constant 1.024000e+03 : f32
  %r = tile.range %c0 : !tile.tile<16x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %xt = tile.load %x[%r, %c] : memref<16x32xf32>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<16x32xf32, #tile.mma<warps = 1>>
  %max = tile.reduce max %xt {axis = 1 : i32} : !tile.tile<16x32xf32, #tile.mma<warps = 1>> -> !tile.tile<16x1xf32, #tile.mma<warps = 1>>
  %p = tile.map (%xt, %max : !tile.tile<16x32xf32, #tile.mma<warps = 1>>, !tile.tile<16x1xf32, #tile.mma<warps = 1>>) -> !tile.tile<16x32xf32, #tile.mma<warps = 1>> {
  ^bb0(%e: f32, %top: f32):
    %size = math.absf %top : f32
    %isSmall = arith.cmpf olt, %size, %most : f32
    %less = arith.negf %top : f32
    %once = math.fma %e, %factor, %less : f32
    %s = arith.mulf %e, %factor : f32
    %twice = arith.subf %s, %top : f32
    %either = arith.select %isSmall, %once, %twice {nsa.shortcut} : f32
    %q = math.exp2 %either : f32
    tile.yield %q : f32
  }
  tile.store %p, %y[%r, %c] : !tile.tile<16x32xf32, #tile.mma<warps = 1>>, memref<16x32xf32>, (!tile.tile<16x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>)
  tile.return
}

// -----

// Two blocks of a multiprocessor share its registers where a kernel asks for that.
// CHECK-LABEL: llvm.func @min_blocks(
// CHECK-SAME: nvvm.maxnreg = 128 : i32, nvvm.reqntid = array<i32: 256, 1, 1>
tile.kernel private @min_blocks(%x: memref<128x32xbf16>, %y: memref<128x32xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, nsa.min_blocks = 2 : i64} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !tile.tile<128x1xi32, #tile.rematerialized>
  %c = tile.range %c0 : !tile.tile<1x32xi32, #tile.rematerialized>
  %t = tile.load %x[%r, %c] : memref<128x32xbf16>, (!tile.tile<128x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>) -> !tile.tile<128x32xbf16, #tile.mma<warps = 8>>
  tile.store %t, %y[%r, %c] : !tile.tile<128x32xbf16, #tile.mma<warps = 8>>, memref<128x32xbf16>, (!tile.tile<128x1xi32, #tile.rematerialized>, !tile.tile<1x32xi32, #tile.rematerialized>)
  tile.return
}
