// Programs of dk and dv of lists have a producer that gathers queries: from two
// heads of 128 and eight of 64 on.
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// RUN: sed '/^module/s/{$/attributes {nsa.schedules = {selected_key_value_grad = [#nsa.schedule<form = lists>]}} {/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// RUN: sed 's/x16x\([18]\)/x2x\1/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// RUN: sed 's/x16x\([18]\)/x8x\1/;s/128xbf16/64xbf16/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// CHECK: selected_key_value_grad = [#nsa.schedule<producer = 2>, #nsa.schedule, #nsa.schedule<gathered_queries = 16, min_blocks = 1>,

// A value that is spilled costs less than to multiply scores for two parts.
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=SPILLS
// SPILLS: selected_key_value_grad = {{.*}}, #nsa.schedule<gathered_queries = 8, min_blocks = 1>, #nsa.schedule<gathered_queries = 8, min_blocks = 1, spills = 32>, #nsa.schedule<gathered_queries = 16, column_parts = 2, min_blocks = 1>

// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=KERNEL
// KERNEL: tile.kernel {{.*}}@selected_attention_backward_dkdv_{{.*}}nsa.producer = 2 : i64

// Its warps share the boxes of queries where these are many: 8 queries have two
// columns of boxes, of the gradient and of themselves.
// RUN: sed 's/x16x\([18]\)/x8x\1/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --loop-invariant-code-motion --tile-simplify --nsa-assign-layouts=wgmma --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory="wgmma shared-limit=232448" --tile-gpu-warp-specialize | FileCheck %s --check-prefix=WARPS
// WARPS: tile_gpu.warp_specialize {{.*}} producer warps 4
// WARPS: tile_gpu.tma_load map 2{{.*}} rows 8 warps [0, 1]
// WARPS: tile_gpu.tma_load map 3{{.*}} rows 8 warps [2, 3]

// Not six heads of 64, single heads, single precision, blocks of 32 keys, or
// widths that are no multiple of a box's, nor where no warpgroups multiply.
// RUN: sed 's/x16x\([18]\)/x6x\1/;s/128xbf16/64xbf16/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// RUN: sed 's/x16x\([18]\)/x1x\1/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// RUN: sed 's/xbf16/xf32/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// RUN: sed 's/block = 64/block = 32/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// RUN: sed 's/x128xbf16/x112xbf16/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
// NONE: selected_key_value_grad = [#nsa.schedule, #nsa.schedule<gathered_queries = 16, min_blocks = 1>,
// NONE-NOT: producer

!q = tensor<1x8192x16x128xbf16>
!k = tensor<1x8192x1x128xbf16>
!l = tensor<1x16x8192xf32>
!i = tensor<1x1x8192x16xi32>
module {
func.func @main(%do: !q, %q: !q, %k: !k, %o: !q, %l: !l, %i: !i) -> (!k, !k) {
  %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %k, %o, %l visible(#nsa.selected<block = 64>, %i : !i) : !q, !q, !k, !k, !q, !l
  return %dk, %dv : !k, !k
}
}
