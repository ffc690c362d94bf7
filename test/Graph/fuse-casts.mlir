// RUN: nsa-opt %s --nsa-fuse | FileCheck %s
// RUN: nsa-opt %s --nsa-fuse --remarks-filter-missed=nsa-fuse -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// One cast of all parameters, before the first that is needed; views of
// several parameters count as one. Activations are cast where they are.
// CHECK-LABEL: func.func @parameters
// CHECK: %[[B:.*]] = nn.flatten %arg1, %arg2 in ["v", "u"]
// CHECK-NEXT: %[[C:.*]]:2 = nn.cast_all %arg0, %[[B]] to bf16 : (tensor<4x8xf32>, tensor<48xf32>) -> (tensor<4x8xbf16>, tensor<48xbf16>)
// CHECK-NEXT: %[[X:.*]] = nn.cast %arg3 to bf16
// CHECK-NEXT: nn.matmul %[[X]], %[[C]]#0
// CHECK: return %{{.*}}, %[[C]]#1
func.func @parameters(%w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"}, %v: tensor<4x8xf32> {nn.name = "v", nn.role = "parameter"},
    %u: tensor<8xf32> {nn.name = "u", nn.role = "parameter"}, %x: tensor<2x4xf32> {nn.name = "x", nn.role = "input"})
    -> (tensor<2x8xbf16>, tensor<48xbf16>) {
  %wb = nn.cast %w to bf16 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %xb = nn.cast %x to bf16 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
  %y = nn.matmul %xb, %wb : (tensor<2x4xbf16>, tensor<4x8xbf16>) -> tensor<2x8xbf16>
  %b = nn.flatten %v, %u in ["v", "u"] : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<48xf32>
  %vb = nn.cast %b to bf16 : (tensor<48xf32>) -> tensor<48xbf16>
  return %y, %vb : tensor<2x8xbf16>, tensor<48xbf16>
}

// CHECK-LABEL: func.func @one
// CHECK-NOT: nn.cast_all
// CHECK: return
func.func @one(%w: tensor<4x8xf32> {nn.name = "w", nn.role = "parameter"}, %x: tensor<2x4xf32>) -> (tensor<4x8xbf16>, tensor<2x4xbf16>) {
  // MISSED: [[@LINE+1]]:{{.*}} [Missed] Casts | Category:nsa-fuse | Function=one | Reason="no other parameter is cast with it"
  %wb = nn.cast %w to bf16 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %xb = nn.cast %x to bf16 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
  return %wb, %xb : tensor<4x8xbf16>, tensor<2x4xbf16>
}
