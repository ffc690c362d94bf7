// RUN: nsa-opt --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse --split-input-file %s | FileCheck %s

// Tensor cores add 16 products at once: heads of 24 have tiles of 32 columns.
// The rows that a matrix lacks are not those of the next token's.

// CHECK-LABEL: tile.kernel private @compress_backward_dw_linear
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK: tile.dot %{{.+}}, %{{.+}}, %{{.+}} {transpose_a} : {{.+}}<64x32xbf16>, {{.+}}<64x32xbf16>, {{.+}}<32x32xf32>
// CHECK: %[[ROWS:.+]] = tile.map (%{{.+}} : !tile.tile<32x1xi32>) -> !tile.tile<32x1xi32>
// CHECK: arith.cmpi slt, %{{.+}}, %c24_i32
// CHECK: arith.select %{{.+}}, %{{.+}}, %c-1_i32
// CHECK: tile.store %{{.+}}, %arg2[%{{.+}}, %[[ROWS]], %{{.+}}]
func.func @narrow(%dy: tensor<1x255x2x24xbf16>, %x: tensor<1x1024x2x24xbf16>, %w: tensor<2x192x24xbf16>)
    -> (tensor<1x1024x2x24xbf16>, tensor<2x192x24xf32>) {
  %dx, %dw = nsa.compress_backward linear %dy, %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x255x2x24xbf16>, tensor<1x1024x2x24xbf16>, tensor<2x192x24xbf16>) -> (tensor<1x1024x2x24xbf16>, tensor<2x192x24xf32>)
  return %dx, %dw : tensor<1x1024x2x24xbf16>, tensor<2x192x24xf32>
}

// -----

// Registers hold half of the columns of heads of 256: two programs share the
// gradient of a token, four that of a matrix. Tiles of a short sequence are
// whole, too.

// CHECK-LABEL: tile.kernel private @compress_backward_dx_linear
// CHECK-SAME: grid = array<i32: 8, 2, 1>
// CHECK: tile.dot {{.+}} {transpose_b} : {{.+}}<64x64xbf16>, {{.+}}<128x64xbf16>, {{.+}}<64x128xf32>
// CHECK-LABEL: tile.kernel private @compress_backward_dw_linear
// CHECK-SAME: grid = array<i32: 32, 2, 1>
// CHECK: tile.dot {{.+}} {transpose_a} : {{.+}}<64x128xbf16>, {{.+}}<64x128xbf16>, {{.+}}<128x128xf32>
func.func @wide(%dy: tensor<1x3x2x256xbf16>, %x: tensor<1x16x2x256xbf16>, %w: tensor<2x2048x256xbf16>)
    -> (tensor<1x16x2x256xbf16>, tensor<2x2048x256xf32>) {
  %dx, %dw = nsa.compress_backward linear %dy, %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x3x2x256xbf16>, tensor<1x16x2x256xbf16>, tensor<2x2048x256xbf16>) -> (tensor<1x16x2x256xbf16>, tensor<2x2048x256xf32>)
  return %dx, %dw : tensor<1x16x2x256xbf16>, tensor<2x2048x256xf32>
}
