// Functions share the memory of persistent tensors, so their flat groups have to agree
// on neighbours: one that contradicts another is not made.

// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// CHECK-LABEL: func.func @update
// CHECK: nn.flatten {{.*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
// CHECK: nn.fill 0.0{{.*}} : tensor<80xf32>
// CHECK: nn.unflatten {{.*}} in ["grad.a", "grad.b", "grad.c", "grad.p", "grad.q"]
func.func @update(
    %wa: tensor<4x4xf32> {nn.name = "a", nn.role = "parameter"},
    %wb: tensor<4x4xf32> {nn.name = "b", nn.role = "parameter"},
    %wc: tensor<4x4xf32> {nn.name = "c", nn.role = "parameter"},
    %wp: tensor<4x4xf32> {nn.name = "p", nn.role = "parameter"},
    %wq: tensor<4x4xf32> {nn.name = "q", nn.role = "parameter"},
    %ma: tensor<4x4xf32> {nn.name = "m.a", nn.role = "state", nn.state = "m"},
    %mb: tensor<4x4xf32> {nn.name = "m.b", nn.role = "state", nn.state = "m"},
    %mc: tensor<4x4xf32> {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: tensor<4x4xf32> {nn.name = "m.p", nn.role = "state", nn.state = "m"},
    %mq: tensor<4x4xf32> {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: tensor<4x4xf32> {nn.name = "v.a", nn.role = "state", nn.state = "v"},
    %vb: tensor<4x4xf32> {nn.name = "v.b", nn.role = "state", nn.state = "v"},
    %vc: tensor<4x4xf32> {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: tensor<4x4xf32> {nn.name = "v.p", nn.role = "state", nn.state = "v"},
    %vq: tensor<4x4xf32> {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: tensor<4x4xf32> {nn.name = "grad.a", nn.role = "gradient"},
    %gb: tensor<4x4xf32> {nn.name = "grad.b", nn.role = "gradient"},
    %gc: tensor<4x4xf32> {nn.name = "grad.c", nn.role = "gradient"},
    %gp: tensor<4x4xf32> {nn.name = "grad.p", nn.role = "gradient"},
    %gq: tensor<4x4xf32> {nn.name = "grad.q", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<4x4xf32> {nn.alias = "a"}, tensor<4x4xf32> {nn.alias = "m.a"}, tensor<4x4xf32> {nn.alias = "v.a"}, tensor<4x4xf32> {nn.alias = "grad.a"},
        tensor<4x4xf32> {nn.alias = "b"}, tensor<4x4xf32> {nn.alias = "m.b"}, tensor<4x4xf32> {nn.alias = "v.b"}, tensor<4x4xf32> {nn.alias = "grad.b"},
        tensor<4x4xf32> {nn.alias = "c"}, tensor<4x4xf32> {nn.alias = "m.c"}, tensor<4x4xf32> {nn.alias = "v.c"}, tensor<4x4xf32> {nn.alias = "grad.c"},
        tensor<4x4xf32> {nn.alias = "p"}, tensor<4x4xf32> {nn.alias = "m.p"}, tensor<4x4xf32> {nn.alias = "v.p"}, tensor<4x4xf32> {nn.alias = "grad.p"},
        tensor<4x4xf32> {nn.alias = "q"}, tensor<4x4xf32> {nn.alias = "m.q"}, tensor<4x4xf32> {nn.alias = "v.q"}, tensor<4x4xf32> {nn.alias = "grad.q"}) {
  %norm = nn.gradient_norm %ga, %gb, %gc, %gp, %gq : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<f32>
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %gc, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %zero = nn.fill 0.0 : tensor<4x4xf32>
  return %wa1, %ma1, %va1, %zero,
      %wb1, %mb1, %vb1, %zero,
      %wc1, %mc1, %vc1, %zero,
      %wp1, %mp1, %vp1, %zero,
      %wq1, %mq1, %vq1, %zero
      : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
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
    %wa: tensor<4x4xf32> {nn.name = "a", nn.role = "parameter"},
    %wb: tensor<4x4xf32> {nn.name = "b", nn.role = "parameter"},
    %wc: tensor<4x4xf32> {nn.name = "c", nn.role = "parameter"},
    %wp: tensor<4x4xf32> {nn.name = "p", nn.role = "parameter"},
    %wq: tensor<4x4xf32> {nn.name = "q", nn.role = "parameter"},
    %ma: tensor<4x4xf32> {nn.name = "m.a", nn.role = "state", nn.state = "m"},
    %mb: tensor<4x4xf32> {nn.name = "m.b", nn.role = "state", nn.state = "m"},
    %mc: tensor<4x4xf32> {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: tensor<4x4xf32> {nn.name = "m.p", nn.role = "state", nn.state = "m"},
    %mq: tensor<4x4xf32> {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: tensor<4x4xf32> {nn.name = "v.a", nn.role = "state", nn.state = "v"},
    %vb: tensor<4x4xf32> {nn.name = "v.b", nn.role = "state", nn.state = "v"},
    %vc: tensor<4x4xf32> {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: tensor<4x4xf32> {nn.name = "v.p", nn.role = "state", nn.state = "v"},
    %vq: tensor<4x4xf32> {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: tensor<4x4xf32> {nn.name = "grad.a", nn.role = "gradient"},
    %gb: tensor<4x4xf32> {nn.name = "grad.b", nn.role = "gradient"},
    %gc: tensor<4x4xf32> {nn.name = "grad.c", nn.role = "gradient"},
    %gp: tensor<4x4xf32> {nn.name = "grad.p", nn.role = "gradient"},
    %gq: tensor<4x4xf32> {nn.name = "grad.q", nn.role = "gradient"},
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<4x4xf32> {nn.alias = "a"}, tensor<4x4xf32> {nn.alias = "m.a"}, tensor<4x4xf32> {nn.alias = "v.a"}, tensor<4x4xf32> {nn.alias = "grad.a"},
        tensor<4x4xf32> {nn.alias = "b"}, tensor<4x4xf32> {nn.alias = "m.b"}, tensor<4x4xf32> {nn.alias = "v.b"}, tensor<4x4xf32> {nn.alias = "grad.b"},
        tensor<4x4xf32> {nn.alias = "c"}, tensor<4x4xf32> {nn.alias = "m.c"}, tensor<4x4xf32> {nn.alias = "v.c"}, tensor<4x4xf32> {nn.alias = "grad.c"},
        tensor<4x4xf32> {nn.alias = "p"}, tensor<4x4xf32> {nn.alias = "m.p"}, tensor<4x4xf32> {nn.alias = "v.p"}, tensor<4x4xf32> {nn.alias = "grad.p"},
        tensor<4x4xf32> {nn.alias = "q"}, tensor<4x4xf32> {nn.alias = "m.q"}, tensor<4x4xf32> {nn.alias = "v.q"}, tensor<4x4xf32> {nn.alias = "grad.q"}) {
  %sum = nn.silu %gc : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %norm = nn.gradient_norm %ga, %gb, %sum, %gp, %gq : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<f32>
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %sum, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %zero = nn.fill 0.0 : tensor<4x4xf32>
  return %wa1, %ma1, %va1, %zero,
      %wb1, %mb1, %vb1, %zero,
      %wc1, %mc1, %vc1, %zero,
      %wp1, %mp1, %vp1, %zero,
      %wq1, %mq1, %vq1, %zero
      : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
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
    %wa: tensor<4x4xf32> {nn.name = "a", nn.role = "parameter"},
    %wb: tensor<4x4xf32> {nn.name = "b", nn.role = "parameter"},
    %wc: tensor<4x4xf32> {nn.name = "c", nn.role = "parameter"},
    %wp: tensor<4x4xf32> {nn.name = "p", nn.role = "parameter"},
    %wq: tensor<4x4xf32> {nn.name = "q", nn.role = "parameter"},
    %ma: tensor<4x4xf32> {nn.name = "m.a", nn.role = "state", nn.state = "m"},
    %mb: tensor<4x4xf32> {nn.name = "m.b", nn.role = "state", nn.state = "m"},
    %mc: tensor<4x4xf32> {nn.name = "m.c", nn.role = "state", nn.state = "m"},
    %mp: tensor<4x4xf32> {nn.name = "m.p", nn.role = "state", nn.state = "m"},
    %mq: tensor<4x4xf32> {nn.name = "m.q", nn.role = "state", nn.state = "m"},
    %va: tensor<4x4xf32> {nn.name = "v.a", nn.role = "state", nn.state = "v"},
    %vb: tensor<4x4xf32> {nn.name = "v.b", nn.role = "state", nn.state = "v"},
    %vc: tensor<4x4xf32> {nn.name = "v.c", nn.role = "state", nn.state = "v"},
    %vp: tensor<4x4xf32> {nn.name = "v.p", nn.role = "state", nn.state = "v"},
    %vq: tensor<4x4xf32> {nn.name = "v.q", nn.role = "state", nn.state = "v"},
    %ga: tensor<4x4xf32> {nn.name = "grad.a", nn.role = "gradient"},
    %gb: tensor<4x4xf32> {nn.name = "grad.b", nn.role = "gradient"},
    %gc: tensor<4x4xf32> {nn.name = "grad.c", nn.role = "gradient"},
    %gp: tensor<4x4xf32> {nn.name = "grad.p", nn.role = "gradient"},
    %gq: tensor<4x4xf32> {nn.name = "grad.q", nn.role = "gradient"},
    %x: tensor<4x4xf32>, %y: tensor<4x4xf32>,
    %loss: tensor<f32>, %hyper: tensor<8xf32>)
    -> (tensor<4x4xf32> {nn.alias = "a"}, tensor<4x4xf32> {nn.alias = "m.a"}, tensor<4x4xf32> {nn.alias = "v.a"}, tensor<4x4xf32> {nn.alias = "grad.a"},
        tensor<4x4xf32> {nn.alias = "b"}, tensor<4x4xf32> {nn.alias = "m.b"}, tensor<4x4xf32> {nn.alias = "v.b"}, tensor<4x4xf32> {nn.alias = "grad.b"},
        tensor<4x4xf32> {nn.alias = "c"}, tensor<4x4xf32> {nn.alias = "m.c"}, tensor<4x4xf32> {nn.alias = "v.c"}, tensor<4x4xf32> {nn.alias = "grad.c"},
        tensor<4x4xf32> {nn.alias = "p"}, tensor<4x4xf32> {nn.alias = "m.p"}, tensor<4x4xf32> {nn.alias = "v.p"}, tensor<4x4xf32> {nn.alias = "grad.p"},
        tensor<4x4xf32> {nn.alias = "q"}, tensor<4x4xf32> {nn.alias = "m.q"}, tensor<4x4xf32> {nn.alias = "v.q"}, tensor<4x4xf32> {nn.alias = "grad.q"}) {
  %first = nn.matmul %x, %y, %gc {transpose_lhs} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %sum = nn.matmul %y, %x, %first {transpose_lhs} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %norm = nn.gradient_norm %ga, %gb, %sum, %gp, %gq : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<f32>
  %wa1, %ma1, %va1 = nn.adamw %wa, %ma, %va, %ga, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wb1, %mb1, %vb1 = nn.adamw %wb, %mb, %vb, %gb, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wc1, %mc1, %vc1 = nn.adamw %wc, %mc, %vc, %sum, %norm, %loss, %hyper {decay}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wp1, %mp1, %vp1 = nn.adamw %wp, %mp, %vp, %gp, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %wq1, %mq1, %vq1 = nn.adamw %wq, %mq, %vq, %gq, %norm, %loss, %hyper
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)
  %zero = nn.fill 0.0 : tensor<4x4xf32>
  return %wa1, %ma1, %va1, %zero,
      %wb1, %mb1, %vb1, %zero,
      %wc1, %mc1, %vc1, %zero,
      %wp1, %mp1, %vp1, %zero,
      %wq1, %mq1, %vq1, %zero
      : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>,
        tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
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
