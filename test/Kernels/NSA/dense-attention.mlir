// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse --split-input-file | FileCheck %s

// Query t sees exactly the keys t-w < i <= t. Only tiles that some query of the
// program sees are visited: from t0-w+1 to the last query.

// CHECK-LABEL: tile.kernel private @window_attention_b1s130h2x1d16_w32_f32
// CHECK-SAME: grid = array<i32: 5, 2, 1>
// CHECK-DAG: %[[W:.+]] = arith.constant 32 : i32
// CHECK-DAG: %[[HIDDEN:.+]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[STEP:.+]] = arith.constant 8.000000e+00 : f32
// CHECK-DAG: %[[MINUS31:.+]] = arith.constant -31 : i32
// CHECK: %[[T:.+]] = tile.range %[[T0:.+]] : !tile.tile<32x1xi32>
// CHECK: %[[END:.+]] = arith.minsi
// CHECK: %[[BEGIN:.+]] = arith.addi %[[T0]], %[[MINUS31]] : i32
// CHECK: %[[FIRST:.+]] = arith.maxsi %[[BEGIN]],
// CHECK: scf.for %[[I0:.+]] = %[[FIRST]] to
// CHECK: %[[I:.+]] = tile.range %[[I0]] : !tile.tile<1x32xi32>
// CHECK: tile.dot {{.*}} {transpose_b}
// CHECK: %[[SCORES:.+]] = tile.map (%{{.+}}, %[[T]], %[[I]] :
// CHECK-NEXT: ^bb0(%[[S:.+]]: f32, %[[TE:.+]]: i32, %[[IE:.+]]: i32):
// CHECK: %[[PAST:.+]] = arith.cmpi sle, %[[IE]], %[[TE]] : i32
// CHECK: %[[OLD:.+]] = arith.subi %[[TE]], %[[W]] : i32
// CHECK: %[[NEAR:.+]] = arith.cmpi sgt, %[[IE]], %[[OLD]] : i32
// CHECK: %[[VISIBLE:.+]] = arith.andi %[[PAST]], %[[NEAR]] : i1
// CHECK: arith.select %[[VISIBLE]], %{{.+}}, %[[HIDDEN]]
// The exponent is relative to a maximum over all keys so far, row by row, which
// stays where scores exceed it by less than 8, and never to -inf.
// CHECK: %[[BLOCKMAX:.+]] = tile.reduce max %[[SCORES]] {axis = 1 : i32}
// CHECK: tile.map (%{{.+}}, %[[BLOCKMAX]] :
// CHECK-NEXT: ^bb0(%[[OLDMAX:.+]]: f32, %[[MOST:.+]]: f32):
// CHECK-NEXT: %[[NEWMAX:.+]] = arith.mulf %[[MOST]],
// CHECK-NEXT: %[[ABOVE:.+]] = arith.addf %[[OLDMAX]], %[[STEP]]
// CHECK-NEXT: %[[LARGER:.+]] = arith.cmpf ogt, %[[NEWMAX]], %[[ABOVE]]
// CHECK-NEXT: arith.select %[[LARGER]], %[[NEWMAX]], %[[OLDMAX]]
// CHECK: arith.cmpf oeq, %{{.+}}, %[[HIDDEN]]
// CHECK: tile.return
func.func @window(%q: tensor<1x130x2x16xf32>, %k: tensor<1x130x1x16xf32>) -> tensor<1x130x2x16xf32> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 32 : i64}
      : (tensor<1x130x2x16xf32>, tensor<1x130x1x16xf32>, tensor<1x130x1x16xf32>) -> (tensor<1x130x2x16xf32>, tensor<1x2x130xf32>)
  return %o : tensor<1x130x2x16xf32>
}

// -----

// Compressed block i is visible from its own last token on: i*4 + 7 <= t.

// CHECK-LABEL: tile.kernel private @compressed_attention_b1s64h2x1d16_l8d4_f32
// CHECK-DAG: %[[STRIDE:.+]] = arith.constant 4 : i32
// CHECK-DAG: %[[LAST:.+]] = arith.constant 7 : i32
// CHECK: ^bb0(%{{.+}}: f32, %[[TE:.+]]: i32, %[[IE:.+]]: i32):
// CHECK: %[[START:.+]] = arith.muli %[[IE]], %[[STRIDE]] : i32
// CHECK: %[[OWN:.+]] = arith.addi %[[START]], %[[LAST]] : i32
// CHECK: arith.cmpi sle, %[[OWN]], %[[TE]] : i32
func.func @compressed(%q: tensor<1x64x2x16xf32>, %k: tensor<1x15x1x16xf32>) -> tensor<1x64x2x16xf32> {
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<1x15x1x16xf32>, tensor<1x15x1x16xf32>) -> (tensor<1x64x2x16xf32>, tensor<1x2x64xf32>)
  return %o : tensor<1x64x2x16xf32>
}

// -----

// A sequence shorter than a block has no compressed row, but a launch.

// CHECK-LABEL: func.func @nothing
// CHECK: tile.launch @compressed_attention_b1s7h2x1d16_l8d8_f32
// CHECK: tile.kernel private @compressed_attention_b1s7h2x1d16_l8d8_f32
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK: tile.kernel private @compressed_attention_backward_dkdv_b1s7h2x1d16_l8d8_f32
// CHECK-SAME: grid = array<i32: 1, 1, 1>
func.func @nothing(%do: tensor<1x7x2x16xf32>, %q: tensor<1x7x2x16xf32>, %k: tensor<1x0x1x16xf32>) -> (tensor<1x7x2x16xf32>, tensor<1x0x1x16xf32>) {
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x7x2x16xf32>, tensor<1x0x1x16xf32>, tensor<1x0x1x16xf32>) -> (tensor<1x7x2x16xf32>, tensor<1x2x7xf32>)
  %dq, %dk, %dv = nsa.compressed_attention_backward %do, %q, %k, %k, %o, %lse {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x7x2x16xf32>, tensor<1x7x2x16xf32>, tensor<1x0x1x16xf32>, tensor<1x0x1x16xf32>, tensor<1x7x2x16xf32>, tensor<1x2x7xf32>)
      -> (tensor<1x7x2x16xf32>, tensor<1x0x1x16xf32>, tensor<1x0x1x16xf32>)
  return %dq, %dk : tensor<1x7x2x16xf32>, tensor<1x0x1x16xf32>
}

// -----

// Backward recomputes P from lse. do . o is taken once per row, by the kernel of
// dq, and handed to that of dk and dv, which adds heads and queries in a fixed
// order. P and dS are rounded to the compute type as operands only. Exponents
// relative to an lse, which has been rounded, are rounded once.

// CHECK-LABEL: func.func @backward(
// CHECK: %[[DQ:.+]]:2 = tile.launch @window_attention_backward_dq_b1s64h4x2d16x32_w32_bf16(
// CHECK-SAME: -> (tensor<1x64x4x16xbf16>, tensor<1x4x64xf32>)
// CHECK: tile.launch @window_attention_backward_dkdv_b1s64h4x2d16x32_w32_bf16({{.+}}, %[[DQ]]#1)

// CHECK-LABEL: tile.kernel private @window_attention_backward_dq
// CHECK-SAME: num_outputs = 2 : i32
// CHECK: tile.reduce add
// CHECK: tile.store
// CHECK: scf.for
// CHECK: %[[EXPONENT:.+]] = math.fma
// CHECK: %[[P:.+]] = math.exp2 %[[EXPONENT]]
// CHECK-NEXT: arith.select %{{.+}}, %[[P]], %{{.+}} : f32
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: tile.dot {{.*}} : !tile.tile<32x32xbf16>, !tile.tile<32x16xbf16>, !tile.tile<32x16xf32>

// CHECK-LABEL: tile.kernel private @window_attention_backward_dkdv
// CHECK-SAME: grid = array<i32: 2, 2, 1>
// CHECK: scf.for %[[HEAD:.+]] = %{{.+}} to %{{.+}} step %{{.+}} iter_args
// CHECK: scf.for %[[T0:.+]] = %{{.+}} to %{{.+}} step
// CHECK: tile.load %{{.+}}[%{{.+}}, %{{.+}}, %[[HEAD]], %{{.+}}]
// CHECK: tile.dot {{.*}} {transpose_b} : !tile.tile<32x16xbf16>, !tile.tile<32x16xbf16>, !tile.tile<32x32xf32>
// CHECK: tile.dot {{.*}} : !tile.tile<32x32xbf16>, !tile.tile<32x32xbf16>, !tile.tile<32x32xf32>
func.func @backward(%do: tensor<1x64x4x32xbf16>, %q: tensor<1x64x4x16xbf16>, %k: tensor<1x64x2x16xbf16>, %v: tensor<1x64x2x32xbf16>, %o: tensor<1x64x4x32xbf16>, %lse: tensor<1x4x64xf32>)
    -> (tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x32xbf16>) {
  %dq, %dk, %dv = nsa.window_attention_backward %do, %q, %k, %v, %o, %lse {window = 32 : i64}
      : (tensor<1x64x4x32xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x32xbf16>, tensor<1x64x4x32xbf16>, tensor<1x4x64xf32>)
      -> (tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x32xbf16>)
  return %dq, %dk, %dv : tensor<1x64x4x16xbf16>, tensor<1x64x2x16xbf16>, tensor<1x64x2x32xbf16>
}
