// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile --canonicalize --cse | sed "/func.func/,/^  }/d" | nsa-opt --nsa-assign-layouts=wgmma | FileCheck %s --check-prefix=LAYOUT
// RUN: sed 's/queries = 64, keys = 48/queries = 40, keys = 48/' %s > %t.mlir
// RUN: not nsa-opt %t.mlir --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile -o /dev/null 2>&1 | FileCheck %s --check-prefix=MULTIPLE
// RUN: nsa-opt %t.mlir --nsa-convert-to-tile | FileCheck %s --check-prefix=CPU
// RUN: sed 's/queries = 16, blocks = 3/column_parts = 2/' %s > %t.mlir
// RUN: not nsa-opt %t.mlir --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile -o /dev/null 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: sed 's/blocks = 3/producer = 2/' %s > %t.mlir
// RUN: not nsa-opt %t.mlir --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile -o /dev/null 2>&1 | FileCheck %s --check-prefix=GATHERS
// RUN: sed 's/gathered_queries = 5/gathered_queries = 8, producer = 2/' %s > %t.mlir
// RUN: nsa-opt %t.mlir --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile | FileCheck %s --check-prefix=PRODUCER

// MULTIPLE: mlir:[[#]]:{{.*}} error: 'nsa.attention' op has a schedule of forward with queries = 40, no multiple of the machine's 16
// PARTS: error: 'nsa.select' op has a schedule of select with column_parts = 2, expected 1
// GATHERS: error: 'nsa.select' op has a schedule of select with producer = 2, expected 0 but for lists of selected_key_value_grad on machines with warpgroups
// PRODUCER: tile.kernel {{.*}}@selected_attention_backward_dkdv_{{.*}}nsa.producer = 2 : i64
// CPU: tile.kernel {{.*}}@window_attention_b1s320h4x2d64_w256_bf16
// CPU-SAME: grid = array<i32: 8, 4, 1>

module attributes {nsa.schedules = {
  forward = [#nsa.schedule<queries = 64, keys = 48>],
  query_grad = [#nsa.schedule<queries = 32, keys = 16>],
  key_value_grad = [#nsa.schedule<queries = 32, keys = 16>],
  selected_forward = [#nsa.schedule<selected_queries = 9, selected_keys = 40>],
  selected_key_value_grad = [#nsa.schedule<selected_keys = 40, gathered_queries = 5>],
  select = [#nsa.schedule<queries = 16, blocks = 3>]}} {
// CHECK-LABEL: tile.kernel private @window_attention_b1s320h4x2d64_w256_bf16
// CHECK-SAME: grid = array<i32: 4, 1, 5>
// CHECK: tile.load {{.*}}tile<64x64xbf16
// CHECK: tile.load {{.*}}tile<48x64xbf16
// LAYOUT-LABEL: tile.kernel private @window_attention_b1s320h4x2d64_w256_bf16
// LAYOUT: tile.dot {{.*}}tile<64x48xf32, #tile.mma
func.func @window(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>) -> tensor<1x320x4x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>) -> (tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>)
  return %o : tensor<1x320x4x64xbf16>
}

// Programs of dq take queries and iterate over keys, those of dk and dv take keys
// and iterate over queries.
// CHECK-LABEL: tile.kernel private @window_attention_backward_dq_
// CHECK-SAME: grid = array<i32: 4, 1, 10>
// CHECK: tile.load {{.*}}tile<32x64xbf16
// CHECK: scf.for
// CHECK: tile.load {{.*}}tile<16x64xbf16
// CHECK-LABEL: tile.kernel private @window_attention_backward_dkdv_
// CHECK-SAME: grid = array<i32: 2, 1, 20>
// CHECK: tile.load {{.*}}tile<16x64xbf16
// CHECK: scf.for
// CHECK: tile.load {{.*}}tile<32x64xbf16
func.func @window_backward(%do: tensor<1x320x4x64xbf16>, %q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>, %o: tensor<1x320x4x64xbf16>, %lse: tensor<1x4x320xf32>) -> tensor<1x320x4x64xbf16> {
  %dq, %dk, %dv = nsa.window_attention_backward %do, %q, %k, %k, %o, %lse {window = 256 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>) -> (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>)
  return %dq : tensor<1x320x4x64xbf16>
}

// Tiles of selected keys divide a block of 64; five queries of two heads fill an
// M-tile.
// CHECK-LABEL: tile.kernel private @selected_attention_b1s320h4x2d64_
// CHECK-SAME: grid = array<i32: 36, 2, 1>
// CHECK: tile.load {{.*}}tile<18x64xbf16
// CHECK: tile.load {{.*}}tile<32x64xbf16
// CHECK-LABEL: tile.kernel private @selected_attention_backward_dkdv_b1s320h4x2d64_
// CHECK: arith.constant 10 : i32
// CHECK: tile.load {{.*}}tile<32x64xbf16
// CHECK: tile.load {{.*}}tile<16x64xbf16
func.func @selected(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>, %i: tensor<1x2x320x4xi32>, %do: tensor<1x320x4x64xbf16>) -> tensor<1x320x2x64xbf16> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %i {select_block = 64 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x2x320x4xi32>) -> (tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>)
  %dq, %dk, %dv = nsa.selected_attention_backward %do, %q, %k, %k, %o, %lse, %i {select_block = 64 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>, tensor<1x2x320x4xi32>) -> (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>)
  return %dk : tensor<1x320x2x64xbf16>
}

// Three blocks of four compressed ones each, and one that begins before: 13 of
// 16 rows.
// CHECK-LABEL: tile.kernel private @select_b1s320h4x2d64_
// CHECK-SAME: grid = array<i32: 2, 1, 20>
// CHECK: tile.dot {{.*}}, !tile.tile<16x16xf32>
func.func @select(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x19x2x64xbf16>, %lse: tensor<1x4x320xf32>) -> tensor<1x2x320x4xi32> {
  %i = nsa.select %q, %k, %lse {block = 32 : i64, stride = 16 : i64, select_block = 64 : i64, count = 4 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x19x2x64xbf16>, tensor<1x4x320xf32>) -> tensor<1x2x320x4xi32>
  return %i : tensor<1x2x320x4xi32>
}
}
