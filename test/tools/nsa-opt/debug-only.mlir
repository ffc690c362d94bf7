// What passes consider and choose, for people who change them. The option is
// nsa-opt's own: a release build of LLVM has none.

// DEFINE: %{run} = nsa-opt %s --nsa-pipeline="recompute=cheap" -o /dev/null

// RUN: %{run} --debug-only=nsa-differentiate 2>&1 | FileCheck %s --check-prefix=DIFFERENTIATE --implicit-check-not="{{^}}[nsa-{{[^d]}}"
// RUN: %{run} --debug-only=nsa-recompute 2>&1 | FileCheck %s --check-prefix=RECOMPUTE
// RUN: %{run} --debug-only=nsa-fuse 2>&1 | FileCheck %s --check-prefix=FUSE
// RUN: %{run} --debug-only=nsa-convert-to-tile 2>&1 | FileCheck %s --check-prefix=KERNEL
// RUN: %{run} --debug-only=nsa-buffer 2>&1 | FileCheck %s --check-prefix=BUFFER
// RUN: %{run} --debug-only=nsa-schedule 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: %{run} --debug-only=nsa-plan 2>&1 | FileCheck %s --check-prefix=PLAN
// RUN: nsa-opt %s --nsa-pipeline --nsa-phase-binary -o /dev/null --debug-only=nsa-tile-to-cpu 2>&1 \
// RUN:   | FileCheck %s --check-prefix=CPU

// Several types, in the order of the passes, the same each time.
// RUN: %{run} --debug-only=nsa-plan,nsa-differentiate >%t.1 2>&1
// RUN: %{run} --debug-only=nsa-differentiate --debug-only=nsa-plan >%t.2 2>&1
// RUN: cmp %t.1 %t.2
// RUN: FileCheck %s --check-prefix=BOTH < %t.1
// BOTH: [nsa-differentiate]
// BOTH: [nsa-plan]
// BOTH-NOT: [nsa-differentiate]

// Nothing unless asked for, and the program does not depend on it.
// RUN: %{run} 2>&1 | FileCheck %s --check-prefix=QUIET --allow-empty
// QUIET-NOT: {{.}}
// RUN: nsa-opt %s --nsa-pipeline -o %t.quiet.mlir
// RUN: nsa-opt %s --nsa-pipeline -o %t.loud.mlir \
// RUN:   --debug-only=nsa-differentiate,nsa-recompute,nsa-fuse,nsa-convert-to-tile,nsa-buffer,nsa-schedule,nsa-plan 2>/dev/null
// RUN: cmp %t.quiet.mlir %t.loud.mlir

// RUN: not nsa-opt %s --debug-only=nsa-bufer 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: nsa-opt: error: unknown debug type 'nsa-bufer'; did you mean 'nsa-buffer'?; the types are nsa-differentiate, nsa-recompute,
// Options of LLVM that do nothing here are left to --help-hidden.
// RUN: nsa-opt --help | FileCheck %s --check-prefix=HELP --implicit-check-not=amdgpu
// HELP: --debug-only=<type,...>
// HELP-SAME: nsa-tile-to-cpu
// RUN: nsa-opt --version | FileCheck %s --check-prefix=VERSION
// VERSION: nsa-opt {{[0-9.]+}}, LLVM 22

func.func @model(%x: tensor<4x8xf32> {nn.name = "x", nn.role = "input"},
                 %targets: tensor<4xi32> {nn.name = "targets", nn.role = "input"},
                 %w: tensor<8x8xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
                 %v: tensor<8x8xf32> {nn.name = "v", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4x8xf32> {nn.name = "logits"}) attributes {nn.train} {
  %h = nn.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  // DIFFERENTIATE: [nsa-differentiate] nn.silu at debug-only.mlir:[[@LINE+2]]:8 gives operand 0 a gradient of type tensor<4x8xf32>
  // RECOMPUTE: [nsa-recompute] nn.silu at debug-only.mlir:[[@LINE+1]]:8 is {{kept|computed again}}
  %s = nn.silu %h : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // KERNEL: [nsa-convert-to-tile] nn.fused at debug-only.mlir:[[@LINE+2]]:8 makes kernel @fused_silu_silu
  // KERNEL: [nsa-convert-to-tile] nn.fused at debug-only.mlir:[[@LINE+1]]:8 shares kernel @fused_silu_silu
  %t = nn.silu %s : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %logits = nn.matmul %t, %v : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<4x8xf32>, tensor<4xi32>) -> (tensor<f32>, tensor<4xf32>, tensor<f32>)
  return %loss, %logits : tensor<f32>, tensor<4x8xf32>
}

// FUSE: [nsa-fuse] nn.add at debug-only.mlir:{{[0-9]+:[0-9]+}} joins its matmul

// BUFFER: [nsa-buffer] @forward: nn.matmul at debug-only.mlir:{{[0-9]+}}:8 puts result 0 into a buffer of type memref<4x8xf32>
// BUFFER: puts result 0 into the memory of an operand of type
// BUFFER: puts result 0 into the memory of a named tensor of type
// SCHEDULE: [nsa-schedule] @accumulate: a look-ahead of 4 commands peaks at {{[0-9]+}} bytes, {{[0-9]+}} before
// PLAN: [nsa-plan] @w: 256 bytes at persistent + 0
// PLAN: [nsa-plan] @step: buffer of debug-only.mlir:{{[0-9]+:[0-9]+}}, alive from command {{[0-9]+}} to {{[0-9]+}}: {{[0-9]+}} bytes at arena + 0
// CPU: [nsa-tile-to-cpu] @fused_silu_silu{{.*}}: a nest of {{[0-9]+}} operations over {{.*}} around tile.{{.*}} at debug-only.mlir:{{[0-9]+}}:8
