// Lesson 13: the schedule counted micro-batches. The schedule and the step count
// reach the program through `hyper` alone, which only the update reads:
// accumulation cannot advance them, nor touch parameters and moments.

// RUN: nsa-opt %S/Inputs/window_block.mlir \
// RUN:   --pass-pipeline="builtin.module(nsa-build-entries,func.func(nsa-differentiate),nsa-optimizer)" | FileCheck %s

// CHECK-LABEL: func.func @accumulate(
// CHECK-NOT: nn.name = "hyper"
// CHECK-NOT: nn.role = "moment
// CHECK-NOT: nn.alias = "wq"
// CHECK: nn.alias = "grad.wq"
// CHECK-NOT: nn.alias = "wq"
// CHECK-NOT: nn.adamw
// CHECK-LABEL: func.func @update(
// CHECK-SAME: nn.name = "hyper"
// CHECK: nn.adamw
// CHECK-LABEL: func.func @step(
// CHECK-SAME: nn.name = "hyper"
