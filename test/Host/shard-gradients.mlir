// RUN: nsa-opt %s --split-input-file --nsa-bucket-all-reduce="bucket-mib=1 ranks=2" --nsa-convert-to-reduce-scatter --nsa-shard-gradients=ranks=2 | FileCheck %s

// The parts of gradients are summed and read; the whole ones are in memory until
// they are reduced.
rt.tensor parameter @a : memref<2x131072xf32>
rt.tensor parameter @b : memref<2x16xf32>
rt.tensor gradient @grad.a : memref<2x131072xf32> init #nn.init<constant, 0.0>
rt.tensor gradient @grad.b : memref<2x16xf32> init #nn.init<constant, 0.0>
rt.tensor input @x : memref<2x2xf32>
rt.tensor input @dy : memref<2x16xf32>
rt.tensor input @dz : memref<2x131072xf32>
// CHECK-NOT: @grad.a
// CHECK: rt.tensor gradient @grad.decayed : memref<131088xf32> init #nn.init<constant, 0.0{{.*}}>

// CHECK-LABEL: rt.entry @init
// CHECK: rt.initialize %grad.decayed : memref<131088xf32>
rt.entry @init inputs [] outputs [] {
  %a = rt.get @grad.a : memref<2x131072xf32>
  rt.initialize %a : memref<2x131072xf32>
  %b = rt.get @grad.b : memref<2x16xf32>
  rt.initialize %b : memref<2x16xf32>
}

// CHECK-LABEL: rt.entry @accumulate
// CHECK-DAG: %[[A:.*]] = rt.buffer : memref<262144xf32>
// CHECK-DAG: %[[B:.*]] = rt.buffer : memref<32xf32>
// CHECK-DAG: %[[GB:.*]] = rt.view %[[B]] at 0 : memref<32xf32> to memref<2x16xf32>
// CHECK: rt.fill 0.0{{.*}}, %[[B]]
// CHECK-NEXT: rt.gemm %{{.*}}, %{{.*}}, %[[GB]]
// CHECK-NEXT: rt.collective_start reduce_scatter %[[B]] {ranks = 2 : i64} : memref<32xf32>
// CHECK: rt.fill 0.0{{.*}}, %[[A]]
// CHECK: rt.collective_start reduce_scatter %[[A]] {ranks = 2 : i64} : memref<262144xf32>
// CHECK-NEXT: rt.collective_done %[[B]]
// CHECK: rt.slice_shard %[[B]], %[[OWN:.*]] {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
// CHECK: %[[SUM:.*]] = rt.view %{{.*}} at 131072 : memref<131088xf32> to memref<16xf32>
// CHECK: rt.launch @accumulate_n16_f32_f32 ins(%[[OWN]], %[[SUM]] : {{.*}}) outs(%[[SUM]] :
// CHECK: rt.collective_done %[[A]]
rt.entry @accumulate inputs [@x, @dy, @dz] outputs [] {
  %a = rt.get @grad.a : memref<2x131072xf32>
  %b = rt.get @grad.b : memref<2x16xf32>
  %x = rt.get @x : memref<2x2xf32>
  %dy = rt.get @dy : memref<2x16xf32>
  rt.gemm %x, %dy, %b {beta = 1.0 : f32, transpose_lhs} : memref<2x2xf32>, memref<2x16xf32>, memref<2x16xf32>
  %dz = rt.get @dz : memref<2x131072xf32>
  rt.gemm %x, %dz, %a {beta = 1.0 : f32, transpose_lhs} : memref<2x2xf32>, memref<2x131072xf32>, memref<2x131072xf32>
}

// CHECK-LABEL: rt.entry @update
// CHECK-NOT: reduce_scatter
// CHECK: rt.launch @norm ins(%[[PART:grad.decayed.*]] : memref<131088xf32>)
// CHECK: rt.fill 0.0{{.*}}, %grad.decayed
rt.entry @update inputs [] outputs [] {
  %a = rt.get @grad.a : memref<2x131072xf32>
  %b = rt.get @grad.b : memref<2x16xf32>
  rt.collective_start all_reduce %a : memref<2x131072xf32>
  rt.collective_done %a : memref<2x131072xf32>
  rt.collective_start all_reduce %b : memref<2x16xf32>
  rt.collective_done %b : memref<2x16xf32>
  %g = rt.flat_view [@grad.a, @grad.b] : memref<262176xf32>
  %gp = rt.buffer : memref<131088xf32>
  rt.slice_shard %g, %gp {shard = 0 : i64} : memref<262176xf32>, memref<131088xf32>
  %w = rt.flat_view [@a, @b] : memref<262176xf32>
  %wp = rt.buffer : memref<131088xf32>
  rt.slice_shard %w, %wp {shard = 0 : i64} : memref<262176xf32>, memref<131088xf32>
  %norm = rt.buffer : memref<131088xf32>
  rt.launch @norm ins(%gp : memref<131088xf32>) outs(%norm : memref<131088xf32>)
  rt.write_shard %wp, %w {shard = 0 : i64} : memref<131088xf32>, memref<262176xf32>
  rt.collective_start all_gather %w {ranks = 2 : i64} : memref<262176xf32>
  rt.collective_done %w : memref<262176xf32>
  rt.fill 0.0, %g : memref<262176xf32>
}
tile.kernel private @norm(%x: memref<131088xf32>, %y: memref<131088xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %0 = arith.constant 0 : i32
  tile.return
}
