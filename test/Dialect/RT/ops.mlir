// RUN: nsa-opt %s --verify-roundtrip | FileCheck %s

// CHECK: rt.segment persistent @persistent size 32896 alignment 64
rt.segment persistent @persistent size 32896 alignment 64
// CHECK: rt.segment io @io size 256 alignment 64
rt.segment io @io size 256 alignment 64
// CHECK: rt.segment arena @arena size 16384 alignment 64
rt.segment arena @arena size 16384 alignment 64
// CHECK: rt.segment workspace @workspace size 16384 alignment 64
rt.segment workspace @workspace size 16384 alignment 64

// CHECK: rt.tensor parameter @embed.weight : memref<256x32xf32> init <normal, {{.*}}> at <@persistent, offset = 0, size = 32768> {decay}
rt.tensor parameter @embed.weight : memref<256x32xf32> init <normal, 0.02> at <@persistent, offset = 0, size = 32768> {decay}
// CHECK: rt.tensor gradient @grad : memref<32xf32> init <constant, {{.*}}> at <@persistent, offset = 32768, size = 128>
rt.tensor gradient @grad : memref<32xf32> init <constant, 0.0> at <@persistent, offset = 32768, size = 128>
// CHECK: rt.tensor input @tokens : memref<1x64xi32> at <@io, offset = 0, size = 256>
rt.tensor input @tokens : memref<1x64xi32> at <@io, offset = 0, size = 256>
// CHECK: rt.tensor output @hidden : memref<1x64x32xf32>
rt.tensor output @hidden : memref<1x64x32xf32>

// CHECK: rt.kernel @mapped : (memref<512x4x128xbf16>, memref<64xf32>) -> () {
// CHECK-SAME: tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 128, 4, 512>, strides = array<i64: 256, 1024>, box = array<i64: 64, 1, 64>, swizzle = 128>,
// CHECK-SAME: #rt.tensor_map<argument = 1, element = f32, extents = array<i64: 64>, strides = array<i64>, box = array<i64: 4>, swizzle = 0>]
rt.kernel @mapped : (memref<512x4x128xbf16>, memref<64xf32>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [
       #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 128, 4, 512>, strides = array<i64: 256, 1024>,
         box = array<i64: 64, 1, 64>, swizzle = 128>,
       #rt.tensor_map<argument = 1, element = f32, extents = array<i64: 64>, strides = array<i64>, box = array<i64: 4>,
         swizzle = 0>]}

func.func private @embedding(memref<256x32xf32>, memref<1x64xi32>, memref<1x64x32xf32>)

// CHECK-LABEL: rt.entry @init inputs [] outputs [] {
rt.entry @init inputs [] outputs [] {
  // CHECK: %embed.weight = rt.get @embed.weight : memref<256x32xf32>
  %w = rt.get @embed.weight : memref<256x32xf32>
  // CHECK: rt.initialize %embed.weight : memref<256x32xf32>
  rt.initialize %w : memref<256x32xf32>
  %g = rt.get @grad : memref<32xf32>
  // CHECK: rt.fill 1.000000e+00, %grad : memref<32xf32>
  rt.fill 1.0, %g : memref<32xf32>
}

// CHECK-LABEL: rt.entry @forward inputs [@tokens] outputs [@hidden] attributes {arena_peak = 16384 : i64} {
rt.entry @forward inputs [@tokens] outputs [@hidden] attributes {arena_peak = 16384 : i64} {
  %tokens = rt.get @tokens : memref<1x64xi32>
  %w = rt.get @embed.weight : memref<256x32xf32>
  %hidden = rt.get @hidden : memref<1x64x32xf32>
  // CHECK: %[[X:.*]] = rt.buffer at <@arena, offset = 0, size = 8192> live <0 to 1> : memref<1x64x32xf32>
  %x = rt.buffer at <@arena, offset = 0, size = 8192> live <0 to 1> : memref<1x64x32xf32>
  // CHECK: rt.launch @embedding ins(%embed.weight, %tokens : memref<256x32xf32>, memref<1x64xi32>) outs(%[[X]] : memref<1x64x32xf32>)
  rt.launch @embedding ins(%w, %tokens : memref<256x32xf32>, memref<1x64xi32>) outs(%x : memref<1x64x32xf32>)
  // CHECK: %[[Y:.*]] = rt.buffer : memref<64x64xf32>
  %y = rt.buffer : memref<64x64xf32>
  // CHECK: rt.gemm %[[X]], %[[X]], %[[Y]] {transpose_rhs} : memref<1x64x32xf32>, memref<1x64x32xf32>, memref<64x64xf32>
  rt.gemm %x, %x, %y {transpose_rhs} : memref<1x64x32xf32>, memref<1x64x32xf32>, memref<64x64xf32>
  // CHECK: %[[Z:.*]] = rt.buffer : memref<64x64xbf16>
  %z = rt.buffer : memref<64x64xbf16>
  // CHECK: rt.gemm %[[Y]], %[[Y]], %[[Z]] workspace <@workspace, offset = 0, size = 16384> {transpose_lhs}
  rt.gemm %y, %y, %z workspace <@workspace, offset = 0, size = 16384> {transpose_lhs}
      : memref<64x64xf32>, memref<64x64xf32>, memref<64x64xbf16>
  // CHECK: %[[V:.*]] = rt.view %hidden : memref<1x64x32xf32> to memref<32x64xf32>
  %v = rt.view %hidden : memref<1x64x32xf32> to memref<32x64xf32>
  // CHECK: rt.view %hidden at 8 : memref<1x64x32xf32> to memref<1x64x2x8xf32, strided<[2048, 32, 8, 1]>>
  %columns = rt.view %hidden at 8 : memref<1x64x32xf32> to memref<1x64x2x8xf32, strided<[2048, 32, 8, 1]>>
  // CHECK: rt.view %hidden at 0 : memref<1x64x32xf32> to memref<3x32xf32>
  %rows = rt.view %hidden at 0 : memref<1x64x32xf32> to memref<3x32xf32>
  %u = rt.buffer : memref<32x64xf32>
  rt.fill 2.0, %u : memref<32x64xf32>
  // CHECK: rt.copy %{{.*}}, %[[V]] : memref<32x64xf32>
  rt.copy %u, %v : memref<32x64xf32>
  // CHECK: rt.collective_start all_reduce %[[V]] : memref<32x64xf32>
  // CHECK-NEXT: rt.collective_done %[[V]] : memref<32x64xf32>
  rt.collective_start all_reduce %v : memref<32x64xf32>
  rt.collective_done %v : memref<32x64xf32>
  // CHECK-NEXT: %[[PART:.*]] = rt.buffer : memref<512xf32>
  // CHECK-NEXT: rt.slice_shard %[[V]], %[[PART]] {shard = 1 : i64} : memref<32x64xf32>, memref<512xf32>
  // CHECK-NEXT: rt.write_shard %[[PART]], %[[V]] {shard = 1 : i64} : memref<512xf32>, memref<32x64xf32>
  // CHECK-NEXT: rt.collective_start all_gather %[[V]] {ranks = 4 : i64} : memref<32x64xf32>
  // CHECK-NEXT: rt.collective_done %[[V]] : memref<32x64xf32>
  %part = rt.buffer : memref<512xf32>
  rt.slice_shard %v, %part {shard = 1 : i64} : memref<32x64xf32>, memref<512xf32>
  rt.write_shard %part, %v {shard = 1 : i64} : memref<512xf32>, memref<32x64xf32>
  rt.collective_start all_gather %v {ranks = 4 : i64} : memref<32x64xf32>
  rt.collective_done %v : memref<32x64xf32>
}

func.func private @fill(memref<4x8xf32, strided<[32, 1]>>)
func.func private @columns(memref<4x8xf32, strided<[32, 1]>>, memref<4x24xf32, strided<[32, 1]>>)

// Commands write some columns while others have readers.
// CHECK-LABEL: rt.entry @in_columns
rt.entry @in_columns inputs [] outputs [] {
  %x = rt.buffer : memref<4x32xf32>
  %a = rt.view %x at 0 : memref<4x32xf32> to memref<4x8xf32, strided<[32, 1]>>
  %b = rt.view %x at 8 : memref<4x32xf32> to memref<4x24xf32, strided<[32, 1]>>
  rt.launch @fill ins() outs(%a : memref<4x8xf32, strided<[32, 1]>>)
  // CHECK: rt.launch @columns ins(%{{.*}} : memref<4x8xf32, strided<[32, 1]>>)
  rt.launch @columns ins(%a : memref<4x8xf32, strided<[32, 1]>>) outs(%b : memref<4x24xf32, strided<[32, 1]>>)
  %y = rt.buffer : memref<4x32xf32>
  rt.copy %x, %y : memref<4x32xf32>
}

rt.tensor input @stack : memref<64x32xf32>
// CHECK-LABEL: rt.entry @batch
rt.entry @batch inputs [@stack] outputs [] {
  %x = rt.get @stack : memref<64x32xf32>
  %a = rt.buffer : memref<64x32xf32>
  // CHECK: rt.gemm %[[X:[^,]*]], %[[X]], %[[A:[^ ]*]] {batch = 2 : i64, transpose_rhs}
  rt.gemm %x, %x, %a {batch = 2 : i64, transpose_rhs} : memref<64x32xf32>, memref<64x32xf32>, memref<64x32xf32>
  %b = rt.buffer : memref<64x32xf32>
  // CHECK: rt.gemm %[[A]], %[[X]], %{{.*}} plus %[[A]] {alpha = 2.0{{0*}}e+00 : f32, batch = 2 : i64, beta = -4.0{{0*}}e+00 : f32}
  rt.gemm %a, %x, %b plus %a {alpha = 2.0 : f32, batch = 2 : i64, beta = -4.0 : f32}
      : memref<64x32xf32>, memref<64x32xf32>, memref<64x32xf32>
}
