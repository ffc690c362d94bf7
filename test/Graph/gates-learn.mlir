// Lesson 9: gates never learned. The projection and the bias of the gates are
// parameters like others: both lie on the path to the loss through nsa.combine,
// and the gradient of each is updated.

// RUN: nsa-opt %S/Inputs/sparse_block.mlir \
// RUN:   --pass-pipeline="builtin.module(nsa-build-entries,func.func(nsa-differentiate),nsa-optimizer)" | FileCheck %s

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[W:[^:]*]]: tensor<8x6xf32> {{{[^}]*}}nn.name = "gate.weight", nn.role = "parameter"}
// CHECK-SAME: %[[B:[^:]*]]: tensor<6xf32> {{{[^}]*}}nn.name = "gate.bias", nn.role = "parameter"}
// CHECK: %[[X:.*]] = nn.embedding
// CHECK: %[[Z:.*]] = nn.matmul %[[X]], %[[W]]
// CHECK: %[[GATES:.*]] = nn.gate sigmoid %[[Z]], %[[B]]
// CHECK: %[[DGATES:.*]], %{{.*}}:3 = nsa.combine_backward %{{.*}}, %[[GATES]]
// CHECK: %[[DZ:.*]], %[[DB:.*]] = nn.gate_backward sigmoid %[[DGATES]], %[[GATES]]
// CHECK: %[[SUM_B:.*]] = nn.add %{{.*}}, %[[DB]]
// CHECK: %[[DW:.*]] = nn.matmul %[[X]], %[[DZ]] {{.*}}transpose_lhs
// CHECK: %[[SUM_W:.*]] = nn.add %{{.*}}, %[[DW]]
// CHECK-DAG: %[[MEAN_W:.*]] = nn.all_reduce %[[SUM_W]] :
// CHECK-DAG: %[[MEAN_B:.*]] = nn.all_reduce %[[SUM_B]] :
// CHECK-DAG: nn.adamw %[[W]], %{{[^,]*}}, %{{[^,]*}}, %[[MEAN_W]],
// CHECK-DAG: nn.adamw %[[B]], %{{[^,]*}}, %{{[^,]*}}, %[[MEAN_B]],
