// RUN: nsa-opt %s --nsa-expand-updates --split-input-file | FileCheck %s
// RUN: nsa-opt %s --nsa-expand-updates --nsa-phase-kernel --split-input-file | FileCheck %s --check-prefix=KERNEL

// Two matrices of one shape lie one below the other, and have their matmuls
// together.
// CHECK-LABEL: func.func @group(
// CHECK-SAME: %[[W0:[^:]*]]: tensor<4x8xf32>, %[[M0:[^:]*]]: tensor<4x8xf32>, %[[G0:[^:]*]]: tensor<4x8xf32>,
// CHECK-SAME: %[[W1:[^:]*]]: tensor<4x8xf32>, %[[M1:[^:]*]]: tensor<4x8xf32>, %[[G1:[^:]*]]: tensor<4x8xf32>,
// CHECK-SAME: %[[NORM:[^:]*]]: tensor<f32>, %[[LOSS:[^:]*]]: tensor<f32>, %[[HYPER:[^:]*]]: tensor<8xf32>)
// CHECK-NEXT: %[[NM0:.*]], %[[U0:.*]] = nn.momentum %[[M0]], %[[G0]], %[[NORM]], %[[LOSS]], %[[HYPER]]
// CHECK-NEXT: %[[NM1:.*]], %[[U1:.*]] = nn.momentum %[[M1]], %[[G1]], %[[NORM]], %[[LOSS]], %[[HYPER]]
// CHECK-NEXT: %[[U:.*]] = nn.concat %[[U0]], %[[U1]] {rows}
// CHECK-NEXT: %[[X:.*]] = nn.normalize %[[U]] {batch = 2 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
// CHECK-NEXT: %[[A:.*]] = nn.batch_matmul %[[X]], %[[X]] {alpha = 1.0{{0*}}e+00 : f64, batch = 2 : i64, beta = 0.0{{0*}}e+00 : f64, transpose_rhs} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x4xf32>
// CHECK-NEXT: %[[B:.*]] = nn.batch_matmul %[[A]], %[[A]], %[[A]] {alpha = 2.0315{{0*}}e+00 : f64, batch = 2 : i64, beta = -4.775{{0*}}e+00 : f64}
// CHECK-NEXT: nn.batch_matmul %[[B]], %[[X]], %[[X]] {alpha = 1.0{{0*}}e+00 : f64, batch = 2 : i64, beta = 3.4445{{0*}}e+00 : f64}
// CHECK-COUNT-12: nn.batch_matmul
// CHECK-NOT: nn.batch_matmul
// CHECK: %[[S:.*]]:2 = nn.split %{{.*}} {rows, sizes = array<i64: 4, 4>} : (tensor<8x8xf32>)
// CHECK-NEXT: %[[NW0:.*]] = nn.take_step %[[W0]], %[[S]]#0, %[[NORM]], %[[LOSS]], %[[HYPER]] {decay, scale = 0.565685{{[0-9]*}} : f64}
// CHECK-NEXT: %[[NW1:.*]] = nn.take_step %[[W1]], %[[S]]#1, %{{.*}} {decay, scale = 0.565685{{[0-9]*}} : f64}
// CHECK-NEXT: return %[[NW0]], %[[NM0]], %[[NW1]], %[[NM1]]

// KERNEL-LABEL: func.func @group(
// KERNEL-NEXT: tile.launch @momentum_n32_f32(
// KERNEL: tile.launch @normalize_squares_8x8_n2
// KERNEL-NEXT: tile.launch @normalize_8x8_n2
// KERNEL-NEXT: nn.batch_matmul {{.*}} transpose_rhs}
// KERNEL: tile.launch @take_step_n32_f32(
func.func @group(
    %w0: tensor<4x8xf32>, %m0: tensor<4x8xf32>, %g0: tensor<4x8xf32>,
    %w1: tensor<4x8xf32>, %m1: tensor<4x8xf32>, %g1: tensor<4x8xf32>,
    %norm: tensor<f32>, %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %a, %b = nn.muon %w0, %m0, %g0, %norm, %loss, %hyper {decay}
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %c, %d = nn.muon %w1, %m1, %g1, %norm, %loss, %hyper {decay}
      : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %a, %b, %c, %d : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The second update reads what the first one makes: they are no group. With
// more rows than columns the square is that of the columns.
// CHECK-LABEL: func.func @chain(
// CHECK: nn.momentum
// CHECK-NOT: nn.momentum
// CHECK: nn.batch_matmul %[[X:[^,]*]], %[[X]] {{.*}} transpose_lhs} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: %[[B:.*]] = nn.batch_matmul
// CHECK-NEXT: nn.batch_matmul %[[X]], %[[B]], %[[X]] {{.*}} : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
// CHECK: %[[W:.*]] = nn.take_step
// CHECK: nn.momentum
// CHECK: nn.take_step %[[W]],
func.func @chain(%w: tensor<8x4xf32>, %m: tensor<8x4xf32>, %g: tensor<8x4xf32>, %norm: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %w1, %m1 = nn.muon %w, %m, %g, %norm, %norm, %hyper
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
  %w2, %m2 = nn.muon %w1, %m1, %g, %norm, %norm, %hyper
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
  return %w2, %m2 : tensor<8x4xf32>, tensor<8x4xf32>
}
