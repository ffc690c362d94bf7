// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse | FileCheck %s

// Programs of the window branch take 128 rows: 32 queries of the four heads of a
// group. Later queries see more keys than the first ones: the tiles of queries
// lie along z, so that the last tile of all heads comes first.
// CHECK-LABEL: tile.kernel private @window_attention_b1s320h8x2d64_w256_bf16
// CHECK-SAME: grid = array<i32: 2, 1, 10>
func.func @packed(%q: tensor<1x320x8x64xbf16>, %k: tensor<1x320x2x64xbf16>) -> tensor<1x320x8x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
      : (tensor<1x320x8x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>) -> (tensor<1x320x8x64xbf16>, tensor<1x8x320xf32>)
  return %o : tensor<1x320x8x64xbf16>
}

// Six heads do not divide 128 rows, two of them do: 64 queries.
// CHECK-LABEL: tile.kernel private @window_attention_b1s320h12x2d64_w256_bf16
// CHECK-SAME: grid = array<i32: 6, 1, 5>
func.func @some(%q: tensor<1x320x12x64xbf16>, %k: tensor<1x320x2x64xbf16>) -> tensor<1x320x12x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
      : (tensor<1x320x12x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>) -> (tensor<1x320x12x64xbf16>, tensor<1x12x320xf32>)
  return %o : tensor<1x320x12x64xbf16>
}

// CHECK-LABEL: tile.kernel private @window_attention_b1s320h6x2d64_w256_bf16
// CHECK-SAME: grid = array<i32: 6, 1, 3>
func.func @apart(%q: tensor<1x320x6x64xbf16>, %k: tensor<1x320x2x64xbf16>) -> tensor<1x320x6x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
      : (tensor<1x320x6x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>) -> (tensor<1x320x6x64xbf16>, tensor<1x6x320xf32>)
  return %o : tensor<1x320x6x64xbf16>
}

// Of windows that are short beside the sequence, 64 rows of one head: four such
// programs on a multiprocessor wait for nothing but their own copies.
// CHECK-LABEL: tile.kernel private @window_attention_b1s640h12x2d64_w64_bf16
// CHECK-SAME: grid = array<i32: 10, 12, 1>, nsa.min_blocks = 4
// CHECK: tile.load {{.*}} !tile.tile<64x64xbf16
func.func @short(%q: tensor<1x640x12x64xbf16>, %k: tensor<1x640x2x64xbf16>) -> tensor<1x640x12x64xbf16> {
  %o, %lse = nsa.window_attention %q, %k, %k {window = 64 : i64}
      : (tensor<1x640x12x64xbf16>, tensor<1x640x2x64xbf16>, tensor<1x640x2x64xbf16>) -> (tensor<1x640x12x64xbf16>, tensor<1x12x640xf32>)
  return %o : tensor<1x640x12x64xbf16>
}

// Programs that rotate have the rows of one head.
// CHECK-LABEL: tile.kernel private @rotary_window_attention_b1s320h8x2d64_w256_bf16
// CHECK-SAME: grid = array<i32: 8, 1, 3>
func.func @rotates(%q: tensor<1x320x8x64xbf16>, %k: tensor<1x320x2x64xbf16>, %table: tensor<320x32x2xf32>) -> tensor<1x320x8x64xbf16> {
  %o, %lse, %qr = nsa.rotary_attention %q, %k, %k rotary %table visible(#nsa.window<256>)
      : (tensor<1x320x8x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>, tensor<320x32x2xf32>) -> (tensor<1x320x8x64xbf16>, tensor<1x8x320xf32>, tensor<1x320x8x64xbf16>)
  return %o : tensor<1x320x8x64xbf16>
}

// 192 rows where queries see many keys: 80 of these at once.
// CHECK-LABEL: tile.kernel private @causal_attention_b1s8192h2x1d128
// CHECK-SAME: grid = array<i32: 2, 1, 43>
// CHECK: tile.load {{.*}} !tile.tile<80x128xbf16
func.func @long(%q: tensor<1x8192x2x128xbf16>, %k: tensor<1x8192x1x128xbf16>) -> tensor<1x8192x2x128xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal)
      : tensor<1x8192x2x128xbf16>, tensor<1x8192x1x128xbf16>, tensor<1x8192x1x128xbf16>
  return %o : tensor<1x8192x2x128xbf16>
}

// Heads of 64 have 128 keys at once, ask for a producer and round exponents once
// where that is exact enough; none of this where queries see fewer keys.
// CHECK-LABEL: tile.kernel private @causal_attention_b1s8192h2x1d64
// CHECK-SAME: grid = array<i32: 2, 1, 43>{{.*}}nsa.producer
// CHECK: tile.load {{.*}} !tile.tile<128x64xbf16
// CHECK: %[[EXPONENT:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} {nsa.shortcut} : f32
// CHECK: math.exp2 %[[EXPONENT]]
func.func @long_and_thin(%q: tensor<1x8192x2x64xbf16>, %k: tensor<1x8192x1x64xbf16>) -> tensor<1x8192x2x64xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal)
      : tensor<1x8192x2x64xbf16>, tensor<1x8192x1x64xbf16>, tensor<1x8192x1x64xbf16>
  return %o : tensor<1x8192x2x64xbf16>
}

// CHECK-LABEL: tile.kernel private @causal_attention_b1s4096h2x1d64
// CHECK-NOT: nsa.producer
// CHECK: tile.load {{.*}} !tile.tile<64x64xbf16
// CHECK-NOT: nsa.shortcut
func.func @short_and_thin(%q: tensor<1x4096x2x64xbf16>, %k: tensor<1x4096x1x64xbf16>) -> tensor<1x4096x2x64xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal)
      : tensor<1x4096x2x64xbf16>, tensor<1x4096x1x64xbf16>, tensor<1x4096x1x64xbf16>
  return %o : tensor<1x4096x2x64xbf16>
}

// CHECK-LABEL: tile.kernel private @compressed_attention_b1s24640h1x1d128_l32d16_bf16
// CHECK-SAME: grid = array<i32: 1, 1, 129>
// CHECK: tile.load {{.*}} !tile.tile<80x128xbf16
func.func @many(%q: tensor<1x24640x1x128xbf16>, %k: tensor<1x1539x1x128xbf16>) -> tensor<1x24640x1x128xbf16> {
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 32 : i64, stride = 16 : i64}
      : (tensor<1x24640x1x128xbf16>, tensor<1x1539x1x128xbf16>, tensor<1x1539x1x128xbf16>) -> (tensor<1x24640x1x128xbf16>, tensor<1x1x24640xf32>)
  return %o : tensor<1x24640x1x128xbf16>
}
