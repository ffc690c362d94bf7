// A phase that runs alone on IR that is not ready names the phase to run first.

// RUN: not nsa-opt %s --nsa-phase-buffer 2>&1 | FileCheck %s --check-prefix=BUFFER
// RUN: not nsa-opt %s --nsa-phase-plan 2>&1 | FileCheck %s --check-prefix=PLAN
// RUN: not nsa-opt %s --nsa-phase-layout 2>&1 | FileCheck %s --check-prefix=LAYOUT
// RUN: not nsa-opt %s --nsa-phase-schedule 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: not nsa-opt %s --nsa-phase-collective 2>&1 | FileCheck %s --check-prefix=COLLECTIVE
// RUN: not nsa-opt %s --nsa-phase-nvvm 2>&1 | FileCheck %s --check-prefix=NVVM
// RUN: nsa-model %configs/smoke.yaml -o %t.model
// RUN: not nsa-opt %t.model --nsa-phase-gradient 2>&1 | FileCheck %s --check-prefix=GRADIENT
// RUN: nsa-opt %t.model --nsa-phase-precision -o %t.precision
// RUN: not nsa-opt %t.precision --nsa-phase-optimizer 2>&1 | FileCheck %s --check-prefix=OPTIMIZER
// RUN: not nsa-opt %t.precision --nsa-phase-kernel 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: nsa-opt %t.precision --nsa-phase-gradient -o %t.gradient
// RUN: not nsa-opt %t.gradient --nsa-phase-kernel 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: nsa-opt %s --nsa-pipeline=until=schedule -o %t
// RUN: not nsa-opt %t --nsa-phase-binary 2>&1 | FileCheck %s --check-prefix=BINARY
// RUN: not nsa-opt %t --nsa-phase-ptx 2>&1 | FileCheck %s --check-prefix=PTX
// RUN: nsa-opt %s --inline --loop-invariant-code-motion --strip-debuginfo --print-op-stats 2>&1 | FileCheck %s --check-prefix=STATS

// BUFFER: require-phase.mlir:[[#@LINE+14]]:8: error: `nn.silu` is nothing that phase buffer takes; run nsa-phase-kernel first
// PLAN: error: `func.func` is nothing that phase plan takes; run nsa-phase-collective first
// LAYOUT: error: `func.func` is nothing that phase layout takes; run nsa-phase-plan first
// SCHEDULE: error: `func.func` is nothing that phase schedule takes; run nsa-phase-buffer first
// COLLECTIVE: error: `func.func` is nothing that phase collective takes; run nsa-phase-schedule first
// NVVM: error: `func.func` is nothing that phase nvvm takes; run nsa-phase-layout first
// GRADIENT: error: `nn.module` is nothing that phase gradient takes; run nsa-phase-precision first
// OPTIMIZER: error: `func.func` is nothing that phase optimizer takes; run nsa-phase-gradient first
// KERNEL: error: `func.func` is nothing that phase kernel takes; run nsa-phase-optimizer first
// BINARY: error: `rt.{{tensor|buffer}}` is nothing that phase binary takes; run nsa-phase-plan first
// PTX: error: `tile.kernel` is nothing that phase binary takes; run nsa-phase-nvvm first
// STATS: nn.silu {{.*}}1

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
