// RUN: nsa-opt %s --verify-roundtrip

rt.segment persistent @persistent size 32896 alignment 64
rt.segment io @io size 256 alignment 64
rt.segment arena @arena size 16384 alignment 64
rt.segment workspace @workspace size 16384 alignment 64

rt.tensor parameter @embed.weight : memref<256x32xf32> init #nn.init<normal, 0.02> at <@persistent, offset = 0, size = 32768> {decay}
rt.tensor gradient @grad : memref<32xf32> init #nn.init<constant, 0.0> at <@persistent, offset = 32768, size = 128>
rt.tensor input @tokens : memref<1x64xi32> at <@io, offset = 0, size = 256>
rt.tensor output @hidden : memref<1x64x32xf32>

rt.kernel @mapped : (memref<512x4x128xbf16>, memref<64xf32>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [
       #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 128, 4, 512>, strides = array<i64: 256, 1024>,
         box = array<i64: 64, 1, 64>, swizzle = 128>,
       #rt.tensor_map<argument = 1, element = f32, extents = array<i64: 64>, strides = array<i64>, box = array<i64: 4>,
         swizzle = 0>]}

func.func private @embedding(memref<256x32xf32>, memref<1x64xi32>, memref<1x64x32xf32>)

rt.entry @init inputs [] outputs [] {
  %w = rt.get @embed.weight : memref<256x32xf32>
  rt.initialize %w : memref<256x32xf32>
  %g = rt.get @grad : memref<32xf32>
  rt.fill 1.0, %g : memref<32xf32>
}

rt.entry @forward inputs [@tokens] outputs [@hidden] attributes {arena_peak = 16384 : i64} {
  %tokens = rt.get @tokens : memref<1x64xi32>
  %w = rt.get @embed.weight : memref<256x32xf32>
  %hidden = rt.get @hidden : memref<1x64x32xf32>
  %x = rt.buffer at <@arena, offset = 0, size = 8192> live <0 to 1> : memref<1x64x32xf32>
  rt.launch @embedding ins(%w, %tokens : memref<256x32xf32>, memref<1x64xi32>) outs(%x : memref<1x64x32xf32>)
  %y = rt.buffer : memref<64x64xf32>
  rt.gemm %x, %x, %y {transpose_rhs} : memref<1x64x32xf32>, memref<1x64x32xf32>, memref<64x64xf32>
  %z = rt.buffer : memref<64x64xbf16>
  rt.gemm %y, %y, %z workspace <@workspace, offset = 0, size = 16384> {transpose_lhs}
      : memref<64x64xf32>, memref<64x64xf32>, memref<64x64xbf16>
  %v = rt.view %hidden : memref<1x64x32xf32> to memref<32x64xf32>
  %columns = rt.view %hidden at 8 : memref<1x64x32xf32> to memref<1x64x2x8xf32, strided<[2048, 32, 8, 1]>>
  %rows = rt.view %hidden at 0 : memref<1x64x32xf32> to memref<3x32xf32>
  %u = rt.buffer : memref<32x64xf32>
  rt.fill 2.0, %u : memref<32x64xf32>
  rt.copy %u, %v : memref<32x64xf32>
  rt.collective_start all_reduce %v : memref<32x64xf32>
  rt.collective_done %v : memref<32x64xf32>
  %part = rt.buffer : memref<512xf32>
  rt.slice_shard %v, %part {shard = 1 : i64} : memref<32x64xf32>, memref<512xf32>
  rt.write_shard %part, %v {shard = 1 : i64} : memref<512xf32>, memref<32x64xf32>
  rt.collective_start all_gather %v {ranks = 4 : i64} : memref<32x64xf32>
  rt.collective_done %v : memref<32x64xf32>
}

func.func private @fill(memref<4x8xf32, strided<[32, 1]>>)
func.func private @columns(memref<4x8xf32, strided<[32, 1]>>, memref<4x24xf32, strided<[32, 1]>>)

// Commands write some columns while others have readers.
rt.entry @in_columns inputs [] outputs [] {
  %x = rt.buffer : memref<4x32xf32>
  %a = rt.view %x at 0 : memref<4x32xf32> to memref<4x8xf32, strided<[32, 1]>>
  %b = rt.view %x at 8 : memref<4x32xf32> to memref<4x24xf32, strided<[32, 1]>>
  rt.launch @fill ins() outs(%a : memref<4x8xf32, strided<[32, 1]>>)
  rt.launch @columns ins(%a : memref<4x8xf32, strided<[32, 1]>>) outs(%b : memref<4x24xf32, strided<[32, 1]>>)
  %y = rt.buffer : memref<4x32xf32>
  rt.copy %x, %y : memref<4x32xf32>
}

rt.tensor input @stack : memref<64x32xf32>
rt.entry @batch inputs [@stack] outputs [] {
  %x = rt.get @stack : memref<64x32xf32>
  %a = rt.buffer : memref<64x32xf32>
  rt.gemm %x, %x, %a {batch = 2 : i64, transpose_rhs} : memref<64x32xf32>, memref<64x32xf32>, memref<64x32xf32>
  %b = rt.buffer : memref<64x32xf32>
  rt.gemm %a, %x, %b plus %a {alpha = 2.0 : f32, batch = 2 : i64, beta = -4.0 : f32}
      : memref<64x32xf32>, memref<64x32xf32>, memref<64x32xf32>
}
