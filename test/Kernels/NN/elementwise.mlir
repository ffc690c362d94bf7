// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --split-input-file | FileCheck %s

// Tensors are flat: 3 tiles of 1024 elements in one program, and every
// coordinate is inside.
// CHECK-LABEL: func.func @silu
// CHECK: tile.launch @silu_n3072_f32(%arg0)
// CHECK: tile.kernel private @silu_n3072_f32(%[[X:.*]]: memref<2x48x32xf32>, %[[Y:.*]]: memref<2x48x32xf32>)
// CHECK-SAME: grid = array<i32: 1, 1, 1>
// CHECK-DAG: %[[FLAT_X:.*]] = tile.view %[[X]] : memref<2x48x32xf32> -> memref<3072xf32>
// CHECK-DAG: %[[FLAT_Y:.*]] = tile.view %[[Y]] : memref<2x48x32xf32> -> memref<3072xf32>
// CHECK: scf.for
// CHECK: %[[I:.*]] = tile.range %{{.*}} : !tile.tile<1x1024xi32>
// CHECK: %[[V:.*]] = tile.load %[[FLAT_X]][%[[I]]]
// CHECK: %[[R:.*]] = tile.map (%[[V]]
// CHECK: math.exp
// CHECK: tile.store %[[R]], %[[FLAT_Y]][%[[I]]]
func.func @silu(%x: tensor<2x48x32xf32>) -> tensor<2x48x32xf32> {
  %y = nn.silu %x : (tensor<2x48x32xf32>) -> tensor<2x48x32xf32>
  return %y : tensor<2x48x32xf32>
}

// -----

// bf16 is storage; the formula is fp32 and rounds once.
// CHECK-LABEL: tile.kernel private @swiglu_backward
// CHECK: tile.map (%{{.*}}, %{{.*}}, %{{.*}} : !tile.tile<1x1024xbf16>, !tile.tile<1x1024xbf16>, !tile.tile<1x1024xbf16>) -> !tile.tile<1x1024xbf16>, !tile.tile<1x1024xbf16>
// CHECK: ^bb0(%[[DY:.*]]: bf16, %{{.*}}: bf16, %{{.*}}: bf16):
// CHECK: arith.extf %[[DY]] : bf16 to f32
// CHECK-COUNT-2: arith.truncf
// CHECK-COUNT-2: tile.store
func.func @swiglu_backward(%dy: tensor<64x32xbf16>, %gate: tensor<64x32xbf16>, %up: tensor<64x32xbf16>)
    -> (tensor<64x32xbf16>, tensor<64x32xbf16>) {
  %dgate, %dup = nn.swiglu_backward %dy, %gate, %up
      : (tensor<64x32xbf16>, tensor<64x32xbf16>, tensor<64x32xbf16>) -> (tensor<64x32xbf16>, tensor<64x32xbf16>)
  return %dgate, %dup : tensor<64x32xbf16>, tensor<64x32xbf16>
}

// -----

// A sum of a value with itself reads one argument, so it is another kernel than
// that of two values.
// CHECK-LABEL: func.func @add
// CHECK: %[[TWICE:.*]] = tile.launch @add_n16_f32(%arg0, %arg0)
// CHECK: tile.launch @[[TWO:add_n16_f32.+]](%[[TWICE]], %arg1)
// CHECK: tile.kernel private @add_n16_f32(%{{.*}}: memref<16xf32>, %{{.*}}: memref<16xf32>, %{{.*}})
// CHECK-COUNT-1: tile.load
// CHECK: tile.store
// CHECK: tile.kernel private @[[TWO]](%[[X:[^:]*]]: memref<16xf32>, %[[Y:[^:]*]]: memref<16xf32>, %{{.*}})
// CHECK: tile.load %[[X]]
// CHECK: tile.load %[[Y]]
func.func @add(%x: tensor<16xf32>, %y: tensor<16xf32>) -> tensor<16xf32> {
  %twice = nn.add %x, %x : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %sum = nn.add %twice, %y : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %sum : tensor<16xf32>
}

// -----

// CHECK-LABEL: tile.kernel private @cast
// CHECK: tile.load %{{.*}} : memref<2048xf32>
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: tile.store %{{.*}} : !tile.tile<1x1024xbf16>
func.func @cast(%x: tensor<64x32xf32>) -> tensor<64x32xbf16> {
  %y = nn.cast %x to bf16 : (tensor<64x32xf32>) -> tensor<64x32xbf16>
  return %y : tensor<64x32xbf16>
}

// -----

// Operations of the same types share a kernel; a large tensor has many
// programs; 40,000 elements are cut into tiles that leave no rest.
// CHECK-LABEL: func.func @add
// CHECK-COUNT-2: tile.launch @add_n40000_f32
// CHECK: tile.kernel private @add_n40000_f32{{.*}}grid = array<i32: 3, 1, 1>
// CHECK: tile.range %{{.*}} : !tile.tile<1x800xi32>
// CHECK-NOT: tile.kernel
func.func @add(%a: tensor<40000xf32>, %b: tensor<40000xf32>) -> tensor<40000xf32> {
  %c = nn.add %a, %b : (tensor<40000xf32>, tensor<40000xf32>) -> tensor<40000xf32>
  %d = nn.add %c, %b : (tensor<40000xf32>, tensor<40000xf32>) -> tensor<40000xf32>
  return %d : tensor<40000xf32>
}

// -----

// Fewer elements than a tile: the ones past the end are not there.
// CHECK-LABEL: tile.kernel private @silu_backward_n5_f32
// CHECK: tile.load %{{.*}} : memref<5xf32>, (!tile.tile<1x16xi32>)
func.func @tiny(%x: tensor<5xf32>) -> tensor<5xf32> {
  %y = nn.silu_backward %x, %x : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}

// -----

// Matmuls, views and fills are no kernels.
// CHECK-LABEL: func.func @stays
// CHECK: nn.matmul
// CHECK: nn.split_heads
// CHECK: nn.merge_heads
// CHECK: nn.fill
// CHECK-NOT: tile.kernel
func.func @stays(%x: tensor<1x8x32xf32>, %i: tensor<1x8x4x8xf32>, %w: tensor<32x48xf32>)
    -> (tensor<1x8x4x12xf32>, tensor<1x8x32xf32>, tensor<4xf32>) {
  %y = nn.matmul %x, %w : (tensor<1x8x32xf32>, tensor<32x48xf32>) -> tensor<1x8x48xf32>
  %h = nn.split_heads %y {heads = 4 : i64} : (tensor<1x8x48xf32>) -> tensor<1x8x4x12xf32>
  %m = nn.merge_heads %i : (tensor<1x8x4x8xf32>) -> tensor<1x8x32xf32>
  %z = nn.fill 0.0 : tensor<4xf32>
  return %h, %m, %z : tensor<1x8x4x12xf32>, tensor<1x8x32xf32>, tensor<4xf32>
}
