// RUN: nsa-opt %s --nsa-set-machine=mma-rows=16 --nsa-select-schedule --nsa-convert-to-tile --nsa-assign-layouts --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory | FileCheck %s

// A model says how far the loops of a kernel copy ahead; the longest name that
// the kernel's begins with decides.
// CHECK-DAG: #[[PIPELINE:.*]] = #tile_gpu.pipeline<stages = 3,
// CHECK: tile.kernel private @window_attention_b
// CHECK-SAME: nsa.stages = 3 : i64
// CHECK: tile_gpu.pipeline = #[[PIPELINE]]
module attributes {nsa.stages = {window = 1 : i64, window_attention = 3 : i64}} {
  func.func @window(%q: tensor<1x512x12x64xbf16>, %k: tensor<1x512x2x64xbf16>) -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>) {
    %o, %lse = nsa.window_attention %q, %k, %k {window = 256 : i64}
        : (tensor<1x512x12x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>) -> (tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>)
    return %o, %lse : tensor<1x512x12x64xbf16>, tensor<1x12x512xf32>
  }
}
