// RUN: nsa-opt %s --split-input-file --nsa-bucket-all-reduce=bucket-mib=1 --nsa-convert-to-reduce-scatter --nsa-overlap-all-reduce | FileCheck %s
// RUN: nsa-opt %s --split-input-file --nsa-bucket-all-reduce=bucket-mib=1 --nsa-convert-to-reduce-scatter --remarks-filter=nsa-convert-to-reduce-scatter -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// A rank takes its part of each bucket: of weights and of gradients alike.
rt.tensor parameter @a : memref<262144xf32>
rt.tensor parameter @b : memref<20xf32>
rt.tensor gradient @grad.a : memref<262144xf32>
rt.tensor gradient @grad.b : memref<20xf32>
rt.tensor output @old : memref<131088xf32>

// CHECK-LABEL: rt.entry @step
// CHECK: rt.fill 2.0{{.*}}, %grad.b
// CHECK-NEXT: %[[B:.*]] = rt.flat_view [@grad.b] : memref<32xf32>
// CHECK-NEXT: rt.collective_start reduce_scatter %[[B]] {ranks = 2 : i64} : memref<32xf32>
// CHECK: rt.fill 1.0{{.*}}, %grad.a
// CHECK: %[[A:.*]] = rt.flat_view [@grad.a] : memref<262144xf32>
// CHECK-NEXT: rt.collective_start reduce_scatter %[[A]] {ranks = 2 : i64} : memref<262144xf32>
// CHECK: %[[G:.*]] = rt.buffer : memref<131088xf32>
// CHECK: %[[GA:.*]] = rt.view %[[G]] at 0 : memref<131088xf32> to memref<131072xf32>
// CHECK: %[[GB:.*]] = rt.view %[[G]] at 131072 : memref<131088xf32> to memref<16xf32>
// CHECK: rt.slice_shard %{{.*}}, %[[GA]] {shard = 0 : i64} : memref<262144xf32>, memref<131072xf32>
// CHECK: rt.slice_shard %{{.*}}, %[[GB]] {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
// CHECK: %[[W:.*]] = rt.buffer : memref<131088xf32>
// CHECK: rt.slice_shard %{{.*}} {shard = 0 : i64} : memref<262144xf32>, memref<131072xf32>
// CHECK: rt.slice_shard %{{.*}} {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
// CHECK: rt.copy %[[W]], %old
// CHECK: rt.write_shard %{{.*}}, %[[WA:.*]] {shard = 0 : i64} : memref<131072xf32>, memref<262144xf32>
// CHECK-NEXT: rt.collective_start all_gather %[[WA]] {ranks = 2 : i64}
// CHECK: rt.write_shard %{{.*}}, %[[WB:.*]] {shard = 0 : i64} : memref<16xf32>, memref<32xf32>
// CHECK-NEXT: rt.collective_start all_gather %[[WB]] {ranks = 2 : i64}
// CHECK: rt.collective_done %[[WA]]
// CHECK: rt.collective_done %[[WB]]
rt.entry @step inputs [] outputs [@old] {
  %a = rt.get @grad.a : memref<262144xf32>
  %b = rt.get @grad.b : memref<20xf32>
  rt.fill 2.0, %b : memref<20xf32>
  rt.fill 1.0, %a : memref<262144xf32>
  rt.collective_start all_reduce %a : memref<262144xf32>
  rt.collective_done %a : memref<262144xf32>
  rt.collective_start all_reduce %b : memref<20xf32>
  rt.collective_done %b : memref<20xf32>
  %g = rt.flat_view [@grad.a, @grad.b] : memref<262176xf32>
  %gp = rt.buffer : memref<131088xf32>
  rt.slice_shard %g, %gp {shard = 0 : i64} : memref<262176xf32>, memref<131088xf32>
  %w = rt.flat_view [@a, @b] : memref<262176xf32>
  %wp = rt.buffer : memref<131088xf32>
  rt.slice_shard %w, %wp {shard = 0 : i64} : memref<262176xf32>, memref<131088xf32>
  %old = rt.get @old : memref<131088xf32>
  rt.copy %wp, %old : memref<131088xf32>
  rt.write_shard %gp, %w {shard = 0 : i64} : memref<131088xf32>, memref<262176xf32>
  rt.collective_start all_gather %w {ranks = 2 : i64} : memref<262176xf32>
  rt.collective_done %w : memref<262176xf32>
}

// -----

// A gradient that something else reads is reduced for all ranks.
rt.tensor parameter @a : memref<32xf32>
rt.tensor gradient @grad.a : memref<32xf32>
rt.tensor output @copy : memref<32xf32>

// REMARK: [Missed] Scatter {{.*}}shard 0: a gradient has another reader
// CHECK-LABEL: rt.entry @read
// CHECK: rt.collective_start all_reduce
// CHECK: rt.slice_shard %{{.*}} : memref<32xf32>, memref<16xf32>
rt.entry @read inputs [] outputs [@copy] {
  %a = rt.get @grad.a : memref<32xf32>
  %copy = rt.get @copy : memref<32xf32>
  rt.collective_start all_reduce %a : memref<32xf32>
  rt.collective_done %a : memref<32xf32>
  %gp = rt.buffer : memref<16xf32>
  rt.slice_shard %a, %gp {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
  rt.copy %a, %copy : memref<32xf32>
  %w = rt.get @a : memref<32xf32>
  %wp = rt.buffer : memref<16xf32>
  rt.slice_shard %w, %wp {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
  rt.write_shard %gp, %w {shard = 0 : i64} : memref<16xf32>, memref<32xf32>
  rt.collective_start all_gather %w {ranks = 2 : i64} : memref<32xf32>
  rt.collective_done %w : memref<32xf32>
}

// -----

// A part of a buffer is no part of a shard.
rt.tensor output @part : memref<16xf32>

// CHECK-LABEL: rt.entry @buffer
// CHECK: rt.slice_shard %{{.*}} : memref<32xf32>, memref<16xf32>
rt.entry @buffer inputs [] outputs [@part] {
  %whole = rt.buffer : memref<32xf32>
  %part = rt.get @part : memref<16xf32>
  rt.fill 1.0, %whole : memref<32xf32>
  rt.slice_shard %whole, %part {shard = 0 : i64} : memref<32xf32>, memref<16xf32>
}
