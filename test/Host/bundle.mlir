// A flat group is a view of tensors that the plan lays out one after the other.
// RUN: nsa-opt %s --nsa-buffer | FileCheck %s
// RUN: nsa-opt %s --nsa-buffer --nsa-plan | FileCheck %s --check-prefix=PLAN

tile.kernel private @double(%x: memref<32xf32>, %y: memref<32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x32xi32>
  %v = tile.load %x[%i] : memref<32xf32>, (!tile.tile<1x32xi32>) -> !tile.tile<1x32xf32>
  tile.store %v, %y[%i] : !tile.tile<1x32xf32>, memref<32xf32>, (!tile.tile<1x32xi32>)
  tile.return
}

// The one in between is of the same kind, but not in the flat group.
// PLAN: rt.tensor gradient @a : memref<3xf32> {{.*}} at <@persistent, offset = 0, size = 12>
// PLAN: rt.tensor gradient @between : memref<5xf32> {{.*}} at <@persistent, offset = 128, size = 20>
// PLAN: rt.tensor gradient @b : memref<2x4xf32> {{.*}} at <@persistent, offset = 64, size = 32>

// CHECK-LABEL: rt.entry @f
// CHECK: %[[A:.*]] = rt.get @a
// CHECK: %[[IN:.*]] = rt.flat_view [@a, @b] : memref<32xf32>
// CHECK: %[[OUT:.*]] = rt.flat_view [@a, @b] : memref<32xf32>
// CHECK-NEXT: rt.launch @double ins(%[[IN]] : memref<32xf32>) outs(%[[OUT]] : memref<32xf32>)
// CHECK-NOT: rt.copy
// CHECK: rt.fill
// CHECK-NEXT: }
func.func @f(
    %a: tensor<3xf32> {nn.name = "a", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>},
    %between: tensor<5xf32> {nn.name = "between", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>},
    %b: tensor<2x4xf32> {nn.name = "b", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>})
    -> (tensor<3xf32> {nn.alias = "a"}, tensor<5xf32> {nn.alias = "between"}, tensor<2x4xf32> {nn.alias = "b"}) {
  %ab = nn.flatten %a, %b in ["a", "b"] : (tensor<3xf32>, tensor<2x4xf32>) -> tensor<32xf32>
  %doubled = tile.launch @double(%ab) : (tensor<32xf32>) -> tensor<32xf32>
  %a1, %b1 = nn.unflatten %doubled in ["a", "b"] : (tensor<32xf32>) -> (tensor<3xf32>, tensor<2x4xf32>)
  %zero = nn.fill 0.0 : tensor<5xf32>
  return %a1, %zero, %b1 : tensor<3xf32>, tensor<5xf32>, tensor<2x4xf32>
}

// The matmul is added in place only where nothing needs the old value.
// CHECK-LABEL: rt.entry @accumulate
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %[[G:[^ ]*]] {beta = 1.0{{.*}} : f32, transpose_lhs}
// CHECK-NEXT: }
func.func @accumulate(%x: tensor<8x4xf32>, %dy: tensor<8x5xf32>,
    %g: tensor<4x5xf32> {nn.name = "g", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>})
    -> (tensor<4x5xf32> {nn.alias = "g"}) {
  %sum = nn.matmul %x, %dy, %g {transpose_lhs} : (tensor<8x4xf32>, tensor<8x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  return %sum : tensor<4x5xf32>
}

// CHECK-LABEL: rt.entry @by_copy
// CHECK: rt.copy %[[Z:[^ ,]*]], %[[Y:[^ ,]*]] :
// CHECK-NEXT: rt.gemm %{{.*}}, %{{.*}}, %[[Y]] {beta = 1.0
func.func @by_copy(%x: tensor<8x4xf32>, %w: tensor<4x5xf32>, %z: tensor<8x5xf32>) -> tensor<8x5xf32> {
  %y = nn.matmul %x, %w, %z : (tensor<8x4xf32>, tensor<4x5xf32>, tensor<8x5xf32>) -> tensor<8x5xf32>
  return %y : tensor<8x5xf32>
}
