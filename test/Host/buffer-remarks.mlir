// RUN: nsa-opt %s --nsa-buffer --remarks-filter-missed=nsa-buffer 2>&1 | FileCheck %s

tile.kernel private @reverse(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c127 = arith.constant 127 : i32
  %i = tile.range %c0 : !tile.tile<1x128xi32>
  %j = tile.range %c127 {step = -1 : i32} : !tile.tile<1x128xi32>
  %v = tile.load %x[%j] : memref<128xf32>, (!tile.tile<1x128xi32>) -> !tile.tile<1x128xf32>
  tile.store %v, %y[%i] : !tile.tile<1x128xf32>, memref<128xf32>, (!tile.tile<1x128xi32>)
  tile.return
}

// CHECK: [[@LINE+3]]:{{.*}} remark: [Missed] InPlace | Category:nsa-buffer | Reason="'s' is updated by a copy: its old value is still needed"
func.func @f(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}) {
  %0 = tile.launch @reverse(%s) : (tensor<128xf32>) -> tensor<128xf32>
  return %0 : tensor<128xf32>
}
