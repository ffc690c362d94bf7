// Programs of dk and dv of lists have a warp that gathers queries where these
// are wide: 16 heads of 128.
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// RUN: sed '/^module/s/{$/attributes {nsa.schedules = {selected_key_value_grad = [#nsa.schedule<form = lists>]}} {/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// CHECK: selected_key_value_grad = [#nsa.schedule<producer = 2>, #nsa.schedule, #nsa.schedule<gathered_queries = 16, min_blocks = 1>,

// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile | FileCheck %s --check-prefix=KERNEL
// KERNEL: tile.kernel {{.*}}@selected_attention_backward_dkdv_{{.*}}nsa.producer = 2 : i64

// Not six heads, single precision, blocks of 32 keys, or widths that are no
// multiple of a box's, nor where no warpgroups multiply.
// RUN: sed 's/x16x128x/x6x128x/;s/x16x8192xf32/x6x8192xf32/' %s | nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s --check-prefix=NONE
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
