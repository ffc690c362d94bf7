// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse --nsa-buffer | FileCheck %s --check-prefix=BUFFER

// Queries and keys are rotated where they lie, before the branch is computed
// from what was stored. The first heads' programs have the rows of the keys.
// CHECK-LABEL: func.func @forward
// CHECK: tile.launch @rotary_compressed_attention_b1s64h4x2d16_l8d4_f32(
// CHECK-LABEL: tile.kernel private @rotary_compressed_attention
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<1x64x4x16xf32>, %{{[a-z0-9]+}}: memref<1x15x2x16xf32>, %{{[a-z0-9]+}}: memref<1x15x2x16xf32>, %[[K:[a-z0-9]+]]: memref<1x64x2x16xf32>, %[[T:[a-z0-9]+]]: memref<64x8x2xf32>,
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<1x64x4x16xf32>, %{{[a-z0-9]+}}: memref<1x4x64xf32>, %[[QR:[a-z0-9]+]]: memref<1x64x4x16xf32>, %[[KR:[a-z0-9]+]]: memref<1x64x2x16xf32>)
// CHECK-SAME: grid = array<i32: 1, 4, 1>
// CHECK: %[[HEAD:.*]] = tile.program_id 1
// CHECK-COUNT-2: tile.load %[[T]]
// CHECK-COUNT-2: tile.load %[[Q]]
// CHECK-COUNT-2: math.fma
// CHECK-COUNT-2: tile.store %{{.*}}, %[[QR]]
// CHECK: arith.cmpi slt, %[[HEAD]], %c2_i32
// CHECK-NEXT: scf.if
// CHECK-COUNT-2: tile.load %[[K]]
// CHECK-COUNT-2: tile.store %{{.*}}, %[[KR]]
// CHECK: }
// CHECK: tile.load %[[QR]]{{.*}} -> !tile.tile<64x16xf32>
// CHECK: scf.for
// CHECK: tile.store %{{.*}}, %[[O]]

// BUFFER-LABEL: rt.entry @forward
// BUFFER: rt.launch @silu{{.*}} outs(%[[Q:.*]] : memref<1x64x4x16xf32>)
// BUFFER: rt.launch @silu{{.*}} outs(%[[K:.*]] : memref<1x64x2x16xf32>)
// BUFFER: rt.launch @rotary_compressed_attention{{.*}} ins(%[[Q]], %{{[^,]*}}, %{{[^,]*}}, %[[K]], {{.*}} outs(%{{[^,]*}}, %{{[^,]*}}, %[[Q]], %[[K]] :
func.func @forward(%q: tensor<1x64x4x16xf32> {nn.name = "q", nn.role = "input"}, %kc: tensor<1x15x2x16xf32> {nn.name = "kc", nn.role = "input"},
                   %vc: tensor<1x15x2x16xf32> {nn.name = "vc", nn.role = "input"}, %k: tensor<1x64x2x16xf32> {nn.name = "k", nn.role = "input"},
                   %t: tensor<64x8x2xf32> {nn.name = "t", nn.role = "input"})
    -> (tensor<1x64x4x16xf32> {nn.name = "o"}, tensor<1x64x4x16xf32> {nn.name = "w"}) {
  %qs = nn.silu %q : (tensor<1x64x4x16xf32>) -> tensor<1x64x4x16xf32>
  %ks = nn.silu %k : (tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32>
  %r:4 = nsa.rotary_attention %qs, %kc, %vc, %ks rotary %t visible(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<64x8x2xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>)
  %w, %lw = nsa.window_attention %r#2, %r#3, %k {window = 6 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>) -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  return %r#0, %w : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>
}
