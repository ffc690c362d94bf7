// Published kernels computed offsets in 32 bits. Here coordinates are i32, and
// everything that becomes an address is i64: tensors of 2^31 elements.

// RUN: nsa-compile %s --compile-to=kernel | sed '/^  func.func/,/^  }/d' \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-llvm)" \
// RUN:   | FileCheck %s --implicit-check-not="i32) -> !llvm" \
// RUN:     --implicit-check-not="i32>) -> !llvm"

!x = tensor<2x1048576x16x64xbf16>
!lse = tensor<2x16x1048576xf32>
!indices = tensor<2x16x1048576x4xi32>

// The stride of the batch alone is 2^30 elements.
// CHECK-LABEL: llvm.func @window_attention_b2s1048576h16x16d64
// CHECK-DAG: %[[TOKEN:.*]] = llvm.mlir.constant(1024 : i64) : i64
// CHECK-DAG: %[[BATCH:.*]] = llvm.mlir.constant(1073741824 : i64) : i64
// CHECK-DAG: llvm.mul %{{.*}}, %[[TOKEN]] : i64
// CHECK-DAG: llvm.mul %{{.*}}, %[[BATCH]] : i64
// CHECK-DAG: llvm.getelementptr {{.*}} : (!llvm.ptr, i64) -> !llvm.ptr, i16
func.func @window(%q: !x, %k: !x, %v: !x) -> (!x, !lse) {
  %o, %lse = nsa.window_attention %q, %k, %v {window = 64 : i64}
      : (!x, !x, !x) -> (!x, !lse)
  return %o, %lse : !x, !lse
}

// CHECK-LABEL: llvm.func @selected_attention_backward_dkdv_b2s1048576h16x16d64
// CHECK-DAG: llvm.mlir.constant(1073741824 : i64) : i64
// CHECK-DAG: llvm.getelementptr {{.*}} : (!llvm.ptr, i64) -> !llvm.ptr, i16
func.func @selected_backward(%do: !x, %q: !x, %k: !x, %v: !x, %o: !x,
                             %lse: !lse, %i: !indices) -> (!x, !x, !x) {
  %dq, %dk, %dv = nsa.selected_attention_backward %do, %q, %k, %v, %o, %lse, %i
      {select_block = 64 : i64}
      : (!x, !x, !x, !x, !x, !lse, !indices) -> (!x, !x, !x)
  return %dq, %dk, %dv : !x, !x, !x
}
