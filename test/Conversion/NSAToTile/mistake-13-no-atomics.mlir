// Published kernels accumulated gradients by bf16 atomics: no two runs agreed.
// Here every element has one writer, and sums are fp32 until they are stored,
// also in a bf16 training step.

// RUN: nsa-compile %S/../../Transforms/Inputs/sparse_block.mlir \
// RUN:   --precision=bf16 --compile-to=kernel > %t.mlir

// Neither a product nor a loop carries a bf16 sum.
// RUN: FileCheck %s --check-prefix=SUMS < %t.mlir \
// RUN:   --implicit-check-not="tile.dot{{.*}}xbf16>{{$}}" \
// RUN:   --implicit-check-not="scf.for{{.*}}bf16"
// SUMS: tile.dot {{.*}}xbf16>, {{.*}}xbf16>, {{.*}}xf32>
// SUMS: scf.for {{.*}}xf32>

// RUN: sed '/^  func.func/,/^  }/d' %t.mlir \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-llvm)" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,FUSED --implicit-check-not=atomic --implicit-check-not=cmpxchg
// RUN: nsa-compile %S/../../Transforms/Inputs/sparse_block.mlir --no-fuse \
// RUN:   --precision=bf16 --compile-to=kernel | sed '/^  func.func/,/^  }/d' \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-llvm)" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,ALONE --implicit-check-not=atomic --implicit-check-not=cmpxchg
// CHECK-DAG: llvm.func @compress_backward_dx_mean_
// ALONE-DAG: llvm.func @compressed_attention_backward_dkdv_
// ALONE-DAG: llvm.func @selected_attention_backward_dkdv_
// ALONE-DAG: llvm.func @window_attention_backward_dkdv_
// FUSED-DAG: llvm.func @gated_attention_backward_dq_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_cmp_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_slc_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_win_
// CHECK-DAG: llvm.func @embedding_backward_
