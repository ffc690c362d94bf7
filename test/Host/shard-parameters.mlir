// RUN: nsa-opt %s --nsa-shard-parameters=ranks=2 | FileCheck %s
// RUN: nsa-opt %s --nsa-shard-parameters=ranks=2 --nsa-plan | FileCheck %s --check-prefix=PLAN

// Each group of uses gathers its bucket, as what the uses read; whole weights lie
// on the host.
// CHECK-DAG: rt.tensor parameter @a : memref<8x8xf32> init {{.*}} {decay, host}
// CHECK-DAG: rt.tensor parameter @norm : memref<32xf32> init #nn.init<constant, 1.0{{.*}}>{{$}}
// CHECK-DAG: rt.tensor state @weight.decayed : memref<80xf32> {state = "weight"}
// PLAN: rt.segment host @host size 640
// PLAN: rt.tensor parameter @a : {{.*}} at <@host, offset = 0, size = 256> {decay, host}
rt.tensor parameter @a : memref<8x8xf32> init #nn.init<normal, 0.1> {decay}
rt.tensor parameter @b : memref<12x8xf32> init #nn.init<normal, 0.1> {decay}
rt.tensor parameter @norm : memref<32xf32> init #nn.init<constant, 1.0>
rt.tensor input @x : memref<4x8xbf16>
rt.tensor output @y : memref<4x8xbf16>
rt.tensor output @z : memref<4x12xbf16>
rt.tensor output @n : memref<32xbf16>

// CHECK-LABEL: rt.entry @forward
// CHECK: rt.copy
// CHECK: rt.launch @convert_n32_f32_bf16 ins(%{{.*}} : memref<32xf32>) outs(%[[OWN:.*]] : memref<32xbf16>)
// CHECK-NEXT: rt.write_shard %[[OWN]], %[[A:.*]] {shard = 0 : i64} : memref<32xbf16>, memref<64xbf16>
// CHECK-NEXT: rt.collective_start all_gather %[[A]] {ranks = 2 : i64} : memref<64xbf16>
// CHECK-NEXT: rt.collective_done %[[A]]
// CHECK-NEXT: %[[W:.*]] = rt.view %[[A]] at 0 : memref<64xbf16> to memref<8x8xbf16>
// CHECK: rt.view %{{.*}} at 32 : memref<80xf32> to memref<48xf32>
// CHECK: rt.launch @convert_n48_f32_bf16
// CHECK: rt.collective_start all_gather %[[B:.*]] {ranks = 2 : i64} : memref<96xbf16>
// CHECK-NEXT: rt.gemm %{{.*}}, %[[W]], %{{.*}} {transpose_rhs}
// CHECK: rt.collective_done %[[B]]
// CHECK: rt.gemm
// CHECK-NOT: all_gather
rt.entry @forward inputs [@x] outputs [@y, @z, @n] {
  %a = rt.get @a : memref<8x8xf32>
  %b = rt.get @b : memref<12x8xf32>
  %norm = rt.get @norm : memref<32xf32>
  %x = rt.get @x : memref<4x8xbf16>
  %y = rt.get @y : memref<4x8xbf16>
  %z = rt.get @z : memref<4x12xbf16>
  %n = rt.get @n : memref<32xbf16>
  %ha = rt.buffer : memref<8x8xbf16>
  %hb = rt.buffer : memref<12x8xbf16>
  %hn = rt.buffer : memref<32xbf16>
  rt.launch @cast ins(%a, %b, %norm : memref<8x8xf32>, memref<12x8xf32>, memref<32xf32>)
      outs(%ha, %hb, %hn : memref<8x8xbf16>, memref<12x8xbf16>, memref<32xbf16>)
  rt.copy %hn, %n : memref<32xbf16>
  rt.gemm %x, %ha, %y {transpose_rhs} : memref<4x8xbf16>, memref<8x8xbf16>, memref<4x8xbf16>
  rt.gemm %x, %hb, %z {transpose_rhs} : memref<4x8xbf16>, memref<12x8xbf16>, memref<4x12xbf16>
}

// The update works on the part.
// CHECK-LABEL: rt.entry @update
// CHECK-NEXT: %[[PART:.*]] = rt.get @weight.decayed
// CHECK-NEXT: rt.launch @step ins(%[[PART]] : memref<80xf32>) outs(%[[PART]] : memref<80xf32>)
// CHECK-NEXT: }
rt.entry @update inputs [] outputs [] {
  %a = rt.flat_view [@a] : memref<64xf32>
  %b = rt.flat_view [@b] : memref<96xf32>
  %own = rt.buffer : memref<80xf32>
  %oa = rt.view %own at 0 : memref<80xf32> to memref<32xf32>
  %ob = rt.view %own at 32 : memref<80xf32> to memref<48xf32>
  rt.slice_shard %a, %oa {shard = 0 : i64} : memref<64xf32>, memref<32xf32>
  rt.slice_shard %b, %ob {shard = 0 : i64} : memref<96xf32>, memref<48xf32>
  rt.launch @step ins(%own : memref<80xf32>) outs(%own : memref<80xf32>)
  rt.write_shard %oa, %a {shard = 0 : i64} : memref<32xf32>, memref<64xf32>
  rt.write_shard %ob, %b {shard = 0 : i64} : memref<48xf32>, memref<96xf32>
  rt.collective_start all_gather %a {ranks = 2 : i64} : memref<64xf32>
  rt.collective_done %a : memref<64xf32>
  rt.collective_start all_gather %b {ranks = 2 : i64} : memref<96xf32>
  rt.collective_done %b : memref<96xf32>
}

// CHECK-LABEL: rt.entry @scatter
// CHECK: %[[WA:.*]] = rt.flat_view [@a] : memref<64xf32>
// CHECK: rt.slice_shard %[[WA]], %{{.*}} {shard = 0 : i64} : memref<64xf32>, memref<32xf32>
// CHECK: rt.slice_shard %{{.*}} {shard = 0 : i64} : memref<96xf32>, memref<48xf32>

tile.kernel private @cast(%a: memref<8x8xf32>, %b: memref<12x8xf32>, %c: memref<32xf32>,
    %d: memref<8x8xbf16>, %e: memref<12x8xbf16>, %f: memref<32xbf16>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 3 : i32} {
  tile.return
}
tile.kernel private @step(%w: memref<80xf32>, %n: memref<80xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
