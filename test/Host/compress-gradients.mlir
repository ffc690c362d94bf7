// Gradients go from rank to rank in bf16; what is summed and updated stays f32.
// RUN: nsa-opt %s --nsa-compress-gradients | FileCheck %s

rt.tensor gradient @a : memref<4x4xf32> init #nn.init<constant, 0.0>
rt.tensor gradient @b : memref<32xf32> init #nn.init<constant, 0.0>
rt.tensor gradient @c : memref<48xf32> init #nn.init<constant, 0.0>
rt.tensor state @loss : memref<1xf32> init #nn.init<constant, 0.0>

// CHECK-LABEL: rt.entry @update
rt.entry @update inputs [] outputs [] {
  %ab = rt.flat_view [@a, @b] : memref<48xf32>
  %c = rt.get @c : memref<48xf32>
  %a = rt.get @a : memref<4x4xf32>
  %loss = rt.get @loss : memref<1xf32>
  // CHECK: %[[AB:.*]] = rt.flat_view [@a, @b]
  // CHECK: %[[H:.*]] = rt.buffer : memref<48xbf16>
  // CHECK-NEXT: rt.launch @convert_n48_f32_bf16 ins(%[[AB]] : memref<48xf32>) outs(%[[H]] : memref<48xbf16>)
  // CHECK-NEXT: rt.collective_start all_reduce %[[H]] : memref<48xbf16>
  rt.collective_start all_reduce %ab : memref<48xf32>
  // A loss is reduced as it is.
  // CHECK-NEXT: rt.collective_start all_reduce %{{.*}} : memref<1xf32>
  rt.collective_start all_reduce %loss : memref<1xf32>
  // CHECK: rt.fill 0.0{{.*}}, %[[C:.*]] : memref<48xf32>
  rt.fill 0.0, %c : memref<48xf32>
  // CHECK-NEXT: rt.collective_done %[[H]] : memref<48xbf16>
  // CHECK-NEXT: rt.launch @convert_n48_bf16_f32 ins(%[[H]] : memref<48xbf16>) outs(%[[AB]] : memref<48xf32>)
  rt.collective_done %ab : memref<48xf32>
  // CHECK-NEXT: rt.collective_done %{{.*}} : memref<1xf32>
  rt.collective_done %loss : memref<1xf32>
  // CHECK: rt.launch @convert_n48_f32_bf16 ins(%[[C]]
  rt.collective_start all_reduce %c : memref<48xf32>
  rt.collective_done %c : memref<48xf32>
  // Kernels read it as one dimension.
  // CHECK: %[[A:.*]] = rt.view %{{.*}} : memref<4x4xf32> to memref<16xf32>
  // CHECK: rt.launch @convert_n16_f32_bf16 ins(%[[A]]
  rt.collective_start all_reduce %a : memref<4x4xf32>
  rt.collective_done %a : memref<4x4xf32>
}

// Of what a rank keeps a part of, only the part is widened.
// CHECK-LABEL: rt.entry @parts
// CHECK: rt.collective_start reduce_scatter %[[H:.*]] {ranks = 2 : i64} : memref<96xbf16>
// CHECK-NEXT: rt.collective_done %[[H]]
// CHECK: rt.slice_shard %[[H]], %[[OWN:.*]] {shard = 0 : i64} : memref<96xbf16>, memref<48xbf16>
// CHECK-NEXT: rt.launch @convert_n48_bf16_f32 ins(%[[OWN]] : memref<48xbf16>) outs(%c : memref<48xf32>)
rt.entry @parts inputs [] outputs [] {
  %c = rt.get @c : memref<48xf32>
  %whole = rt.buffer : memref<96xf32>
  rt.fill 1.0, %whole : memref<96xf32>
  rt.collective_start reduce_scatter %whole {ranks = 2 : i64} : memref<96xf32>
  rt.collective_done %whole : memref<96xf32>
  rt.slice_shard %whole, %c {shard = 0 : i64} : memref<96xf32>, memref<48xf32>
}

// One kernel for each direction and size.
// CHECK-DAG: tile.kernel private @convert_n48_f32_bf16(%{{.*}}: memref<48xf32>, %{{.*}}: memref<48xbf16>)
// CHECK-DAG: tile.kernel private @convert_n48_bf16_f32(%{{.*}}: memref<48xbf16>, %{{.*}}: memref<48xf32>)
// CHECK-DAG: tile.kernel private @convert_n16_f32_bf16(
// CHECK-DAG: tile.kernel private @convert_n16_bf16_f32(
// CHECK-DAG: tile.kernel private @convert_n96_f32_bf16(
// CHECK-NOT: tile.kernel
