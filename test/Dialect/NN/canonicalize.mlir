// RUN: nsa-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @cast_to_same_type
func.func @cast_to_same_type(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: return %arg0
  %y = nn.cast %x to f32 : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// CHECK-LABEL: func.func @cast_wider_and_back
func.func @cast_wider_and_back(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  // CHECK-NEXT: return %arg0
  %y = nn.cast %x to f32 : (tensor<4xbf16>) -> tensor<4xf32>
  %z = nn.cast %y to bf16 : (tensor<4xf32>) -> tensor<4xbf16>
  return %z : tensor<4xbf16>
}

// Rounding is not undone.
// CHECK-LABEL: func.func @cast_narrower_and_back
func.func @cast_narrower_and_back(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-COUNT-2: nn.cast
  %y = nn.cast %x to bf16 : (tensor<4xf32>) -> tensor<4xbf16>
  %z = nn.cast %y to f32 : (tensor<4xbf16>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// CHECK-LABEL: func.func @split_of_merge
func.func @split_of_merge(%x: tensor<1x8x4x12xf32>) -> tensor<1x8x4x12xf32> {
  // CHECK-NEXT: return %arg0
  %y = nn.merge_heads %x : (tensor<1x8x4x12xf32>) -> tensor<1x8x48xf32>
  %z = nn.split_heads %y {heads = 4 : i64} : (tensor<1x8x48xf32>) -> tensor<1x8x4x12xf32>
  return %z : tensor<1x8x4x12xf32>
}

// Another number of heads is another value.
// CHECK-LABEL: func.func @split_differently
func.func @split_differently(%x: tensor<1x8x4x12xf32>) -> tensor<1x8x2x24xf32> {
  // CHECK: nn.split_heads
  %y = nn.merge_heads %x : (tensor<1x8x4x12xf32>) -> tensor<1x8x48xf32>
  %z = nn.split_heads %y {heads = 2 : i64} : (tensor<1x8x48xf32>) -> tensor<1x8x2x24xf32>
  return %z : tensor<1x8x2x24xf32>
}

// CHECK-LABEL: func.func @merge_of_split
func.func @merge_of_split(%x: tensor<1x8x48xf32>) -> tensor<1x8x48xf32> {
  // CHECK-NEXT: return %arg0
  %y = nn.split_heads %x {heads = 4 : i64} : (tensor<1x8x48xf32>) -> tensor<1x8x4x12xf32>
  %z = nn.merge_heads %y : (tensor<1x8x4x12xf32>) -> tensor<1x8x48xf32>
  return %z : tensor<1x8x48xf32>
}

// CHECK-LABEL: func.func @add_zero
func.func @add_zero(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: return %arg0, %arg0
  %zero = nn.fill 0.0 : tensor<4xf32>
  %y = nn.add %x, %zero : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %z = nn.add %zero, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @add_one
func.func @add_one(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: nn.add
  %one = nn.fill 1.0 : tensor<4xf32>
  %y = nn.add %x, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// CHECK-LABEL: func.func @split_of_concat
func.func @split_of_concat(%x: tensor<2x3xf32>, %y: tensor<2x1xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>) {
  // CHECK-NEXT: return %arg0, %arg1
  %z = nn.concat %x, %y : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %a, %b = nn.split %z {sizes = array<i64: 3, 1>} : (tensor<2x4xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>)
  return %a, %b : tensor<2x3xf32>, tensor<2x1xf32>
}

// Other parts are other values.
// CHECK-LABEL: func.func @split_of_concat_elsewhere
func.func @split_of_concat_elsewhere(%x: tensor<2x3xf32>, %y: tensor<2x1xf32>) -> (tensor<2x1xf32>, tensor<2x3xf32>) {
  // CHECK: nn.split
  %z = nn.concat %x, %y : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %a, %b = nn.split %z {sizes = array<i64: 1, 3>} : (tensor<2x4xf32>) -> (tensor<2x1xf32>, tensor<2x3xf32>)
  return %a, %b : tensor<2x1xf32>, tensor<2x3xf32>
}

// CHECK-LABEL: func.func @concat_of_split
func.func @concat_of_split(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  // CHECK-NEXT: return %arg0
  %a, %b = nn.split %x {rows, sizes = array<i64: 3, 1>} : (tensor<4x2xf32>) -> (tensor<3x2xf32>, tensor<1x2xf32>)
  %y = nn.concat %a, %b {rows} : (tensor<3x2xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// CHECK-LABEL: func.func @concat_of_split_exchanged
func.func @concat_of_split_exchanged(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  // CHECK: nn.concat
  %a, %b = nn.split %x {sizes = array<i64: 1, 1>} : (tensor<4x2xf32>) -> (tensor<4x1xf32>, tensor<4x1xf32>)
  %y = nn.concat %b, %a : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// CHECK-LABEL: func.func @one_part
func.func @one_part(%x: tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  // CHECK-NEXT: return %arg0, %arg0
  %a = nn.split %x {sizes = array<i64: 2>} : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %b = nn.concat %x : (tensor<4x2xf32>) -> tensor<4x2xf32>
  return %a, %b : tensor<4x2xf32>, tensor<4x2xf32>
}
