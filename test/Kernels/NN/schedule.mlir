// RUN: nsa-opt --nsa-convert-to-tile %s | FileCheck %s --check-prefix=CPU
// RUN: nsa-opt --nsa-set-machine=mma-rows=16 --nsa-convert-to-tile %s | FileCheck %s --check-prefix=CUDA
// RUN: not nsa-opt --nsa-set-machine=mma-rows=8 %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// A GPU has more programs to share a sum over rows than a CPU has threads.

// CPU: tile.launch @rms_norm_backward_t65536x768_bf16
// CPU-SAME: -> (tensor<32x2048x768xbf16>, tensor<64x768xf32>)
// CUDA: tile.launch @rms_norm_backward_t65536x768_bf16
// CUDA-SAME: -> (tensor<32x2048x768xbf16>, tensor<525x768xf32>)

// Eight rows at once, each for a warp: their sums need no other warp's, and the
// sums over rows meet once.

// CPU: tile.reduce add {{.*}} : !tile.tile<1x768xf32> -> !tile.tile<1x1xf32>
// CPU-NOT: tile.reduce
// CPU: tile.return
// CUDA: tile.reduce add {{.*}} : !tile.tile<8x768xf32> -> !tile.tile<8x1xf32>
// CUDA: tile.reduce add {{.*}} {axis = 0 : i32} : !tile.tile<8x768xf32> -> !tile.tile<1x768xf32>
func.func @norm(%dy: tensor<32x2048x768xbf16>, %x: tensor<32x2048x768xbf16>,
                %w: tensor<768xf32>, %rstd: tensor<32x2048xf32>)
    -> (tensor<32x2048x768xbf16>, tensor<768xf32>) {
  %dx, %dw = nn.rms_norm_backward %dy, %x, %w, %rstd
      : (tensor<32x2048x768xbf16>, tensor<32x2048x768xbf16>, tensor<768xf32>, tensor<32x2048xf32>)
      -> (tensor<32x2048x768xbf16>, tensor<768xf32>)
  return %dx, %dw : tensor<32x2048x768xbf16>, tensor<768xf32>
}

// A tile of queries has rows of (query, head) pairs. Of 8 blocks with 3 selected
// a CPU takes 8 queries of 3 heads, a GPU 5, which fill the rows of one warp.

// CPU: tile.kernel private @selected_attention_{{.*}} attributes {{.*}}grid = array<i32: 16, 1, 1>
// CUDA: tile.kernel private @selected_attention_{{.*}}n3_f32({{.*}}grid = array<i32: 26, 1, 1>
func.func @selected(%q: tensor<1x128x3x16xf32>, %k: tensor<1x128x1x16xf32>,
                    %indices: tensor<1x1x128x3xi32>)
    -> (tensor<1x128x3x16xf32>, tensor<1x3x128xf32>) {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x128x3x16xf32>, tensor<1x128x1x16xf32>, tensor<1x128x1x16xf32>, tensor<1x1x128x3xi32>)
      -> (tensor<1x128x3x16xf32>, tensor<1x3x128xf32>)
  return %o, %lse : tensor<1x128x3x16xf32>, tensor<1x3x128xf32>
}

// With half of the blocks selected, most are those of the neighbours too: 16
// queries, at least 48 rows, in steps of the 16 of a tensor core's operand.

// CUDA: tile.kernel private @selected_attention_{{.*}}n4_f32({{.*}}grid = array<i32: 8, 1, 1>
func.func @selected_half(%q: tensor<1x128x3x16xf32>, %k: tensor<1x128x1x16xf32>,
                    %indices: tensor<1x1x128x4xi32>)
    -> (tensor<1x128x3x16xf32>, tensor<1x3x128xf32>) {
  %o, %lse = nsa.selected_attention %q, %k, %k, %indices {select_block = 16 : i64}
      : (tensor<1x128x3x16xf32>, tensor<1x128x1x16xf32>, tensor<1x128x1x16xf32>, tensor<1x1x128x4xi32>)
      -> (tensor<1x128x3x16xf32>, tensor<1x3x128xf32>)
  return %o, %lse : tensor<1x128x3x16xf32>, tensor<1x3x128xf32>
}

// UNKNOWN: error: an MMA has 16 or 64 rows, 0 stands for none, not 8

// The tokens of each range have a table of their own, and each row of a table
// is one row of the sum.

// CPU: tile.kernel private @embedding_backward_t65536x768_bf16{{.*}}grid = array<i32: 12, 1, 1>
// CUDA: tile.kernel private @embedding_backward_t65536x768_bf16({{.*}}: memref<128x196608xf32>) attributes {{.*}}grid = array<i32: 6, 1, 128>
// CUDA: tile.kernel private @embedding_backward_sum_t128x196608_bf16({{.*}}grid = array<i32: 3072, 1, 1>
// CUDA: tile.reduce add {{.*}} : !tile.tile<16x64xf32> -> !tile.tile<1x64xf32>
func.func @embedding(%dy: tensor<32x2048x768xbf16>, %ids: tensor<32x2048xi32>) -> tensor<256x768xf32> {
  %dw = nn.embedding_backward %dy, %ids {vocab = 256 : i64}
      : (tensor<32x2048x768xbf16>, tensor<32x2048xi32>) -> tensor<256x768xf32>
  return %dw : tensor<256x768xf32>
}

// Of a table of which there is no room for several, each program has every so
// n-th row. It reads the ids of several tokens before it looks at them.

// CPU: tile.kernel private @embedding_backward_t4096x768_bf16{{.*}}grid = array<i32: 12, 1, 1>
// CUDA: tile.kernel private @embedding_backward_t4096x768_bf16{{.*}}grid = array<i32: 6, 88, 1>
// CUDA: %[[OWN:.+]] = tile.program_id 1
// CUDA: scf.for
// CUDA: tile.store
// CUDA: scf.for %{{.+}} to %{{.+}} step %c16_i32
// CUDA-COUNT-16: tile.load %{{.+}} : memref<4096xi32>, (i32) -> i32
// CUDA: arith.remsi %{{.+}}, %c88_i32
// CUDA-NEXT: arith.cmpi eq, %{{.+}}, %[[OWN]]
// CUDA-NEXT: scf.if
func.func @large_embedding(%dy: tensor<2x2048x768xbf16>, %ids: tensor<2x2048xi32>) -> tensor<50304x768xf32> {
  %dw = nn.embedding_backward %dy, %ids {vocab = 50304 : i64}
      : (tensor<2x2048x768xbf16>, tensor<2x2048xi32>) -> tensor<50304x768xf32>
  return %dw : tensor<50304x768xf32>
}
