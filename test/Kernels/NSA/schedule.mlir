// RUN: nsa-opt --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse %s | FileCheck %s
// RUN: nsa-opt --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse --nsa-assign-layouts --remarks-filter="nsa-assign-layouts" -o /dev/null %s 2>&1 | FileCheck %s --check-prefix=REMARKS
// RUN: nsa-opt --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse %s | FileCheck %s --check-prefix=HOPPER

// Attention for a GPU: sizes that tensor cores multiply, and work for all
// multiprocessors.

// REMARKS-DAG: Function=window_attention_backward_dq_{{.*}}"3 of 3 dots on tensor cores, 4 M-tiles of 16 rows for 4 warps
// REMARKS-DAG: Function=window_attention_backward_dkdv_{{.*}}"4 of 4 dots on tensor cores, 1 M-tiles
// REMARKS-DAG: Function=compressed_attention_{{.*}}"2 of 2 dots on tensor cores, 4 M-tiles of 16 rows for 4 warps
// REMARKS-DAG: Function=selected_attention_backward_dq_{{.*}}"3 of 3 dots on tensor cores, 3 M-tiles of 16 rows for 3 warps
// REMARKS-DAG: Function=selected_attention_backward_dkdv_{{.*}}"4 of 4 dots on tensor cores, 4 M-tiles of 16 rows for 4 warps
// REMARKS-DAG: Function=select_{{.*}}"4 of 4 dots on tensor cores, 4 M-tiles of 16 rows for 4 warps
// REMARKS-NOT: no multiple of

// Too few key tiles of 64 for all multiprocessors: programs of 16 keys, but 64
// where a warpgroup multiplies as many.
// CHECK-LABEL: tile.kernel private @window_attention_backward_dkdv_
// CHECK-SAME: grid = array<i32: 32, 2, 1>
// CHECK: tile.dot {{.*}} !tile.tile<16x64xbf16>, !tile.tile<64x64xbf16>
// HOPPER-LABEL: tile.kernel private @window_attention_backward_dkdv_
// HOPPER-SAME: grid = array<i32: 8, 2, 1>
// HOPPER: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<64x64xbf16>
func.func @window(%do: tensor<1x512x12x64xbf16>, %q: tensor<1x512x12x64xbf16>, %k: tensor<1x512x2x64xbf16>, %lse: tensor<1x12x512xf32>)
    -> (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>) {
  %dq, %dk, %dv = nsa.window_attention_backward %do, %q, %k, %k, %q, %lse {window = 256 : i64}
      : (tensor<1x512x12x64xbf16>, tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>)
      -> (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>)
  return %dq, %dk, %dv : tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>
}

// 31 compressed keys are two tiles of 16 for a CPU, one of 32 here. The last of
// the eight tiles of queries, which sees the most keys, comes first for all heads.
// CHECK-LABEL: tile.kernel private @compressed_attention_
// CHECK: %[[LAST:.+]] = arith.constant 7 : i32
// CHECK: %[[P:.+]] = tile.program_id 2
// CHECK: arith.subi %[[LAST]], %[[P]]
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<32x64xbf16>
// Two warpgroups share a tile of keys.
// HOPPER-LABEL: tile.kernel private @compressed_attention_
// HOPPER-SAME: grid = array<i32: 12, 1, 4>
// HOPPER: tile.dot {{.*}} !tile.tile<128x64xbf16>, !tile.tile<32x64xbf16>
func.func @compressed(%q: tensor<1x512x12x64xbf16>, %k: tensor<1x31x2x64xbf16>) -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>) {
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 32 : i64, stride = 16 : i64}
      : (tensor<1x512x12x64xbf16>, tensor<1x31x2x64xbf16>, tensor<1x31x2x64xbf16>) -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>)
  return %o, %lse : tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>
}

// Programs have 512 queries each. The first launch counts how many of these
// selected each of eight blocks at a time; from the sums of those before it a
// program of the second one knows where its queries go, and within a tile from
// the number of those above, which is a dot.
// CHECK-LABEL: tile.kernel private @selected_attention_backward_counts_
// CHECK-SAME: %[[INDICES:.+]]: memref<1x2x512x4xi32>, %[[COUNTS:.+]]: memref<1x2x1x8xi32>)
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK: tile.load %[[INDICES]]{{.*}} -> !tile.tile<512x4xi32>
// CHECK: scf.for
// CHECK: arith.shli
// CHECK: arith.shrui
// CHECK: tile.reduce add %{{.+}} {axis = 0 : i32} : !tile.tile<512x8xi32>
// CHECK: tile.store %{{.+}}, %[[COUNTS]]
// CHECK-LABEL: tile.kernel private @selected_attention_backward_lists_
// CHECK-SAME: %[[INDICES:.+]]: memref<1x2x512x4xi32>, %[[COUNTS:.+]]: memref<1x2x1x8xi32>, %[[OFFSETS:.+]]: memref<1x2x2x8xi32>, %[[LIST:.+]]: memref<1x2x2048xi32>)
// CHECK-SAME: grid = array<i32: 1, 2, 1>
// CHECK-SAME: nsa.min_blocks = 2
// CHECK: tile.load %[[COUNTS]]
// CHECK: tile.store %{{.+}}, %[[OFFSETS]]
// CHECK: scf.for
// CHECK: tile.load %[[INDICES]]{{.*}} -> !tile.tile<128x4xi32>
// CHECK: tile.dot {{.*}} !tile.tile<128x128xbf16>, !tile.tile<128x8xbf16>
// CHECK: tile.store %{{.+}}, %[[LIST]]

// 8 queries of 6 heads, which iterate over the union of their lists, or 32 where
// warpgroups multiply. Of few blocks, members are marked.
// CHECK-LABEL: tile.kernel private @selection_union_b1s512h12x2d64_s64n4(
// CHECK-SAME: %[[INDICES:.+]]: memref<1x2x512x4xi32>, %[[COUNTS:.+]]: memref<1x2x64xi32>, %[[UNION:.+]]: memref<1x2x64x8xi32>
// CHECK-SAME: grid = array<i32: 64, 2, 1>
// CHECK: tile.load %[[INDICES]]{{.*}} -> !tile.tile<8x4xi32>
// CHECK: arith.shli
// CHECK: tile.reduce max %{{.+}} {axis = 0 : i32} : !tile.tile<8x8xi32>
// CHECK: tile.store %{{.+}}, %[[UNION]]
// CHECK: tile.store %{{.+}}, %[[COUNTS]]
// CHECK-LABEL: tile.kernel private @selected_attention_backward_dq_
// CHECK-SAME: %[[COUNTS:[^:]+]]: memref<1x2x64xi32>, %[[UNION:[^:]+]]: memref<1x2x64x8xi32>,
// CHECK-SAME: grid = array<i32: 64, 2, 1>
// CHECK: %[[NUMBER:.+]] = tile.load %[[COUNTS]]
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %[[NUMBER]]
// CHECK-NEXT: tile.load %[[UNION]][%{{.+}}, %{{.+}}, %{{.+}}, %[[I]]]
// CHECK-NOT: tile.any
// CHECK: tile.dot {{.*}} !tile.tile<48x64xbf16>, !tile.tile<64x64xbf16>
// HOPPER-LABEL: tile.kernel private @selected_attention_backward_dq_
// HOPPER-SAME: grid = array<i32: 16, 2, 1>
// HOPPER: tile.dot {{.*}} !tile.tile<192x64xbf16>, !tile.tile<64x64xbf16>
// CHECK-LABEL: tile.kernel private @selected_attention_backward_dkdv_
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<48x64xbf16>
func.func @selected(%do: tensor<1x512x12x64xbf16>, %q: tensor<1x512x12x64xbf16>, %k: tensor<1x512x2x64xbf16>, %lse: tensor<1x12x512xf32>, %indices: tensor<1x2x512x4xi32>)
    -> (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>) {
  %dq, %dk, %dv = nsa.selected_attention_backward %do, %q, %k, %k, %q, %lse, %indices
      {nsa.schedules = {selected_query_grad = [#nsa.schedule]}, select_block = 64 : i64}
      : (tensor<1x512x12x64xbf16>, tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>, tensor<1x2x512x4xi32>)
      -> (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>)
  return %dq, %dk, %dv : tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>
}

// One query of 16 heads in a long sequence iterates over its own list, of as many
// blocks as it sees at most.
// CHECK-NOT: union
// CHECK-LABEL: tile.kernel private @selected_attention_b1s1024h16x1d16_s16n4_bf16(
// CHECK-SAME: %[[INDICES:[^:]+]]: memref<1x1x1024x4xi32>,
// CHECK-SAME: grid = array<i32: 1024, 1, 1>
// CHECK: %[[NUMBER:.+]] = arith.minsi
// CHECK: scf.for %[[I:.+]] = %{{.+}} to %[[NUMBER]]
// CHECK-NEXT: tile.load %[[INDICES]][%{{.+}}, %{{.+}}, %{{.+}}, %[[I]]]
func.func @alone(%q: tensor<1x1024x16x16xbf16>, %k: tensor<1x1024x1x16xbf16>, %indices: tensor<1x1x1024x4xi32>) -> tensor<1x1024x16x16xbf16> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x1024x16x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1x1024x4xi32>) -> (tensor<1x1024x16x16xbf16>, tensor<1x16x1024xf32>)
  return %o : tensor<1x1024x16x16xbf16>
}

// Two queries of 8 heads have short lists of many blocks: entries are compared.
// CHECK-LABEL: tile.kernel private @selection_union_b1s1024h8x1d16_s16n4(
// CHECK-SAME: %[[INDICES:[^:]+]]: memref<1x1x1024x4xi32>, %[[COUNTS:[^:]+]]: memref<1x1x512xi32>, %[[UNION:[^:]+]]: memref<1x1x512x8xi32>
// CHECK-SAME: grid = array<i32: 512, 1, 1>
// CHECK-NOT: arith.shli
// CHECK: tile.load %[[INDICES]]{{.*}} -> !tile.tile<1x8xi32>
// CHECK: tile.load %[[INDICES]]{{.*}} -> !tile.tile<64x1xi32>
// CHECK: tile.store %{{.+}}, %[[UNION]]
// CHECK: tile.store %{{.+}}, %[[COUNTS]]
func.func @pairs(%q: tensor<1x1024x8x16xbf16>, %k: tensor<1x1024x1x16xbf16>, %indices: tensor<1x1x1024x4xi32>) -> tensor<1x1024x8x16xbf16> {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x1024x8x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1024x1x16xbf16>, tensor<1x1x1024x4xi32>) -> (tensor<1x1024x8x16xbf16>, tensor<1x8x1024xf32>)
  return %o : tensor<1x1024x8x16xbf16>
}

// 33 compressed blocks overlap 8 selection blocks: 48 columns. The scores are a
// dot of three parts of the probabilities, the first of them apart.
// CHECK-LABEL: tile.kernel private @select_
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<48x64xbf16>
// CHECK: %[[HIGH:.+]] = tile.dot {{.*}} !tile.tile<64x48xbf16>, !tile.tile<48x8xbf16>
// CHECK: %[[MIDDLE:.+]] = tile.dot
// CHECK: %[[LOW:.+]] = tile.dot %{{.+}}, %{{.+}}, %[[MIDDLE]]
// CHECK: tile.map (%[[HIGH]], %[[LOW]] :
// CHECK: tile.top_n {{.*}} !tile.tile<64x8xf32>, !tile.tile<64x4xf32>
func.func @select(%q: tensor<1x512x12x64xbf16>, %k: tensor<1x31x2x64xbf16>, %lse: tensor<1x12x512xf32>) -> tensor<1x2x512x4xi32> {
  %indices = nsa.select %q, %k, %lse {block = 32 : i64, stride = 16 : i64, select_block = 64 : i64, count = 4 : i64}
      : (tensor<1x512x12x64xbf16>, tensor<1x31x2x64xbf16>, tensor<1x12x512xf32>) -> tensor<1x2x512x4xi32>
  return %indices : tensor<1x2x512x4xi32>
}

// A weight of 128 x 128 is multiplied in two slices: shared memory holds no
// more of it at once.
// CHECK-LABEL: tile.kernel private @compress_linear_
// CHECK: scf.for %[[N:.*]] = %{{.*}} to %c64_i32
// CHECK: %[[R:.*]] = arith.floordivsi %[[N]], %c2_i32
// CHECK: tile.load %arg0{{.*}} -> !tile.tile<64x64xbf16>
// CHECK: tile.load %arg1{{.*}} -> !tile.tile<64x128xbf16>
// CHECK: tile.dot {{.*}} !tile.tile<64x64xbf16>, !tile.tile<64x128xbf16>
func.func @slices(%x: tensor<1x64x1x128xbf16>, %w: tensor<1x4096x128xbf16>) -> tensor<1x3x1x128xbf16> {
  %y = nsa.compress linear %x, %w {block = 32 : i64, stride = 16 : i64}
      : (tensor<1x64x1x128xbf16>, tensor<1x4096x128xbf16>) -> tensor<1x3x1x128xbf16>
  return %y : tensor<1x3x1x128xbf16>
}
