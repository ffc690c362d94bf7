// Functions share the memory of persistent tensors, so their flat groups have to agree
// on neighbours: one that contradicts another is not made.

// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

!t = tensor<4x4xf32>
!s = tensor<f32>
!h = tensor<8xf32>

// CHECK-LABEL: func.func @update
// CHECK: nn.flatten {{.*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
// CHECK: nn.fill 0.0{{.*}} : tensor<80xf32>
// CHECK: nn.unflatten {{.*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
func.func @update(
    %wa: !t {nn.name = "a", nn.role = "parameter"}, %wb: !t {nn.name = "b", nn.role = "parameter"}, %wc: !t {nn.name = "c", nn.role = "parameter"},
    %wp: !t {nn.name = "p", nn.role = "parameter"}, %wq: !t {nn.name = "q", nn.role = "parameter"},
    %ma: !t {nn.name = "m.a", nn.role = "state", nn.state = "m"}, %mb: !t {nn.name = "m.b", nn.role = "state", nn.state = "m"}, %mc: !t {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: !t {nn.name = "m.p", nn.role = "state", nn.state = "m"}, %mq: !t {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: !t {nn.name = "v.a", nn.role = "state", nn.state = "v"}, %vb: !t {nn.name = "v.b", nn.role = "state", nn.state = "v"}, %vc: !t {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: !t {nn.name = "v.p", nn.role = "state", nn.state = "v"}, %vq: !t {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: !t {nn.name = "grad.a", nn.role = "gradient"}, %gb: !t {nn.name = "grad.b", nn.role = "gradient"}, %gc: !t {nn.name = "grad.c", nn.role = "gradient"},
    %gp: !t {nn.name = "grad.p", nn.role = "gradient"}, %gq: !t {nn.name = "grad.q", nn.role = "gradient"},
    %loss: !s, %hyper: !h)
    -> (!t {nn.alias = "a"}, !t {nn.alias = "m.a"}, !t {nn.alias = "v.a"}, !t {nn.alias = "grad.a"},
        !t {nn.alias = "b"}, !t {nn.alias = "m.b"}, !t {nn.alias = "v.b"}, !t {nn.alias = "grad.b"},
        !t {nn.alias = "c"}, !t {nn.alias = "m.c"}, !t {nn.alias = "v.c"}, !t {nn.alias = "grad.c"},
        !t {nn.alias = "p"}, !t {nn.alias = "m.p"}, !t {nn.alias = "v.p"}, !t {nn.alias = "grad.p"},
        !t {nn.alias = "q"}, !t {nn.alias = "m.q"}, !t {nn.alias = "v.q"}, !t {nn.alias = "grad.q"}) {
  %norm = nn.gradient_norm %ga, %gb, %gc, %gp, %gq : (!t, !t, !t, !t, !t) -> !s
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %gc, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %zero = nn.fill 0.0 : !t
  return %wa1, %ma1, %va1, %zero, %wb1, %mb1, %vb1, %zero, %wc1, %mc1, %vc1, %zero, %wp1, %mp1, %vp1, %zero, %wq1, %mq1, %vq1, %zero
      : !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t
}

// The gradient of "c" is not in the memory of "grad.c". The others would have to
// lie without it between them.
// CHECK-LABEL: func.func @step
// CHECK-NOT: in ["grad.a", "grad.b", "grad.p", "grad.q"]
// CHECK: nn.flatten {{.*}} in ["grad.a", "grad.b"]
// CHECK-NOT: in ["grad.a", "grad.b", "grad.p", "grad.q"]
// CHECK: nn.flatten {{.*}} in ["grad.p", "grad.q"]
// CHECK-NOT: in ["grad.a", "grad.b", "grad.p", "grad.q"]
// CHECK: return
// MISSED: Function=step | Reason="its tensors are not updated in place"
// MISSED: Function=step | Reason="its gradients are not those of fused updates"
// MISSED: Function=step | Reason="another function has the gradients in another order"
func.func @step(
    %wa: !t {nn.name = "a", nn.role = "parameter"}, %wb: !t {nn.name = "b", nn.role = "parameter"}, %wc: !t {nn.name = "c", nn.role = "parameter"},
    %wp: !t {nn.name = "p", nn.role = "parameter"}, %wq: !t {nn.name = "q", nn.role = "parameter"},
    %ma: !t {nn.name = "m.a", nn.role = "state", nn.state = "m"}, %mb: !t {nn.name = "m.b", nn.role = "state", nn.state = "m"}, %mc: !t {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: !t {nn.name = "m.p", nn.role = "state", nn.state = "m"}, %mq: !t {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: !t {nn.name = "v.a", nn.role = "state", nn.state = "v"}, %vb: !t {nn.name = "v.b", nn.role = "state", nn.state = "v"}, %vc: !t {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: !t {nn.name = "v.p", nn.role = "state", nn.state = "v"}, %vq: !t {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: !t {nn.name = "grad.a", nn.role = "gradient"}, %gb: !t {nn.name = "grad.b", nn.role = "gradient"}, %gc: !t {nn.name = "grad.c", nn.role = "gradient"},
    %gp: !t {nn.name = "grad.p", nn.role = "gradient"}, %gq: !t {nn.name = "grad.q", nn.role = "gradient"},
    %loss: !s, %hyper: !h)
    -> (!t {nn.alias = "a"}, !t {nn.alias = "m.a"}, !t {nn.alias = "v.a"}, !t {nn.alias = "grad.a"},
        !t {nn.alias = "b"}, !t {nn.alias = "m.b"}, !t {nn.alias = "v.b"}, !t {nn.alias = "grad.b"},
        !t {nn.alias = "c"}, !t {nn.alias = "m.c"}, !t {nn.alias = "v.c"}, !t {nn.alias = "grad.c"},
        !t {nn.alias = "p"}, !t {nn.alias = "m.p"}, !t {nn.alias = "v.p"}, !t {nn.alias = "grad.p"},
        !t {nn.alias = "q"}, !t {nn.alias = "m.q"}, !t {nn.alias = "v.q"}, !t {nn.alias = "grad.q"}) {
  %sum = nn.silu %gc : (!t) -> !t
  %norm = nn.gradient_norm %ga, %gb, %sum, %gp, %gq : (!t, !t, !t, !t, !t) -> !s
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %sum, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %zero = nn.fill 0.0 : !t
  return %wa1, %ma1, %va1, %zero, %wb1, %mb1, %vb1, %zero, %wc1, %mc1, %vc1, %zero, %wp1, %mp1, %vp1, %zero, %wq1, %mq1, %vq1, %zero
      : !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t
}

// Chunks of tokens are added to a gradient one after the other: it stays where it
// is, and so its update is one with the rest.
// CHECK-LABEL: func.func @chunks
// CHECK: %[[FIRST:.*]] = nn.matmul %{{[^,]*}}, %{{[^,]*}}, %{{[^ ]*}} {transpose_lhs}
// CHECK: %[[SUM:.*]] = nn.matmul %{{[^,]*}}, %{{[^,]*}}, %[[FIRST]] {transpose_lhs}
// CHECK: nn.flatten %{{[^,]*}}, %{{[^,]*}}, %[[SUM]], %{{[^,]*}}, %{{[^,]*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
// CHECK: nn.flatten %{{[^,]*}}, %{{[^,]*}}, %[[SUM]] in ["grad.a", "grad.b", "grad.c"]
// CHECK: nn.unflatten {{.*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
func.func @chunks(
    %wa: !t {nn.name = "a", nn.role = "parameter"}, %wb: !t {nn.name = "b", nn.role = "parameter"}, %wc: !t {nn.name = "c", nn.role = "parameter"},
    %wp: !t {nn.name = "p", nn.role = "parameter"}, %wq: !t {nn.name = "q", nn.role = "parameter"},
    %ma: !t {nn.name = "m.a", nn.role = "state", nn.state = "m"}, %mb: !t {nn.name = "m.b", nn.role = "state", nn.state = "m"}, %mc: !t {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: !t {nn.name = "m.p", nn.role = "state", nn.state = "m"}, %mq: !t {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: !t {nn.name = "v.a", nn.role = "state", nn.state = "v"}, %vb: !t {nn.name = "v.b", nn.role = "state", nn.state = "v"}, %vc: !t {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: !t {nn.name = "v.p", nn.role = "state", nn.state = "v"}, %vq: !t {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: !t {nn.name = "grad.a", nn.role = "gradient"}, %gb: !t {nn.name = "grad.b", nn.role = "gradient"}, %gc: !t {nn.name = "grad.c", nn.role = "gradient"},
    %gp: !t {nn.name = "grad.p", nn.role = "gradient"}, %gq: !t {nn.name = "grad.q", nn.role = "gradient"},
    %x: !t, %y: !t,
    %loss: !s, %hyper: !h)
    -> (!t {nn.alias = "a"}, !t {nn.alias = "m.a"}, !t {nn.alias = "v.a"}, !t {nn.alias = "grad.a"},
        !t {nn.alias = "b"}, !t {nn.alias = "m.b"}, !t {nn.alias = "v.b"}, !t {nn.alias = "grad.b"},
        !t {nn.alias = "c"}, !t {nn.alias = "m.c"}, !t {nn.alias = "v.c"}, !t {nn.alias = "grad.c"},
        !t {nn.alias = "p"}, !t {nn.alias = "m.p"}, !t {nn.alias = "v.p"}, !t {nn.alias = "grad.p"},
        !t {nn.alias = "q"}, !t {nn.alias = "m.q"}, !t {nn.alias = "v.q"}, !t {nn.alias = "grad.q"}) {
  %first = nn.matmul %x, %y, %gc {transpose_lhs} : (!t, !t, !t) -> !t
  %sum = nn.matmul %y, %x, %first {transpose_lhs} : (!t, !t, !t) -> !t
  %norm = nn.gradient_norm %ga, %gb, %sum, %gp, %gq : (!t, !t, !t, !t, !t) -> !s
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %sum, %norm, %loss, %hyper {decay} : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper : (!t, !t, !t, !t, !s, !s, !h) -> (!t, !t, !t)
  %zero = nn.fill 0.0 : !t
  return %wa1, %ma1, %va1, %zero, %wb1, %mb1, %vb1, %zero, %wc1, %mc1, %vc1, %zero, %wp1, %mp1, %vp1, %zero, %wq1, %mq1, %vq1, %zero
      : !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t
}

// Two updates with one gradient: a flat group has each tensor once.
// CHECK-LABEL: func.func @shared_gradient
// CHECK-NOT: nn.flatten
// CHECK: return
// MISSED: Function=shared_gradient | Reason="another update has one of its tensors"
func.func @shared_gradient(
    %w1: tensor<16xf32> {nn.name = "w1", nn.role = "parameter"}, %w2: tensor<16xf32> {nn.name = "w2", nn.role = "parameter"},
    %m1: tensor<16xf32> {nn.name = "m1", nn.role = "state", nn.state = "m"}, %m2: tensor<16xf32> {nn.name = "m2", nn.role = "state", nn.state = "m"},
    %v1: tensor<16xf32> {nn.name = "v1", nn.role = "state", nn.state = "v"}, %v2: tensor<16xf32> {nn.name = "v2", nn.role = "state", nn.state = "v"},
    %g1: tensor<16xf32> {nn.name = "g1", nn.role = "gradient"}, %g2: tensor<16xf32> {nn.name = "g2", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<16xf32> {nn.alias = "w1"}, tensor<16xf32> {nn.alias = "m1"}, tensor<16xf32> {nn.alias = "v1"}, tensor<16xf32> {nn.alias = "w2"}, tensor<16xf32> {nn.alias = "m2"}, tensor<16xf32> {nn.alias = "v2"}) {
  %norm = nn.gradient_norm %g1, %g2 : (tensor<16xf32>, tensor<16xf32>) -> tensor<f32>
  %u:3 = nn.adamw %w1, %m1, %v1, %g1, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  %v:3 = nn.adamw %w2, %m2, %v2, %g1, %norm, %loss, %hyper
      : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %u#0, %u#1, %u#2, %v#0, %v#1, %v#2
      : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}
