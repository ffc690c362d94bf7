// RUN: nsa-opt %s --pass-pipeline='builtin.module(func.func(nsa-shard-sequence{ranks=2}))' | FileCheck %s
// RUN: nsa-opt %s --pass-pipeline='builtin.module(func.func(nsa-shard-sequence{ranks=2},nsa-differentiate))' | FileCheck %s --check-prefix=GRAD

// Other functions have whole sequences.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: tensor<1x64xi32>
// CHECK-NOT: at(
func.func @forward(%tokens: tensor<1x64xi32> {nn.name = "tokens", nn.role = "input"},
                   %w: tensor<8x16xf32> {nn.name = "w", nn.role = "parameter"},
                   %table: tensor<64x4x2xf32> {nn.name = "table", nn.role = "constant"}) -> tensor<1x64x2x8xf32> {
  %x = nn.embedding %w, %tokens : (tensor<8x16xf32>, tensor<1x64xi32>) -> tensor<1x64x16xf32>
  %h = nn.split_heads %x {heads = 2 : i64} : (tensor<1x64x16xf32>) -> tensor<1x64x2x8xf32>
  %q = nn.rotary %h, %table : (tensor<1x64x2x8xf32>, tensor<64x4x2xf32>) -> tensor<1x64x2x8xf32>
  return %q : tensor<1x64x2x8xf32>
}

// What is compressed, rotated and a value is gathered once; compressed rows are made
// on each rank, and so is what follows from them.
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: %[[TOKENS:.*]]: tensor<2x16xi32> {nn.name = "tokens", nn.role = "input"}
// CHECK-SAME: %[[TARGETS:.*]]: tensor<2x16xi32> {nn.name = "targets", nn.role = "input"}
// CHECK-SAME: %[[AT:[a-z0-9]+]]: tensor<2x2xi32> {nn.name = "at", nn.role = "input"})
// CHECK: %[[H:.*]] = nn.split_heads {{.*}} -> tensor<2x16x2x8xf32>
// CHECK: %[[V:.*]] = nn.gather_sequence %[[H]] {ranks = 2 : i64} : (tensor<2x16x2x8xf32>) -> tensor<1x64x2x8xf32>
// CHECK: %[[Q:.*]] = nn.rotary %[[H]], %{{.*}} at(%[[AT]])
// CHECK: %[[K:.*]] = nn.rotary %[[V]], %{{[a-z0-9]+}} : (tensor<1x64x2x8xf32>,
// CHECK: %[[C:.*]] = nsa.compress mean %[[V]]
// CHECK: %[[R:.*]] = nn.rotary %[[C]], %{{[a-z0-9]+}} {stride = 4 : i64}
// CHECK: %[[O0:.*]], %[[LSE:.*]] = nsa.attention %[[Q]], %[[R]], %[[C]] visible(#nsa.compressed<block = 8, stride = 4>) at(%[[AT]] : tensor<2x2xi32>)
// CHECK: %[[INDICES:.*]] = nsa.select %[[Q]], %[[R]], %[[LSE]] at(%[[AT]] : tensor<2x2xi32>)
// CHECK-SAME: tensor<2x2x16x3xi32>
// CHECK: nsa.attention %[[Q]], %[[K]], %[[V]] visible(#nsa.selected<block = 16>, %[[INDICES]] : tensor<2x2x16x3xi32>) at(%[[AT]] : tensor<2x2xi32>)
// CHECK: nsa.attention %[[Q]], %[[K]], %[[V]] visible(#nsa.window<32>) at(%[[AT]] : tensor<2x2xi32>)
// CHECK: nn.cross_entropy {{.*}}tensor<2x16x8xf32>

// The gradients of what is gathered are sums over the ranks.
// GRAD-LABEL: func.func @accumulate(
// GRAD: nn.reduce_scatter_sequence %{{.*}} {ranks = 2 : i64} : (tensor<1x64x2x8xf32>) -> tensor<2x16x2x8xf32>
// GRAD-NOT: nn.reduce_scatter_sequence
func.func @accumulate(%tokens: tensor<1x64xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
                      %targets: tensor<1x64xi32> {nn.name = "targets", nn.role = "input", nn.dims = ["batch", "seq"]},
                      %w: tensor<8x16xf32> {nn.name = "w", nn.role = "parameter"},
                      %table: tensor<64x4x2xf32> {nn.name = "table", nn.role = "constant"})
    -> (tensor<f32> {nn.name = "loss", nn.objective}) {
  %x = nn.embedding %w, %tokens : (tensor<8x16xf32>, tensor<1x64xi32>) -> tensor<1x64x16xf32>
  %h = nn.split_heads %x {heads = 2 : i64} : (tensor<1x64x16xf32>) -> tensor<1x64x2x8xf32>
  %q = nn.rotary %h, %table : (tensor<1x64x2x8xf32>, tensor<64x4x2xf32>) -> tensor<1x64x2x8xf32>
  %c = nsa.compress mean %h by(#nsa.compressed<block = 8, stride = 4>) : (tensor<1x64x2x8xf32>) -> tensor<1x15x2x8xf32>
  %r = nn.rotary %c, %table {stride = 4 : i64} : (tensor<1x15x2x8xf32>, tensor<64x4x2xf32>) -> tensor<1x15x2x8xf32>
  %o0, %lse0 = nsa.attention %q, %r, %c visible(#nsa.compressed<block = 8, stride = 4>)
      : tensor<1x64x2x8xf32>, tensor<1x15x2x8xf32>, tensor<1x15x2x8xf32>
  %indices = nsa.select %q, %r, %lse0 by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<1x64x2x8xf32>, tensor<1x15x2x8xf32> -> tensor<1x2x64x3xi32>
  %o1, %lse1 = nsa.attention %q, %q, %h visible(#nsa.selected<block = 16>, %indices : tensor<1x2x64x3xi32>)
      : tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>
  %o2, %lse2 = nsa.attention %q, %q, %h visible(#nsa.window<32>)
      : tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>
  %s0 = nn.add %o0, %o1 : (tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>) -> tensor<1x64x2x8xf32>
  %s1 = nn.add %s0, %o2 : (tensor<1x64x2x8xf32>, tensor<1x64x2x8xf32>) -> tensor<1x64x2x8xf32>
  %m = nn.merge_heads %s1 : (tensor<1x64x2x8xf32>) -> tensor<1x64x16xf32>
  %logits = nn.matmul %m, %w {transpose_rhs} : (tensor<1x64x16xf32>, tensor<8x16xf32>) -> tensor<1x64x8xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %targets {over_all}
      : (tensor<1x64x8xf32>, tensor<1x64xi32>) -> (tensor<f32>, tensor<1x64xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// Windows shorter than a chunk of 32 tokens get the 16 before it.
// CHECK-LABEL: func.func @eval(
// CHECK-SAME: %[[WINDOW_AT:[a-z0-9]+]]: tensor<2x2xi32> {nn.name = "window_at.16", nn.role = "input"})
// CHECK: %[[KEYS:.*]] = nn.gather_halo %{{.*}} {ranks = 2 : i64, tokens = 16 : i64} : (tensor<2x32x2x8xf32>) -> tensor<2x48x2x8xf32>
// CHECK-NEXT: nsa.attention %{{.*}}, %[[KEYS]], %[[KEYS]] visible(#nsa.window<8>) at(%[[WINDOW_AT]] : tensor<2x2xi32>)
func.func @eval(%tokens: tensor<1x128xi32> {nn.name = "tokens", nn.role = "input"}, %w: tensor<8x16xf32>) -> tensor<1x128x2x8xf32> {
  %x = nn.embedding %w, %tokens : (tensor<8x16xf32>, tensor<1x128xi32>) -> tensor<1x128x16xf32>
  %h = nn.split_heads %x {heads = 2 : i64} : (tensor<1x128x16xf32>) -> tensor<1x128x2x8xf32>
  %o, %lse = nsa.attention %h, %h, %h visible(#nsa.window<8>)
      : tensor<1x128x2x8xf32>, tensor<1x128x2x8xf32>, tensor<1x128x2x8xf32>
  return %o : tensor<1x128x2x8xf32>
}
