// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s --check-prefix=CUDA
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | sed "/func.func/,/^  }/d" | nsa-opt --nsa-assign-layouts=wgmma --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm | FileCheck %s --check-prefix=NVVM

// Of 32 blocks queries select 2. 16 queries of 4 heads go through the union of
// their lists, where another warp copies blocks; an M-tile of 4 queries skips
// those that none of them selected. What is copied lies outside of the branch.
// CHECK-LABEL: tile.kernel private @selected_attention_b1s512h8x2d64_
// CHECK-SAME: grid = array<i32: 32, 2, 1>
// CHECK: scf.for
// CHECK: tile.load %arg1[
// CHECK: tile.load %arg2[
// CHECK: %[[ANY:.+]] = tile.any %{{.+}} warp_uniform : !tile.tile<64x1xi1>
// CHECK: scf.if %[[ANY]]
// CHECK-NOT: tile.load
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<16x64xbf16>
// CHECK: tile.dot {{.*}} !tile.tile<64x16xbf16>, !tile.tile<16x64xbf16>
// CHECK: } else {

// Elsewhere programs of one M-tile have their blocks alone.
// CUDA-LABEL: tile.kernel private @selected_attention_b1s512h8x2d64_
// CUDA-SAME: grid = array<i32: 128, 2, 1>
// CUDA-NOT: warp_uniform
// CUDA: tile.dot {{.*}} !tile.tile<16x64xbf16>, !tile.tile<16x64xbf16>

// NVVM-LABEL: llvm.func @selected_attention_b1s512h8x2d64_
// NVVM: nvvm.mbarrier.try_wait.parity
// NVVM: %[[OWN:.+]] = nvvm.vote.sync any
// NVVM-NEXT: scf.if %[[OWN]]
// NVVM-NOT: nvvm.barrier
// NVVM: nvvm.mma.sync
// NVVM-NOT: nvvm.barrier
// NVVM: nvvm.bar.warp.sync
// NVVM: nvvm.mbarrier.arrive
// NVVM: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} l2_cache_hint
func.func @selected(%q: tensor<1x512x8x64xbf16>, %k: tensor<1x512x2x64xbf16>, %v: tensor<1x512x2x64xbf16>, %i: tensor<1x2x512x2xi32>)
    -> (tensor<1x512x8x64xbf16>, tensor<1x8x512xf32>) {
  %o, %lse = nsa.selected_attention %q, %k, %v, %i {select_block = 16 : i64}
      : (tensor<1x512x8x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x2x512x2xi32>) -> (tensor<1x512x8x64xbf16>, tensor<1x8x512xf32>)
  return %o, %lse : tensor<1x512x8x64xbf16>, tensor<1x8x512xf32>
}

// Of 6 heads, 2 queries leave 4 rows of an M-tile: these repeat the last query and
// are stored nowhere.
// CHECK-LABEL: tile.kernel private @selected_attention_b1s512h12x2d64_
// CHECK-SAME: grid = array<i32: 64, 2, 1>
// CHECK: %[[ROW:.+]] = tile.range %{{.+}} : !tile.tile<64x1xi32>
// CHECK: tile.map (%[[ROW]] : !tile.tile<64x1xi32>)
// CHECK: arith.remsi %{{.+}}, %c16_i32
// CHECK: arith.divsi %{{.+}}, %c6_i32
// CHECK: arith.minsi %{{.+}}, %c1_i32
// CHECK: arith.select %{{.+}}, %{{.+}}, %c-1_i32
// CHECK: tile.yield
func.func @gaps(%q: tensor<1x512x12x64xbf16>, %k: tensor<1x512x2x64xbf16>, %v: tensor<1x512x2x64xbf16>, %i: tensor<1x2x512x2xi32>)
    -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>) {
  %o, %lse = nsa.selected_attention %q, %k, %v, %i {select_block = 16 : i64}
      : (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x2x512x2xi32>) -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>)
  return %o, %lse : tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>
}
