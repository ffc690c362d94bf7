// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// The matmul is added to the gradient where that lies.
// CHECK-LABEL: func.func @weight_gradient
// CHECK-NEXT: %[[SUM:.*]] = nn.matmul %arg0, %arg1, %arg2 {transpose_lhs}
// CHECK-NEXT: return %[[SUM]]
func.func @weight_gradient(%x: tensor<64x32xf32>, %dy: tensor<64x48xf32>,
    %g: tensor<32x48xf32> {nn.name = "grad.w", nn.role = "gradient"})
    -> (tensor<32x48xf32> {nn.alias = "grad.w"}) {
  %dw = nn.matmul %x, %dy {transpose_lhs} : (tensor<64x32xf32>, tensor<64x48xf32>) -> tensor<32x48xf32>
  %sum = nn.add %g, %dw : (tensor<32x48xf32>, tensor<32x48xf32>) -> tensor<32x48xf32>
  return %sum : tensor<32x48xf32>
}

// A sum of matmuls: each but the first is added to what is there.
// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[A:.*]] = nn.matmul %arg0, %arg1 :
// CHECK-NEXT: %[[B:.*]] = nn.matmul %arg0, %arg2, %[[A]] :
// CHECK-NEXT: %[[C:.*]] = nn.matmul %arg0, %arg3, %[[B]] :
// CHECK-NEXT: return %[[C]]
func.func @chain(%x: tensor<8x4xf32>, %u: tensor<4x4xf32>, %v: tensor<4x4xf32>, %w: tensor<4x4xf32>)
    -> tensor<8x4xf32> {
  %a = nn.matmul %x, %u : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %b = nn.matmul %x, %v : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %ab = nn.add %a, %b : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = nn.matmul %x, %w : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %abc = nn.add %ab, %c : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %abc : tensor<8x4xf32>
}

// A matmul that something else reads, which backward may need later or compute
// again, is rounded before the sum.
// CHECK-LABEL: func.func @activation
// CHECK: %[[A:.*]] = nn.matmul %arg0, %arg1 :
// CHECK: %[[B:.*]] = nn.matmul %{{.*}}, %arg1 :
// CHECK: nn.add %[[A]], %[[B]]
// MISSED: Function=activation | Reason="the matmul has other readers"
func.func @activation(%x: tensor<4x4xbf16>, %w: tensor<4x4xbf16>) -> tensor<4x4xbf16> {
  %a = nn.matmul %x, %w : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %s = nn.silu %a : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %b = nn.matmul %s, %w : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %sum = nn.add %a, %b : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  return %sum : tensor<4x4xbf16>
}

// CHECK-LABEL: func.func @refused
// CHECK-COUNT-5: nn.add
// MISSED: [[@LINE+8]]:{{.*}} [Missed] Accumulate | Category:nsa-fuse | Function=refused | Reason="the other term is an argument that stays"
// MISSED: [[@LINE+9]]:{{.*}} Reason="the matmul has other readers"
// MISSED: [[@LINE+11]]:{{.*}} Reason="the other term is read later"
// MISSED: [[@LINE+13]]:{{.*}} Reason="the other term is an operand of the matmul"
func.func @refused(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>)
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %s = nn.silu %x : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %a = nn.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %argument = nn.add %x, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = nn.matmul %w, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %shared = nn.add %s, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = nn.matmul %w, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = nn.silu %s : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %later = nn.add %t, %c : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %u = nn.silu %t : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = nn.matmul %u, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %factor = nn.add %u, %d : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %none = nn.add %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %argument, %b, %shared, %later, %factor, %none
      : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// Tensors with the same scalars become one; the gradients of all have one norm
// and are set to zero at once.
// CHECK-LABEL: func.func @update
// CHECK-NEXT: %[[ALL:.*]] = nn.flatten %arg6, %arg7 in ["grad.a", "grad.b"] : (tensor<4x5xf32>, tensor<3xf32>) -> tensor<48xf32>
// CHECK-NEXT: %[[NORM:.*]] = nn.gradient_norm %[[ALL]]
// CHECK-NEXT: %[[W:.*]] = nn.flatten %arg0, %arg1 in ["a", "b"]
// CHECK-NEXT: %[[M:.*]] = nn.flatten %arg2, %arg3 in ["m.a", "m.b"]
// CHECK-NEXT: %[[V:.*]] = nn.flatten %arg4, %arg5 in ["v.a", "v.b"]
// CHECK-NEXT: %[[G:.*]] = nn.flatten %arg6, %arg7 in ["grad.a", "grad.b"]
// CHECK-NEXT: %[[W1:[^,]*]], %{{.*}}, %{{.*}} = nn.adamw %[[W]], %[[M]], %[[V]], %[[G]], %[[NORM]], %arg8, %arg9 {decay}
// CHECK-NEXT: nn.unflatten %[[W1]] in ["a", "b"] : (tensor<48xf32>) -> (tensor<4x5xf32>, tensor<3xf32>)
// CHECK: %[[ZERO:.*]] = nn.fill 0.0{{.*}} : tensor<48xf32>
// CHECK-NEXT: nn.unflatten %[[ZERO]] in ["grad.a", "grad.b"]
// CHECK-NOT: nn.fill
// CHECK: return
func.func @update(
    %a: tensor<4x5xf32> {nn.name = "a", nn.role = "parameter"},
    %b: tensor<3xf32> {nn.name = "b", nn.role = "parameter"},
    %ma: tensor<4x5xf32> {nn.name = "m.a", nn.role = "state", nn.state = "m"},
    %mb: tensor<3xf32> {nn.name = "m.b", nn.role = "state", nn.state = "m"},
    %va: tensor<4x5xf32> {nn.name = "v.a", nn.role = "state", nn.state = "v"},
    %vb: tensor<3xf32> {nn.name = "v.b", nn.role = "state", nn.state = "v"},
    %ga: tensor<4x5xf32> {nn.name = "grad.a", nn.role = "gradient"},
    %gb: tensor<3xf32> {nn.name = "grad.b", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<4x5xf32> {nn.alias = "a"}, tensor<4x5xf32> {nn.alias = "m.a"}, tensor<4x5xf32> {nn.alias = "v.a"},
        tensor<3xf32> {nn.alias = "b"}, tensor<3xf32> {nn.alias = "m.b"}, tensor<3xf32> {nn.alias = "v.b"},
        tensor<4x5xf32> {nn.alias = "grad.a"}, tensor<3xf32> {nn.alias = "grad.b"}) {
  %norm = nn.gradient_norm %ga, %gb : (tensor<4x5xf32>, tensor<3xf32>) -> tensor<f32>
  %a1, %ma1, %va1 = nn.adamw %a, %ma, %va, %ga, %norm, %loss, %hyper {decay}
      : (tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>)
  %b1, %mb1, %vb1 = nn.adamw %b, %mb, %vb, %gb, %norm, %loss, %hyper {decay}
      : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %za = nn.fill 0.0 : tensor<4x5xf32>
  %zb = nn.fill 0.0 : tensor<3xf32>
  return %a1, %ma1, %va1, %b1, %mb1, %vb1, %za, %zb
      : tensor<4x5xf32>, tensor<4x5xf32>, tensor<4x5xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<4x5xf32>, tensor<3xf32>
}

// CHECK-LABEL: func.func @not_in_place
// CHECK-NOT: nn.flatten
// MISSED: [Missed] Flat group | Category:nsa-fuse | Function=not_in_place | Reason="its tensors are not updated in place"
func.func @not_in_place(%w: tensor<3xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>, %g: tensor<3xf32>,
    %loss: tensor<f32>, %hyper: tensor<8xf32>) -> tensor<3xf32> {
  %w1, %m1, %v1 = nn.adamw %w, %m, %v, %g, %loss, %loss, %hyper
      : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %w1 : tensor<3xf32>
}

// The rows of one matmul are added to gradients that lie together, in an order
// that the update keeps.
// CHECK-LABEL: func.func @gradients_of_parts
// CHECK-NEXT: %[[G:.*]] = nn.flatten %arg2, %arg3 in ["grad.p", "grad.q"] : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT: %[[S:.*]] = nn.matmul %arg0, %arg1, %[[G]] {transpose_lhs}
// CHECK-NEXT: %[[P:.*]], %[[Q:.*]] = nn.unflatten %[[S]] in ["grad.p", "grad.q"]
// CHECK-NEXT: return %[[P]], %[[Q]]
func.func @gradients_of_parts(%dy: tensor<64x6xf32>, %x: tensor<64x8xf32>,
    %p: tensor<4x8xf32> {nn.name = "grad.p", nn.role = "gradient"},
    %q: tensor<2x8xf32> {nn.name = "grad.q", nn.role = "gradient"})
    -> (tensor<4x8xf32> {nn.alias = "grad.p"}, tensor<2x8xf32> {nn.alias = "grad.q"}) {
  %dw = nn.matmul %dy, %x {transpose_lhs} : (tensor<64x6xf32>, tensor<64x8xf32>) -> tensor<6x8xf32>
  %dp, %dq = nn.split %dw {rows, sizes = array<i64: 4, 2>} : (tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<2x8xf32>)
  %p1 = nn.add %p, %dp : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %q1 = nn.add %dq, %q : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %p1, %q1 : tensor<4x8xf32>, tensor<2x8xf32>
}

// CHECK-LABEL: func.func @gradients_elsewhere
// CHECK-NOT: nn.flatten
// CHECK: return
// MISSED: Function=gradients_elsewhere | Reason="a part is not added to a gradient alone"
func.func @gradients_elsewhere(%dy: tensor<64x6xf32>, %x: tensor<64x8xf32>,
    %p: tensor<4x8xf32> {nn.name = "grad.p", nn.role = "gradient"})
    -> (tensor<4x8xf32> {nn.alias = "grad.p"}, tensor<2x8xf32>) {
  %dw = nn.matmul %dy, %x {transpose_lhs} : (tensor<64x6xf32>, tensor<64x8xf32>) -> tensor<6x8xf32>
  %dp, %dq = nn.split %dw {rows, sizes = array<i64: 4, 2>} : (tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<2x8xf32>)
  %p1 = nn.add %p, %dp : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %p1, %dq : tensor<4x8xf32>, tensor<2x8xf32>
}
