// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule --nsa-convert-to-tile --canonicalize --cse --columns=0 | FileCheck %s
// RUN: nsa-opt %s --nsa-convert-to-tile | FileCheck %s --check-prefix=CPU

// Rows of the length of a call begin at multiples of 16 bytes in what the kernel
// of dq writes for that of dk and dv: do . o, and the lse, whose own rows begin
// anywhere.
// CHECK: module attributes {nsa.extents = {{.*}}[10008, #{{map[0-9]*}}]]
// CHECK-LABEL: tile.kernel private @window_attention_backward_dkdv_bNsNh4x2d16_w32_bf16(
// CHECK-SAME: %[[LSE:[a-z0-9]+]]: memref<7x4x10007xf32>, %[[ROWS:[a-z0-9]+]]: memref<7x4x2x10007xf32, strided<[80064, 20016, 10008, 1]>>
// CHECK-NOT: tile.load %[[LSE]]
// CHECK: tile.load %[[ROWS]][%{{.+}}, %{{.+}}, %c1_i32
// CHECK: tile.load %[[ROWS]][%{{.+}}, %{{.+}}, %c0_i32

// CPU-NOT: strided
// CPU: tile.kernel private @window_attention_backward_dkdv_bNsNh4x2d16_w32_bf16(
!q = tensor<?x?x4x16xbf16>
!k = tensor<?x?x2x16xbf16>
!lse = tensor<?x4x?xf32>
func.func @f(%do: !q {nn.name = "do"}, %q: !q {nn.name = "q"}, %k: !k {nn.name = "k"}, %v: !k {nn.name = "v"}, %o: !q {nn.name = "o"},
             %lse: !lse {nn.name = "lse"}) -> (!q {nn.name = "dq"}, !k {nn.name = "dk"}, !k {nn.name = "dv"}) {
  %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %lse visible(#nsa.window<32>) : !q, !q, !k, !k, !q, !lse
  return %dq, %dk, %dv : !q, !k, !k
}
