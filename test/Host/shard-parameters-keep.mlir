// RUN: nsa-opt %s --nsa-shard-parameters="ranks=2 keep" | FileCheck %s

// Weights are gathered once a step, by its first pass or, for what is no step, by
// an entry of their own. Others read what was gathered.
// CHECK: rt.tensor state @gathered.0.bf16 : memref<64xbf16>{{$}}
rt.tensor parameter @a : memref<8x8xf32> init #nn.init<normal, 0.1> {decay}
rt.tensor state @prepared.0 : memref<8x8xbf16>
rt.tensor input @x : memref<4x8xbf16>
rt.tensor output @y : memref<4x8xbf16>

// CHECK-LABEL: rt.entry @accumulate
// CHECK-NOT: rt.launch
// CHECK-NOT: rt.collective
// CHECK: %[[A:.*]] = rt.view %gathered.0.bf16 at 0 : memref<64xbf16> to memref<8x8xbf16>
// CHECK-NEXT: rt.gemm %x, %[[A]], %y
rt.entry @accumulate inputs [@x] outputs [@y] {
  %a = rt.get @a : memref<8x8xf32>
  %x = rt.get @x : memref<4x8xbf16>
  %y = rt.get @y : memref<4x8xbf16>
  %ha = rt.buffer : memref<8x8xbf16>
  rt.launch @cast ins(%a : memref<8x8xf32>) outs(%ha : memref<8x8xbf16>)
  rt.gemm %x, %ha, %y {transpose_rhs} : memref<4x8xbf16>, memref<8x8xbf16>, memref<4x8xbf16>
}

// What a cast leaves for other entries is a copy.
// CHECK-LABEL: rt.entry @prepare
// CHECK: %[[P:.*]] = rt.view %gathered.0.bf16
// CHECK-NEXT: rt.copy %[[P]], %prepared.0
rt.entry @prepare inputs [] outputs [] {
  %a = rt.get @a : memref<8x8xf32>
  %p = rt.get @prepared.0 : memref<8x8xbf16>
  rt.launch @cast ins(%a : memref<8x8xf32>) outs(%p : memref<8x8xbf16>)
}

rt.entry @update inputs [] outputs [] {
  %a = rt.flat_view [@a] : memref<64xf32>
  %own = rt.buffer : memref<32xf32>
  rt.slice_shard %a, %own {shard = 0 : i64} : memref<64xf32>, memref<32xf32>
  rt.write_shard %own, %a {shard = 0 : i64} : memref<32xf32>, memref<64xf32>
  rt.collective_start all_gather %a {ranks = 2 : i64} : memref<64xf32>
  rt.collective_done %a : memref<64xf32>
}

// CHECK-LABEL: rt.entry @gather_accumulate inputs [@x] outputs [@y]
// CHECK: rt.launch @convert_n32_f32_bf16 ins({{.*}}) outs(%[[OWN:.*]] : memref<32xbf16>)
// CHECK: rt.write_shard %[[OWN]], %gathered.0.bf16
// CHECK: rt.collective_start all_gather %gathered.0.bf16
// CHECK: rt.collective_done %gathered.0.bf16
// CHECK: rt.gemm
// CHECK-LABEL: rt.entry @scatter
// CHECK-LABEL: rt.entry @gather inputs [] outputs []
// CHECK: rt.collective_start all_gather %gathered.0.bf16
// CHECK: rt.collective_done %gathered.0.bf16

tile.kernel private @cast(%a: memref<8x8xf32>, %b: memref<8x8xbf16>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
