// The passes together, on whole decoder blocks: what comes out of one is what
// the next expects, in both precisions and at other sizes than written.

// DEFINE: %{precision} = fp32
// DEFINE: %{sizes} = micro-batch=2 seq-len=64
// DEFINE: %{pipeline} = "builtin.module(nsa-set-input-shapes{%{sizes}}, \
// DEFINE:   nsa-precision{precision=%{precision}}, nsa-verify-phase{phase=precision}, \
// DEFINE:   nsa-build-entries, func.func(nsa-differentiate), cse, canonicalize, \
// DEFINE:   nsa-verify-phase{phase=gradient}, nsa-optimizer, nsa-verify-phase{phase=optimizer})"

// RUN: nsa-opt %S/Inputs/window_block.mlir --pass-pipeline=%{pipeline} | FileCheck %s --check-prefixes=CHECK,WINDOW
// RUN: nsa-opt %S/Inputs/sparse_block.mlir --pass-pipeline=%{pipeline} | FileCheck %s --check-prefixes=CHECK,SPARSE
// REDEFINE: %{precision} = bf16
// RUN: nsa-opt %S/Inputs/window_block.mlir --pass-pipeline=%{pipeline} | FileCheck %s --check-prefixes=CHECK,WINDOW
// RUN: nsa-opt %S/Inputs/sparse_block.mlir --pass-pipeline=%{pipeline} | FileCheck %s --check-prefixes=CHECK,SPARSE

// A sequence that is shorter than a compression block has no compressed rows.
// REDEFINE: %{sizes} = micro-batch=1 seq-len=4
// RUN: nsa-opt %S/Inputs/sparse_block.mlir --pass-pipeline=%{pipeline} | FileCheck %s --check-prefixes=SHORT
// SHORT: nsa.compress {{.*}} -> tensor<1x0x1x4xbf16>
// SHORT: nsa.attention_backward {{.*}}tensor<1x0x1x4xbf16>

// The same input gives the same text.
// RUN: nsa-opt %S/Inputs/sparse_block.mlir --pass-pipeline=%{pipeline} -o %t.1
// RUN: nsa-opt %S/Inputs/sparse_block.mlir --pass-pipeline=%{pipeline} -o %t.2
// RUN: cmp %t.1 %t.2

// CHECK-LABEL: func.func @forward(
// CHECK-NOT: nn.name = "targets"
// CHECK-NOT: _backward
// CHECK-LABEL: func.func @eval(
// CHECK-NOT: _backward
// CHECK-LABEL: func.func @accumulate(
// CHECK: nn.cross_entropy
// CHECK: nn.cross_entropy_backward

// The backward graph visits the branches in reverse. The query's gradient is the
// sum over the branches that read it; selection adds nothing to it.
// WINDOW: %[[DQ:[^,]*]], %[[DK:[^,]*]], %[[DV:[^ ]*]] = nsa.attention_backward {{.*}}visible(#nsa.window
// WINDOW-DAG: nn.rotary %[[DQ]], {{.*}}inverse
// WINDOW-DAG: nn.rotary %[[DK]], {{.*}}inverse
// WINDOW-DAG: nn.merge_heads %[[DV]]
// WINDOW: nn.rms_norm_backward
// SPARSE: nsa.combine_backward
// SPARSE: nn.gate_backward
// SPARSE: %[[DQ_WIN:[^,]*]], {{.*}} = nsa.attention_backward {{.*}}visible(#nsa.window
// SPARSE: %[[DQ_SLC:[^,]*]], {{.*}} = nsa.attention_backward {{.*}}visible(#nsa.selected
// SPARSE: %[[DQ_TWO:.*]] = nn.add %[[DQ_WIN]], %[[DQ_SLC]]
// SPARSE: %[[DQ_CMP:[^,]*]], %[[DK_CMP:[^,]*]], {{.*}} = nsa.attention_backward {{.*}}visible(#nsa.compressed
// SPARSE: %[[DQ:.*]] = nn.add %[[DQ_TWO]], %[[DQ_CMP]]
// SPARSE: %[[DK_ROW:.*]] = nn.rotary %[[DK_CMP]], {{.*}}{inverse, stride = 4 : i64}
// SPARSE: nsa.compress_backward {{ *}}linear %[[DK_ROW]]
// SPARSE: nn.rotary %[[DQ]], {{.*}}inverse

// The table serves tokens and logits, so its gradient has two terms, both fp32
// in any precision.
// CHECK: %[[DTABLE:.*]] = nn.embedding_backward {{.*}} -> tensor<[[V:[0-9]+]]x8xf32>
// CHECK-NEXT: %[[DEMBED:.*]] = nn.add %{{.*}}, %[[DTABLE]] : (tensor<[[V]]x8xf32>
// CHECK-NEXT: %[[SUM:.*]] = nn.add %{{.*}}, %[[DEMBED]]
// CHECK-NEXT: return %{{[^,]*}}, %{{[^,]*}}, %[[SUM]],

// CHECK-LABEL: func.func @update(
// CHECK-NOT: nn.matmul
// WINDOW-COUNT-6: nn.adamw
// SPARSE-COUNT-12: nn.adamw
// CHECK-NOT: nn.adamw
// CHECK-LABEL: func.func @step(
// CHECK: nn.embedding_backward
// CHECK: nn.gradient_norm
// WINDOW-COUNT-6: nn.adamw
// SPARSE-COUNT-12: nn.adamw
// CHECK-NOT: nn.adamw
