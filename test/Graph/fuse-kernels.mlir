// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-passed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSED

// The residual sum and its norm: one kernel writes both.
// CHECK-LABEL: func.func @residual
// CHECK-NEXT: %[[F:.*]]:3 = nn.fused %arg0, %arg1, %arg2 : {{.*}} -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>) {
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<8x4xf32>, %[[R:.*]]: tensor<8x4xf32>, %[[W:.*]]: tensor<4xf32>):
// CHECK-NEXT: %[[S:.*]] = nn.add %[[X]], %[[R]]
// CHECK-NEXT: %[[Y:.*]], %[[D:.*]] = nn.rms_norm %[[S]], %[[W]]
// CHECK-NEXT: nn.yield %[[S]], %[[Y]], %[[D]]
// CHECK: return %[[F]]#0, %[[F]]#1, %[[F]]#2
// PASSED: [Passed] Kernel | Category:nsa-fuse | Function=residual | {{.*}}in one kernel with nn.add
func.func @residual(%x: tensor<8x4xf32>, %r: tensor<8x4xf32>, %w: tensor<4xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>) {
  %s = nn.add %x, %r : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %y, %rstd = nn.rms_norm %s, %w {eps = 1.0e-5 : f64} : (tensor<8x4xf32>, tensor<4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>)
  return %s, %y, %rstd : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>
}

// The gradient of a norm and those of the residual. What only the kernel knows
// stays inside; the sums come to the norm, before what reads its other result.
// CHECK-LABEL: func.func @residual_gradient
// CHECK-NEXT: %[[F:.*]]:2 = nn.fused %arg0, %arg1, %arg2, %arg3, %arg4 : {{.*}} -> (tensor<4xf32>, tensor<8x4xf32>) {
// CHECK: nn.rms_norm_backward
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.yield
// CHECK: nn.silu %[[F]]#0
// CHECK: return %{{.*}}, %[[F]]#1
func.func @residual_gradient(%dy: tensor<8x4xf32>, %x: tensor<8x4xf32>, %w: tensor<4xf32>, %rstd: tensor<8xf32>, %other: tensor<8x4xf32>)
    -> (tensor<4xf32>, tensor<8x4xf32>) {
  %dx, %dw = nn.rms_norm_backward %dy, %x, %w, %rstd
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
  %s = nn.silu %dw : (tensor<4xf32>) -> tensor<4xf32>
  %a = nn.add %dy, %dx : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = nn.add %a, %other : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %s, %b : tensor<4xf32>, tensor<8x4xf32>
}

// A consumer that reads a second result which is no row stays outside, although
// the first one could be passed on.
// CHECK-LABEL: func.func @weight_is_the_input
// CHECK-NOT: nn.fused
// CHECK: return
// MISSED: Function=weight_is_the_input | {{.*}}nn.rms_norm_backward: the value is not computed element by element
func.func @weight_is_the_input(%dy: tensor<4xf32>, %x: tensor<4xf32>, %rstd: tensor<f32>) -> tensor<4xf32> {
  %dx, %dw = nn.rms_norm_backward %dy, %x, %x, %rstd
      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>)
  %sum = nn.add %dx, %dw : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %sum : tensor<4xf32>
}

// Sums of gradients wait for the last term and join the rotation back.
// CHECK-LABEL: func.func @rotated_gradient
// CHECK: nn.silu
// CHECK-NEXT: nn.matmul
// CHECK: nn.fused
// CHECK: nn.add
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.rotary
// CHECK-NEXT: nn.yield
func.func @rotated_gradient(%a: tensor<1x8x2x4xf32>, %b: tensor<1x8x2x4xf32>, %m: tensor<4x4xf32>, %table: tensor<8x2x2xf32>)
    -> (tensor<1x8x2x4xf32>, tensor<4x4xf32>) {
  %ab = nn.add %a, %b : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>) -> tensor<1x8x2x4xf32>
  %n = nn.silu %m : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %mm = nn.matmul %n, %n : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %abc = nn.add %ab, %a : (tensor<1x8x2x4xf32>, tensor<1x8x2x4xf32>) -> tensor<1x8x2x4xf32>
  %r = nn.rotary %abc, %table {inverse} : (tensor<1x8x2x4xf32>, tensor<8x2x2xf32>) -> tensor<1x8x2x4xf32>
  return %r, %mm : tensor<1x8x2x4xf32>, tensor<4x4xf32>
}

// Casts vanish into what they follow or lead to.
// CHECK-LABEL: func.func @casts
// CHECK-NEXT: %[[F:.*]] = nn.fused %arg0, %arg1 : (tensor<8x4xf32>, tensor<8x4xbf16>) -> tensor<8x4xf32> {
// CHECK-COUNT-2: nn.cast
// CHECK-NOT: nn.fused
// CHECK: return
func.func @casts(%x: tensor<8x4xf32>, %u: tensor<8x4xbf16>) -> tensor<8x4xf32> {
  %b = nn.cast %x to bf16 : (tensor<8x4xf32>) -> tensor<8x4xbf16>
  %y = nn.swiglu %b, %u : (tensor<8x4xbf16>, tensor<8x4xbf16>) -> tensor<8x4xbf16>
  %f = nn.cast %y to f32 : (tensor<8x4xbf16>) -> tensor<8x4xf32>
  return %f : tensor<8x4xf32>
}

// Rotations of queries and keys by the same angles, once both are there.
// CHECK-LABEL: func.func @alike
// CHECK: %[[K:.*]] = nn.matmul
// CHECK-NEXT: %[[F:.*]]:2 = nn.fused %arg0, %arg2, %[[K]] :
// CHECK-COUNT-2: nn.rotary
// CHECK-NOT: nn.fused
// CHECK: return %[[F]]#0, %[[F]]#1
func.func @alike(%q: tensor<1x8x4x4xf32>, %m: tensor<1x8x2x4xf32>, %table: tensor<8x2x2xf32>, %w: tensor<4x4xf32>)
    -> (tensor<1x8x4x4xf32>, tensor<1x8x2x4xf32>) {
  %0 = nn.rotary %q, %table : (tensor<1x8x4x4xf32>, tensor<8x2x2xf32>) -> tensor<1x8x4x4xf32>
  %k = nn.matmul %m, %w : (tensor<1x8x2x4xf32>, tensor<4x4xf32>) -> tensor<1x8x2x4xf32>
  %1 = nn.rotary %k, %table : (tensor<1x8x2x4xf32>, tensor<8x2x2xf32>) -> tensor<1x8x2x4xf32>
  return %0, %1 : tensor<1x8x4x4xf32>, tensor<1x8x2x4xf32>
}

// Another stride or direction has other angles; a rotation of what the first
// one gave cannot be in its kernel.
// CHECK-LABEL: func.func @not_alike
// CHECK-NOT: nn.fused
// CHECK: return
func.func @not_alike(%q: tensor<1x4x4x4xf32>, %table: tensor<8x2x2xf32>)
    -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) {
  %0 = nn.rotary %q, %table : (tensor<1x4x4x4xf32>, tensor<8x2x2xf32>) -> tensor<1x4x4x4xf32>
  %1 = nn.rotary %q, %table {stride = 2 : i64} : (tensor<1x4x4x4xf32>, tensor<8x2x2xf32>) -> tensor<1x4x4x4xf32>
  // MISSED: [[@LINE+2]]:{{.*}} Function=not_alike | Reason="nn.rotary: both are kernels that are not elementwise"
  // MISSED: [[@LINE+1]]:{{.*}} Function=not_alike | Reason="nn.rotary: one needs the other"
  %2 = nn.rotary %0, %table : (tensor<1x4x4x4xf32>, tensor<8x2x2xf32>) -> tensor<1x4x4x4xf32>
  return %1, %2 : tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>
}

// CHECK-LABEL: func.func @alone
// CHECK-NOT: nn.fused
// CHECK: return
func.func @alone(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %y = nn.silu %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %z = nn.matmul %y, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return %z : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @refused
// CHECK-NOT: nn.fused
// CHECK: return
func.func @refused(%x: tensor<4x4xf32>, %w: tensor<4xf32>)
    -> (tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %y, %rstd = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  // MISSED: [[@LINE+1]]:{{.*}} [Missed] Kernel | Category:nsa-fuse | Function=refused | Reason="nn.rms_norm: both are kernels that are not elementwise"
  %z, %rstd1 = nn.rms_norm %y, %w {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  // MISSED: [[@LINE+1]]:{{.*}} Reason="nn.rms_norm: the value is not computed element by element"
  %s = nn.silu %rstd : (tensor<4xf32>) -> tensor<4xf32>
  %k = nn.matmul %x, %z : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // MISSED: [[@LINE+1]]:{{.*}} Reason="nn.silu: the value is not read element by element"
  %u, %rstd2 = nn.rms_norm %k, %s {eps = 1.0e-5 : f64} : (tensor<4x4xf32>, tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>)
  %v = nn.matmul %x, %u : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  // MISSED: [[@LINE+1]]:{{.*}} Reason="nn.rms_norm: another operation has to come between"
  %t = nn.add %u, %v : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %t, %s, %y, %z : tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// What nothing needs makes no kernel.
// CHECK-LABEL: func.func @dead
// CHECK-NEXT: return
func.func @dead(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.silu %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = nn.silu %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %a : tensor<4x8xf32>
}
