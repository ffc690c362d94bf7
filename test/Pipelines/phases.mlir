// Every phase takes what the one before it leaves; `nsa-pipeline` runs them in a
// row and gives the same.

// RUN: nsa-opt %s --nsa-phase-precision="micro-batch=2 seq-len=16 precision=bf16" -o %t.precision.mlir
// RUN: FileCheck %s --check-prefix=PRECISION --input-file=%t.precision.mlir
// RUN: nsa-opt %t.precision.mlir --nsa-phase-gradient -o %t.gradient.mlir
// RUN: FileCheck %s --check-prefix=GRADIENT --input-file=%t.gradient.mlir
// RUN: nsa-opt %t.gradient.mlir --nsa-phase-optimizer -o %t.optimizer.mlir
// RUN: FileCheck %s --check-prefix=OPTIMIZER --input-file=%t.optimizer.mlir
// RUN: nsa-opt %t.optimizer.mlir --nsa-phase-kernel -o %t.kernel.mlir
// RUN: FileCheck %s --check-prefix=KERNEL --input-file=%t.kernel.mlir
// RUN: nsa-opt %t.kernel.mlir --nsa-phase-buffer -o %t.buffer.mlir
// RUN: FileCheck %s --check-prefix=BUFFER --input-file=%t.buffer.mlir
// RUN: nsa-opt %t.buffer.mlir --nsa-phase-schedule -o %t.schedule.mlir
// RUN: FileCheck %s --check-prefix=BUFFER --input-file=%t.schedule.mlir
// RUN: nsa-opt %t.schedule.mlir --nsa-phase-collective -o %t.collective.mlir
// RUN: FileCheck %s --check-prefix=BUFFER --input-file=%t.collective.mlir
// RUN: nsa-opt %t.collective.mlir --nsa-phase-plan -o %t.plan.mlir
// RUN: FileCheck %s --check-prefix=PLAN --input-file=%t.plan.mlir
// RUN: nsa-opt %t.plan.mlir --nsa-phase-binary | FileCheck %s --check-prefix=BINARY

// RUN: nsa-opt %s --nsa-pipeline="until=optimizer micro-batch=2 seq-len=16 precision=bf16" | diff - %t.optimizer.mlir
// RUN: nsa-opt %s --nsa-pipeline="micro-batch=2 seq-len=16 precision=bf16" | diff - %t.plan.mlir

// Without fusion every operation stays as it is.
// RUN: nsa-opt %t.gradient.mlir --nsa-phase-optimizer="fuse=false" -o %t.plain.mlir
// RUN: FileCheck %s --check-prefix=PLAIN --input-file=%t.plain.mlir
// RUN: nsa-opt %s --nsa-pipeline="until=optimizer micro-batch=2 seq-len=16 precision=bf16 fuse=false" | diff - %t.plain.mlir
// RUN: not nsa-opt %t.gradient.mlir --nsa-phase-optimizer="logits-mib=0" 2>&1 | FileCheck %s --check-prefix=LOGITS

// Options that no pass of a phase reads, and values that are none.
// RUN: not nsa-opt %s --nsa-phase-buffer="fuse=false" 2>&1 | FileCheck %s --check-prefix=UNUSED
// UNUSED: no such option fuse
// PLAIN-NOT: nn.flatten
// PLAIN-NOT: nn.fused
// PLAIN: nn.gradient_norm
// PLAIN-NOT: nn.flatten
// LOGITS: logits-mib 0, expected 1 to 1099511627776

// PRECISION: func.func @model(%{{.*}}: tensor<2x16xi32>
// PRECISION: nn.cast %{{.*}} to bf16

// GRADIENT-NOT: @model
// GRADIENT-DAG: func.func @forward
// GRADIENT-DAG: func.func @eval
// GRADIENT-DAG: func.func @accumulate
// GRADIENT: nn.name = "grad.head"

// OPTIMIZER-DAG: func.func @update
// OPTIMIZER-DAG: func.func @step
// OPTIMIZER-DAG: nn.alias = "m.head"
// OPTIMIZER: nn.flatten

// KERNEL: func.func @forward
// KERNEL: tile.launch
// KERNEL: tile.kernel

// BUFFER: rt.tensor parameter @head : memref<8x32xf32> init #nn.init<normal, {{.*}}> {decay}
// BUFFER: rt.tensor gradient @grad.head : memref<8x32xf32> init #nn.init<constant, 0.0{{.*}}>
// BUFFER-LABEL: rt.entry @init inputs [] outputs []
// BUFFER-LABEL: rt.entry @forward inputs [@tokens] outputs [@logits]
// BUFFER-LABEL: rt.entry @eval inputs [@tokens, @targets] outputs [@loss]
// BUFFER-LABEL: rt.entry @accumulate inputs [@tokens, @targets] outputs [@loss]
// BUFFER-NOT: rt.copy
// BUFFER-LABEL: rt.entry @update inputs [@hyper] outputs [@grad_norm, @loss_sum_out, @target_fraction_sum_out]
// BUFFER: rt.launch @adamw{{[^ ]*}} ins(%[[W:[^ ,]+]], %[[M:[^ ,]+]], %[[V:[^ ,]+]], {{.*}} outs(%[[W]], %[[M]], %[[V]] :
// BUFFER-LABEL: rt.entry @step inputs [@tokens, @targets, @hyper] outputs [@loss, @grad_norm, @loss_sum_out, @target_fraction_sum_out]
// BUFFER-NOT: rt.copy

// PLAN: rt.segment arena @arena size
// PLAN: rt.tensor parameter @head {{.*}} at <@persistent, offset = {{[0-9]+}}, size = 1024>
// PLAN: rt.entry @step
// PLAN-SAME: arena_peak
// PLAN: rt.gemm {{.*}} workspace <@workspace, offset = 0

// BINARY: rt.binary
// BINARY-NOT: tile.kernel

func.func @model(
    %tokens: tensor<1x8xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
    %targets: tensor<1x8xi32> {nn.name = "targets", nn.role = "input", nn.dims = ["batch", "seq"]},
    %table: tensor<32x8xf32> {nn.name = "table", nn.role = "parameter", nn.decay, nn.init = #nn.init<normal, 0.02>},
    %scale: tensor<8xf32> {nn.name = "scale", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
    %head: tensor<8x32xf32> {nn.name = "head", nn.role = "parameter", nn.decay, nn.init = #nn.init<normal, 0.02>})
    -> (tensor<f32> {nn.name = "loss"}, tensor<1x8x32xf32> {nn.name = "logits"})
    attributes {nn.train} {
  %x = nn.embedding %table, %tokens : (tensor<32x8xf32>, tensor<1x8xi32>) -> tensor<1x8x8xf32>
  %y, %rstd = nn.rms_norm %x, %scale {eps = 1.0e-5 : f64}
      : (tensor<1x8x8xf32>, tensor<8xf32>) -> (tensor<1x8x8xf32>, tensor<1x8xf32>)
  %logits = nn.matmul %y, %head : (tensor<1x8x8xf32>, tensor<8x32xf32>) -> tensor<1x8x32xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<1x8x32xf32>, tensor<1x8xi32>) -> (tensor<f32>, tensor<1x8xf32>, tensor<f32>)
  return %loss, %logits : tensor<f32>, tensor<1x8x32xf32>
}
