// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// The sums of both norms stay partial; one operation adds all of them.
// CHECK-LABEL: func.func @both
// CHECK: %[[DX:.*]], %[[P0:.*]] = nn.rms_norm_backward %arg0, %arg1, %arg2, %arg3 {partial_sums = 16 : i64} : {{.*}} -> (tensor<2048x128xf32>, tensor<16x128xf32>)
// CHECK: %{{.*}}, %[[P1:.*]] = nn.rms_norm_backward %[[DX]], %arg1, %arg2, %arg3 {partial_sums = 16 : i64}
// CHECK: %[[SUMS:.*]]:2 = nn.accumulate_rows %arg4, %arg5, %[[P0]], %[[P1]]
// CHECK: return {{.*}}, %[[SUMS]]#0, %[[SUMS]]#1
func.func @both(%dy: tensor<2048x128xf32>, %x: tensor<2048x128xf32>, %w: tensor<128xf32>, %rstd: tensor<2048xf32>,
    %g0: tensor<128xf32>, %g1: tensor<128xf32>) -> (tensor<2048x128xf32>, tensor<128xf32>, tensor<128xf32>) {
  %dx, %dw = nn.rms_norm_backward %dy, %x, %w, %rstd
      : (tensor<2048x128xf32>, tensor<2048x128xf32>, tensor<128xf32>, tensor<2048xf32>) -> (tensor<2048x128xf32>, tensor<128xf32>)
  %s0 = nn.add %g0, %dw : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
  %dz, %dv = nn.rms_norm_backward %dx, %x, %w, %rstd
      : (tensor<2048x128xf32>, tensor<2048x128xf32>, tensor<128xf32>, tensor<2048xf32>) -> (tensor<2048x128xf32>, tensor<128xf32>)
  %s1 = nn.add %g1, %dv : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
  return %dz, %s0, %s1 : tensor<2048x128xf32>, tensor<128xf32>, tensor<128xf32>
}

// CHECK-LABEL: func.func @refused
// CHECK-COUNT-3: -> (tensor<8x4xf32>, tensor<4xf32>)
// CHECK: nn.rms_norm_backward {{.*}} {partial_sums = 1 : i64}
// CHECK: nn.accumulate_rows %{{[^,]*}}, %{{[^,]*}} : (tensor<4xf32>, tensor<1x4xf32>) -> tensor<4xf32>
func.func @refused(%dy: tensor<8x4xf32>, %x: tensor<8x4xf32>, %w: tensor<4xf32>, %rstd: tensor<8xf32>, %g: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0, %dw0 = nn.rms_norm_backward %dy, %x, %w, %rstd
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
  // MISSED: [[@LINE+1]]:{{.*}} [Missed] RowSum | Category:nsa-fuse | Function=refused | Reason="the sum over rows has other readers"
  %a = nn.add %g, %dw0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1, %dw1 = nn.rms_norm_backward %0, %x, %w, %rstd
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
  %s = nn.silu %w : (tensor<4xf32>) -> tensor<4xf32>
  // MISSED: [[@LINE+1]]:{{.*}} Reason="the other term is no argument"
  %b = nn.add %s, %dw1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2, %dw2 = nn.rms_norm_backward %1, %x, %w, %rstd
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
  // MISSED: [[@LINE+1]]:{{.*}} Reason="it is read before the last sum over rows is there"
  %c = nn.add %g, %dw2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %e = nn.silu %c : (tensor<4xf32>) -> tensor<4xf32>
  %3, %dw3 = nn.rms_norm_backward %2, %x, %w, %rstd
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
  %d = nn.add %g, %dw3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %a, %b, %c, %d, %e, %dw0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
