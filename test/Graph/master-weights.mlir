// Lesson 10: weights in bf16 without a master copy, and non-finite steps that
// went unnoticed. Under bf16 everything that persists is fp32, and so are the
// gradients on their way to it; each update reads the norm of all gradients and
// the loss, by which nn.adamw refuses a step that is not finite.

// RUN: nsa-opt %S/Inputs/sparse_block.mlir \
// RUN:   --pass-pipeline="builtin.module(nsa-precision{precision=bf16},nsa-build-entries,func.func(nsa-differentiate),canonicalize,nsa-optimizer)" \
// RUN:   | FileCheck %s

// No argument and no result of an entry is bf16.
// CHECK-LABEL: func.func @step(
// CHECK-NOT: bf16
// CHECK-SAME: {nn.alias = "v.wo"}{{.*}}) {
// CHECK: nn.matmul {{.*}}bf16
// CHECK: %[[FRACTION:.*]] = nn.add {{.*}} : (tensor<f32>, tensor<f32>)

// A narrowed weight gets its gradient in fp32; none is rounded and widened.
// CHECK: nn.cross_entropy_backward
// CHECK-NOT: nn.cast
// CHECK: %[[SUM:.*]] = nn.all_reduce %[[FRACTION]] :
// CHECK: %[[NORM:.*]] = nn.gradient_norm
// CHECK: %{{.*}}, %[[MEAN:.*]] = nn.average_step %{{.*}}, %{{.*}}, %[[SUM]]
// CHECK-COUNT-12: nn.adamw {{.*}}, %[[NORM]], %[[MEAN]], {{.*}} -> (tensor<{{[^b]*}}xf32>, tensor<{{[^b]*}}xf32>, tensor<{{[^b]*}}xf32>)
