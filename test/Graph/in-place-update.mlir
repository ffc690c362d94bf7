// Lesson 21: a value that backward still needed had been overwritten in place.
// Programs have value semantics until buffers are assigned: an update in place is
// a result that says which argument it replaces when the function ends. So
// forward and backward of @step read the weights from before the update, and
// the reported loss sum is the one from before the reset.

// RUN: nsa-opt %S/Inputs/window_block.mlir \
// RUN:   --pass-pipeline="builtin.module(nsa-build-entries,func.func(nsa-differentiate),nsa-optimizer)" | FileCheck %s

// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[SUM:[^:]*]]: tensor<f32> {{{[^}]*}}nn.name = "loss_sum"
// CHECK-SAME: -> (tensor<f32> {nn.name = "grad_norm"}, tensor<f32> {nn.name = "loss_sum_out"}
// CHECK: %[[MEAN:.*]] = nn.all_reduce %[[SUM]] :
// CHECK: %[[ZERO:.*]] = nn.fill 0.0{{.*}} : tensor<f32>
// CHECK: return %{{[^,]*}}, %[[MEAN]], {{.*}}%[[ZERO]], %{{[^,]*}} :

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[W:[^:]*]]: tensor<8x8xf32> {{{[^}]*}}nn.name = "wo", nn.role = "parameter"}
// CHECK-SAME: {nn.name = "loss"}
// CHECK: nn.matmul %{{.*}}, %[[W]]
// CHECK: nn.matmul %{{.*}}, %[[W]] {{.*}}transpose_rhs
// CHECK: %[[NEW:.*]], %{{.*}}, %{{.*}} = nn.adamw %[[W]],
// CHECK-NOT: %[[NEW]],
// CHECK: return {{.*}}%[[NEW]],
