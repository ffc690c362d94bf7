// RUN: nsa-opt %s --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @forward
func.func @forward(%q: tensor<1x100x4x16xf32>, %k: tensor<1x100x2x16xf32>, %indices: tensor<1x2x100x3xi32>) -> tensor<1x100x4x16xf32> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x100x4x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x2x16xf32>, tensor<1x2x100x3xi32>) -> (tensor<1x100x4x16xf32>, tensor<1x4x100xf32>)
  return %o : tensor<1x100x4x16xf32>
}

// The dense inverse of the indices would have 100 x 7 entries per head; this one
// has 3 per query.

// CHECK-LABEL: func.func @backward
// CHECK: %[[INDEX:.+]]:2 = tile.launch @selected_attention_backward_lists_b1s100h4x2d16_s16n3_f32
// CHECK-SAME: -> (tensor<1x2x9xi32>, tensor<1x2x300xi32>)
// CHECK: %[[DQ:.+]]:2 = tile.launch @selected_attention_backward_dq_b1s100h4x2d16_s16n3_f32
// CHECK: tile.launch @selected_attention_backward_dkdv_b1s100h4x2d16_s16n3_f32({{.+}}, %[[DQ]]#1, %[[INDEX]]#0, %[[INDEX]]#1)
func.func @backward(%do: tensor<1x100x4x16xf32>, %q: tensor<1x100x4x16xf32>, %k: tensor<1x100x2x16xf32>, %v: tensor<1x100x2x16xf32>, %o: tensor<1x100x4x16xf32>, %lse: tensor<1x4x100xf32>, %indices: tensor<1x2x100x3xi32>)
    -> (tensor<1x100x4x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x2x16xf32>) {
  %dq, %dk, %dv = nsa.selected_attention_backward %do, %q, %k, %v, %o, %lse, %indices {select_block = 16 : i64}
      : (tensor<1x100x4x16xf32>, tensor<1x100x4x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x4x16xf32>, tensor<1x4x100xf32>, tensor<1x2x100x3xi32>)
      -> (tensor<1x100x4x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x2x16xf32>)
  return %dq, %dk, %dv : tensor<1x100x4x16xf32>, tensor<1x100x2x16xf32>, tensor<1x100x2x16xf32>
}

// An index is compared with the blocks that exist, never used as an address: -1
// matches none. A row that did not select the block, and keys after the query,
// are masked.

// CHECK-LABEL: tile.kernel private @selected_attention_b1s100h4x2d16_s16n3_f32
// CHECK-SAME: %[[Q:.+]]: memref<1x100x4x16xf32>, %[[K:.+]]: memref<1x100x2x16xf32>, %[[V:.+]]: memref<1x100x2x16xf32>, %[[LISTS:.+]]: memref<1x2x100x3xi32>,
// CHECK-DAG: %[[NONE:.+]] = arith.constant -1 : i32
// CHECK: %[[BLOCKS:.+]] = tile.load %[[LISTS]][{{.+}} -> !tile.tile<16x3xi32>
// CHECK: %[[OFQUERIES:.+]] = tile.load %[[LISTS]][{{.+}} -> !tile.tile<8x3xi32>
// CHECK: scf.for %[[U0:.+]] = %{{.+}} to
// CHECK: %[[BLOCK:.+]] = arith.divsi %[[U0]],
// CHECK: %[[LISTED:.+]] = tile.map (%[[OFQUERIES]] :
// CHECK-NEXT: ^bb0(%[[INDEX:.+]]: i32):
// CHECK-NEXT: arith.cmpi eq, %[[INDEX]], %[[BLOCK]]
// CHECK: %[[ANY:.+]] = tile.any %[[LISTED]]
// CHECK: scf.if %[[ANY]]
// CHECK: tile.map (%[[BLOCKS]] :
// CHECK-NEXT: ^bb0(%[[ENTRY:.+]]: i32):
// CHECK-NEXT: arith.cmpi eq, %[[ENTRY]], %[[BLOCK]]
// CHECK: %[[SELECTED:.+]] = tile.reduce max
// CHECK: tile.load %[[K]][
// CHECK: tile.load %[[V]][
// CHECK: %[[LASTKEY:.+]] = tile.map (%[[SELECTED]], %{{.+}} :
// CHECK: arith.select %{{.+}}, %{{.+}}, %[[NONE]] : i32
// CHECK: %[[U:.+]] = tile.range %[[U0]] : !tile.tile<1x16xi32>
// CHECK: tile.map (%{{.+}}, %[[LASTKEY]], %[[U]] :
// CHECK-NEXT: ^bb0(%{{.+}}: f32, %[[LIMIT:.+]]: i32, %[[KEY:.+]]: i32):
// CHECK-NEXT: arith.cmpi sle, %[[KEY]], %[[LIMIT]]

// A counting sort in which padding takes no part.

// CHECK-LABEL: tile.kernel private @selected_attention_backward_lists
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK: %[[ENTRY:.+]] = tile.load
// CHECK-NEXT: %[[EXISTS:.+]] = arith.cmpi sge, %[[ENTRY]], %{{.+}}
// CHECK-NEXT: scf.if %[[EXISTS]]

// Queries of a block are gathered; those past the end of its list read as 0.

// CHECK-LABEL: tile.kernel private @selected_attention_backward_dkdv
// CHECK-SAME: grid = array<i32: 7, 2, 1>
// CHECK-DAG: %[[OUTSIDE:.+]] = arith.constant 100 : i32
// CHECK: tile.load %{{.+}} -> i32
// CHECK: %[[END:.+]] = tile.load %{{.+}} -> i32
// CHECK: scf.for %{{.+}} = %{{.+}} to %[[END]]
// CHECK: %[[INLIST:.+]] = arith.cmpi slt, %{{.+}}, %[[END]]
// CHECK: arith.select %[[INLIST]], %{{.+}}, %[[OUTSIDE]]
