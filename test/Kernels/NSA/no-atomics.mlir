// Published kernels accumulated gradients by bf16 atomics: no two runs agreed.
// Here every element has one writer, and sums are fp32 until they are stored,
// also in a bf16 training step.

// RUN: nsa-compile %S/../../Graph/Inputs/sparse_block.mlir \
// RUN:   --precision=bf16 --compile-to=kernel > %t.mlir

// Neither a dot nor a loop carries a bf16 sum.
// RUN: FileCheck %s --check-prefix=SUMS < %t.mlir \
// RUN:   --implicit-check-not="tile.dot{{.*}}xbf16>{{$}}" \
// RUN:   --implicit-check-not="scf.for{{.*}}bf16"
// SUMS: tile.dot {{.*}}xbf16>, {{.*}}xbf16>, {{.*}}xf32>
// SUMS: scf.for {{.*}}xf32>

// RUN: sed '/^  func.func/,/^  }/d' %t.mlir \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-llvm)" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,FUSED --implicit-check-not=atomic --implicit-check-not=cmpxchg
// RUN: nsa-compile %S/../../Graph/Inputs/sparse_block.mlir --no-fuse \
// RUN:   --precision=bf16 --compile-to=kernel | sed '/^  func.func/,/^  }/d' \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-llvm)" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,ALONE --implicit-check-not=atomic --implicit-check-not=cmpxchg
// CHECK-DAG: llvm.func @compress_backward_dx_mean_
// ALONE-DAG: llvm.func @compressed_attention_backward_dkdv_
// ALONE-DAG: llvm.func @selected_attention_backward_dkdv_
// ALONE-DAG: llvm.func @window_attention_backward_dkdv_
// FUSED-DAG: llvm.func @gated_attention_backward_dq_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_compressed_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_selected_
// FUSED-DAG: llvm.func @gated_attention_backward_dkdv_window_
// CHECK-DAG: llvm.func @embedding_backward_

// The same for GPUs, which have instructions for it: in the NVVM dialect, and in
// the PTX of a layer whose heads are wide enough for tensor cores.

// RUN: nsa-compile %S/../../Graph/Inputs/sparse_block.mlir --target=sm_90a \
// RUN:   --precision=bf16 --compile-to=kernel | sed '/^  func.func/,/^  }/d' \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-nvvm-llvm{wgmma=true})" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,FUSED --implicit-check-not=atomic --implicit-check-not=cmpxchg \
// RUN:   --implicit-check-not="{{[^a-z](atom|red)[.]}}"
// RUN: nsa-compile %S/../../Graph/Inputs/sparse_block.mlir --target=sm_80 --no-fuse \
// RUN:   --precision=bf16 --compile-to=kernel | sed '/^  func.func/,/^  }/d' \
// RUN:   | nsa-opt --pass-pipeline="builtin.module(nsa-tile-to-nvvm-llvm)" \
// RUN:   | FileCheck %s --check-prefixes=CHECK,ALONE --implicit-check-not=atomic --implicit-check-not=cmpxchg \
// RUN:   --implicit-check-not="{{[^a-z](atom|red)[.]}}"

// RUN: nsa-model %bench/shapes/m7c_125m.yaml --set model.n_layers=1 -o %t.m7c.mlir
// RUN: nsa-compile %t.m7c.mlir --target=sm_90a --precision=bf16 --ptxas=none -o %t.90.nsax
// RUN: grep -aq "wgmma.mma_async" %t.90.nsax
// RUN: not grep -aE "(^|[^a-z])(atom|red|multimem)[.]" %t.90.nsax
// RUN: nsa-compile %t.m7c.mlir --target=sm_80 --precision=bf16 --ptxas=none -o %t.80.nsax
// RUN: grep -aq "mma.sync" %t.80.nsax
// RUN: not grep -aE "(^|[^a-z])(atom|red|multimem)[.]" %t.80.nsax
// What they look for is what an atomic is in PTX.
// RUN: echo "	atom.global.add.f32 %f1, [%rd1], %f2;" | grep -aE "(^|[^a-z])(atom|red|multimem)[.]"
// RUN: echo "	red.relaxed.gpu.global.add.f32 [%rd1], %f2;" | grep -aE "(^|[^a-z])(atom|red|multimem)[.]"
