// Every pass that decides something says so in remarks that name the source.

// RUN: nsa-opt %s --nsa-pipeline="recompute=cheap micro-batch=2 precision=bf16" --nsa-phase-binary -o /dev/null \
// RUN:   --remarks-filter="nsa-.*" 2>%t.opt
// RUN: FileCheck %s < %t.opt

// nsa-compile says the same.
// RUN: nsa-compile %s --compile-to=binary --recompute=cheap --micro-batch=2 --precision=bf16 -o /dev/null \
// RUN:   --remarks-filter="nsa-.*" 2>%t.compile
// RUN: FileCheck %s < %t.compile
// RUN: grep -o "remark: .*" %t.opt > %t.opt.remarks
// RUN: grep -o "remark: .*" %t.compile > %t.compile.remarks
// RUN: cmp %t.opt.remarks %t.compile.remarks

// The filter is a regular expression for the names of passes.
// RUN: nsa-compile %s --estimate --remarks-filter="nsa-(plan|schedule)" 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=TWO --implicit-check-not=Category:nsa-{{[^ps]}}
// TWO-DAG: Category:nsa-plan
// TWO-DAG: Category:nsa-schedule
// One kind only.
// RUN: nsa-opt %s --nsa-pipeline -o /dev/null --remarks-filter-passed="nsa-.*" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=PASSED --implicit-check-not="[Analysis]" --implicit-check-not="[Missed]"
// PASSED: [Passed]
// RUN: nsa-opt %s --nsa-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=QUIET --allow-empty
// QUIET-NOT: {{.}}

// CHECK-DAG: remarks.mlir:[[@LINE+12]]:1: remark: [Analysis] SetInputShapes | Category:nsa-set-input-shapes
// CHECK-DAG: remarks.mlir:[[@LINE+11]]:1: remark: [Passed] Narrowed | Category:nsa-precision
// CHECK-DAG: remarks.mlir:[[@LINE+10]]:1: remark: [Analysis] Entry | Category:nsa-build-entries
// CHECK-DAG: remarks.mlir:[[@LINE+9]]:1: remark: [Analysis] Gradient | Category:nsa-differentiate
// CHECK-DAG: remarks.mlir:[[@LINE+8]]:1: remark: [Passed] Kept | Category:nsa-recompute
// CHECK-DAG: remarks.mlir:[[@LINE+7]]:1: remark: [Analysis] Update | Category:nsa-optimizer
// CHECK-DAG: remark: [Passed] Accumulate | Category:nsa-fuse
// CHECK-DAG: remark: [Analysis] Kernels | Category:nsa-convert-to-tile {{.*}}Kernels={{[0-9]+}}, Launches={{[0-9]+}}
// CHECK-DAG: remark: [Analysis] PeakLiveBytes | Category:nsa-schedule | Function=step
// CHECK-DAG: remark: [Analysis] ArenaPeak | Category:nsa-plan | Function=step
// CHECK-DAG: remarks.mlir:{{[0-9]+}}:8: remark: [Analysis] Stack | Category:nsa-tile-to-cpu | Function=silu
// CHECK-DAG: remark: [Analysis] Code | Category:nsa-binary {{.*}}Kernels={{[0-9]+}}
func.func @model(%x: tensor<4x8xf32> {nn.name = "x", nn.role = "input", nn.dims = ["batch", ""]},
                 %targets: tensor<4xi32> {nn.name = "targets", nn.role = "input", nn.dims = ["batch"]},
                 %w: tensor<8x8xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "logits"}) attributes {nn.train} {
  %h = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = nn.silu %h : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %logits = nn.matmul %s, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %loss, %logits : tensor<f32>, tensor<4x8xf32>
}
