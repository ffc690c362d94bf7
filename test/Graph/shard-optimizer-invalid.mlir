// RUN: not nsa-opt %s --nsa-optimizer --nsa-fuse --nsa-shard-optimizer=ranks=2 2>&1 | FileCheck %s
// RUN: not nsa-opt %s --nsa-shard-optimizer=ranks=3 2>&1 | FileCheck %s --check-prefix=RANKS
// RUN: not nsa-opt %s --nsa-phase-optimizer="shard=optimizer shard-ranks=2 fuse=false" 2>&1 | FileCheck %s

// CHECK: shard-optimizer-invalid.mlir:[[@LINE+3]]:{{.*}}: error: 'nn.adamw' op updates a single tensor: only updates of many tensors together can be shared by ranks
// RANKS: error: cannot share an optimizer's state by 3 ranks, only by 2, 4, 8, 16, 32 or 64
func.func @accumulate(
    %a: tensor<4xf32> {nn.name = "a", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>})
    -> (tensor<f32> {nn.name = "loss"}, tensor<4xf32> {nn.name = "grad.a"}) {
  %loss = nn.fill 5.0 : tensor<f32>
  %ga = nn.silu %a : (tensor<4xf32>) -> tensor<4xf32>
  return %loss, %ga : tensor<f32>, tensor<4xf32>
}
