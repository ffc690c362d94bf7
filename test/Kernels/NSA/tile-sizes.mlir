// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=forward-queries=64,forward-keys=48" --canonicalize --cse | FileCheck %s --check-prefix=FORWARD
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=backward-queries=32,backward-keys=16" --canonicalize --cse | FileCheck %s --check-prefix=BACKWARD
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=selected-queries=9,selected-keys=40,gathered-queries=5" --canonicalize --cse | FileCheck %s --check-prefix=SELECTED
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=select-queries=16,select-blocks=3" --canonicalize --cse | FileCheck %s --check-prefix=SELECT
// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=forward-queries=64,forward-keys=48" --canonicalize --cse | sed "/func.func/,/^  }/d" | nsa-opt --nsa-assign-layouts=wgmma | FileCheck %s --check-prefix=LAYOUT
// RUN: not nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-convert-to-tile="tile-size=forward-queries=40" -o /dev/null 2>&1 | FileCheck %s --check-prefix=MULTIPLE
// RUN: not nsa-opt %s --nsa-convert-to-tile="tile-size=select-blocks=257" -o /dev/null 2>&1 | FileCheck %s --check-prefix=MOST
// RUN: not nsa-opt %s --nsa-convert-to-tile="tile-size=selected-keys=-1" -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: nsa-opt %s --nsa-convert-to-tile="tile-size=forward-queries=40" | FileCheck %s --check-prefix=CPU

// MULTIPLE: error: tile size forward-queries is 40, no multiple of the machine's 16
// MOST: error: tile size select-blocks is 257, expected 1 to 256, or 0 to choose
// NEGATIVE: error: tile size 'selected-keys=-1' is not selected-keys=SIZE with a positive number
// CPU: tile.kernel {{.*}}@window_attention_b1s320h4x2d64_w256_bf16
// CPU-SAME: grid = array<i32: 8, 4, 1>

// FORWARD-LABEL: tile.kernel private @window_attention_b1s320h4x2d64_w256_bf16
// FORWARD-SAME: grid = array<i32: 4, 1, 5>
// FORWARD: tile.load {{.*}}tile<64x64xbf16
// FORWARD: tile.load {{.*}}tile<48x64xbf16
// LAYOUT-LABEL: tile.kernel private @window_attention_b1s320h4x2d64_w256_bf16
// LAYOUT: tile.dot {{.*}}tile<64x48xf32, #tile.mma
func.func @window(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>) -> tensor<1x320x4x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>) -> (tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>)
  return %o : tensor<1x320x4x64xbf16>
}

// Programs of dq take queries and iterate over keys, those of dk and dv take keys
// and iterate over queries.
// BACKWARD-LABEL: tile.kernel private @window_attention_backward_dq_
// BACKWARD-SAME: grid = array<i32: 4, 1, 10>
// BACKWARD: tile.load {{.*}}tile<32x64xbf16
// BACKWARD: scf.for
// BACKWARD: tile.load {{.*}}tile<16x64xbf16
// BACKWARD-LABEL: tile.kernel private @window_attention_backward_dkdv_
// BACKWARD-SAME: grid = array<i32: 2, 1, 20>
// BACKWARD: tile.load {{.*}}tile<16x64xbf16
// BACKWARD: scf.for
// BACKWARD: tile.load {{.*}}tile<32x64xbf16
func.func @window_backward(%do: tensor<1x320x4x64xbf16>, %q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>, %o: tensor<1x320x4x64xbf16>, %lse: tensor<1x4x320xf32>) -> tensor<1x320x4x64xbf16> {
  %dq, %dk, %dv = nsa.window_attention_backward %do, %q, %k, %k, %o, %lse {window = 256 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>) -> (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>)
  return %dq : tensor<1x320x4x64xbf16>
}

// Tiles of selected keys divide a block of 64; five queries of two heads fill an
// M-tile.
// SELECTED-LABEL: tile.kernel private @selected_attention_b1s320h4x2d64_
// SELECTED-SAME: grid = array<i32: 36, 2, 1>
// SELECTED: tile.load {{.*}}tile<18x64xbf16
// SELECTED: tile.load {{.*}}tile<32x64xbf16
// SELECTED-LABEL: tile.kernel private @selected_attention_backward_dkdv_b1s320h4x2d64_
// SELECTED: arith.constant 10 : i32
// SELECTED: tile.load {{.*}}tile<32x64xbf16
// SELECTED: tile.load {{.*}}tile<16x64xbf16
func.func @selected(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>, %i: tensor<1x2x320x4xi32>, %do: tensor<1x320x4x64xbf16>) -> tensor<1x320x2x64xbf16> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %i {select_block = 64 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x2x320x4xi32>) -> (tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>)
  %dq, %dk, %dv = nsa.selected_attention_backward %do, %q, %k, %k, %o, %lse, %i {select_block = 64 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x4x64xbf16>, tensor<1x4x320xf32>, tensor<1x2x320x4xi32>) -> (tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>)
  return %dk : tensor<1x320x2x64xbf16>
}

// Three blocks of four compressed ones each, and one that begins before: 13 of
// 16 rows.
// SELECT-LABEL: tile.kernel private @select_b1s320h4x2d64_
// SELECT-SAME: grid = array<i32: 2, 1, 20>
// SELECT: tile.dot {{.*}}, !tile.tile<16x16xf32>
func.func @select(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x19x2x64xbf16>, %lse: tensor<1x4x320xf32>) -> tensor<1x2x320x4xi32> {
  %i = nsa.select %q, %k, %lse {block = 32 : i64, stride = 16 : i64, select_block = 64 : i64, count = 4 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x19x2x64xbf16>, tensor<1x4x320xf32>) -> tensor<1x2x320x4xi32>
  return %i : tensor<1x2x320x4xi32>
}
