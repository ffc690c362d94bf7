// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-launch-decode-steps | FileCheck %s
// RUN: nsa-opt %s --nsa-launch-decode-steps | FileCheck %s --check-prefix=CPU

// The keys of each branch are split, all in one launch; what reads the sum of
// the branches adds the parts.
// CHECK-LABEL: func.func @decode(
// CHECK: %[[PARTS:.+]]:4 = tile.launch @decode_causal_attention_parts_window{{[^:]*}}
// CHECK-NEXT: tile.launch @combine_parts_{{.*}}%[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2, %[[PARTS]]#3)
// CHECK-NEXT: return
// CPU-NOT: tile.launch
func.func @decode(%q: tensor<1x1x4x64xbf16>, %k: tensor<1x512x2x64xbf16>, %p: tensor<1xi32>, %g: tensor<1x1x4x2xf32>) -> tensor<1x1x4x64xbf16> {
  %a, %l0 = nsa.decode_attention %q, %k, %k at %p visible(#nsa.causal)
      : (tensor<1x1x4x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1xi32>) -> (tensor<1x1x4x64xbf16>, tensor<1x4x1xf32>)
  %b, %l1 = nsa.decode_attention %q, %k, %k at %p visible(#nsa.window<128>)
      : (tensor<1x1x4x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1x512x2x64xbf16>, tensor<1xi32>) -> (tensor<1x1x4x64xbf16>, tensor<1x4x1xf32>)
  %o = nsa.combine %g, %a, %b : (tensor<1x1x4x2xf32>, tensor<1x1x4x64xbf16>, tensor<1x1x4x64xbf16>) -> tensor<1x1x4x64xbf16>
  return %o : tensor<1x1x4x64xbf16>
}
