// RUN: nsa-opt %s --split-input-file --nsa-build-entries --remarks-filter=nsa-build-entries 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.err

// REMARK: Function=forward {{.*}}"2 arguments, 4 operations erased"

// CHECK-NOT: nn.train
// CHECK-NOT: @model

// Only what the logits need is left: no targets, no loss, no statistic.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: nn.name = "x"
// CHECK-SAME: nn.name = "w"
// CHECK-NOT: nn.name
// CHECK-SAME: -> (tensor<4x8xf32> {nn.name = "logits"})
// CHECK-NOT: nn.silu
// CHECK-NOT: nn.cross_entropy
// CHECK: return %{{.*}} : tensor<4x8xf32>

// CHECK-LABEL: func.func @eval(
// CHECK-NOT: nn.name = "unused"
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss"}, tensor<4x4xf32> {nn.name = "hidden"}, tensor<4x4xf32> {nn.name = "sum", nn.statistic})
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}} : tensor<f32>, tensor<4x4xf32>, tensor<4x4xf32>

// A parameter without a use stays for differentiation to complain about; what is
// a statistic is not computed. Losses are added up over micro-batches with
// different numbers of targets.
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: nn.name = "unused"
// CHECK-SAME: -> (tensor<f32> {nn.name = "loss", nn.objective}, tensor<4x4xf32> {nn.name = "hidden"}, tensor<f32> {nn.name = "target_fraction"})
// CHECK-NOT: nn.add
// CHECK: %[[LOSS:.*]], %{{.*}}, %[[FRACTION:.*]] = nn.cross_entropy {{.*}} {over_all}
// CHECK-NOT: nn.cross_entropy
// CHECK: return %[[LOSS]], %{{.*}}, %[[FRACTION]] : tensor<f32>, tensor<4x4xf32>, tensor<f32>

func.func @model(
    %x: tensor<4x4xf32> {nn.name = "x", nn.role = "input"},
    %targets: tensor<4xi32> {nn.name = "targets", nn.role = "input"},
    %w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"},
    %unused: tensor<4xf32> {nn.name = "unused", nn.role = "parameter"})
    -> (tensor<4x8xf32> {nn.name = "logits"}, tensor<4x4xf32> {nn.name = "hidden"},
        tensor<4x4xf32> {nn.name = "sum", nn.statistic}, tensor<f32> {nn.name = "loss"}) attributes {nn.train} {
  %s = nn.silu %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %logits = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  %dead = nn.add %loss, %loss : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %sum = nn.add %s, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %logits, %s, %sum, %loss : tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>
}

// A function that is an entry as it is stays.
// CHECK-LABEL: func.func @plain
func.func @plain(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// Losses of the same targets are added up together; what else reads a mean or a
// number of targets keeps it.
// CHECK-LABEL: func.func @accumulate(
// CHECK: %[[MEAN:.*]], %{{.*}}, %[[COUNT:.*]] = nn.cross_entropy %{{[^{]*}} :
// CHECK: %[[A:.*]], %{{.*}}, %{{.*}} = nn.cross_entropy {{.*}} {over_all}
// CHECK: %[[B:.*]], %{{.*}}, %[[FRACTION:.*]] = nn.cross_entropy {{.*}} {over_all}
// CHECK: %[[SUM:.*]] = nn.add %[[A]], %[[B]]
// CHECK: return %[[SUM]], %[[MEAN]], %[[COUNT]], %[[FRACTION]]
func.func @model(
    %targets: tensor<4xi32> {nn.name = "targets", nn.role = "input"},
    %w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "logits"}, tensor<f32> {nn.name = "first"},
        tensor<f32> {nn.name = "count"}) attributes {nn.train} {
  %loss, %lse, %count = nn.cross_entropy %w, %targets : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  %y = nn.silu %w : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %loss1, %lse1, %count1 = nn.cross_entropy %y, %targets : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  %sum = nn.add %loss, %loss1 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %sum, %w, %loss, %count : tensor<f32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>
}
