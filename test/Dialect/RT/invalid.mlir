// RUN: nsa-opt %s --split-input-file --verify-diagnostics

// Small enough, and so is anything with an empty dimension.
rt.tensor input @x : memref<1048576x67108863xf32>
rt.tensor input @y : memref<1048576x67108864x1048576x0xf32>

// -----

rt.segment arena @arena size 64 alignment 64
// expected-error @below {{has its slice in @arena, whose kind is arena}}
rt.tensor input @x : memref<4xf32> at <@arena, offset = 0, size = 16>

// -----

rt.segment io @io size 64 alignment 64
// expected-error @below {{has a slice of 12 bytes, but 'memref<4xf32>' takes 16}}
rt.tensor input @x : memref<4xf32> at <@io, offset = 0, size = 12>

// -----

rt.segment io @io size 64 alignment 64
// expected-error @below {{has its slice at byte 8, which is not a multiple of the alignment 64}}
rt.tensor input @x : memref<4xf32> at <@io, offset = 8, size = 16>

// -----

rt.segment io @io size 64 alignment 64
// expected-error @below {{has a slice that ends at byte 80 of a segment of 64 bytes}}
rt.tensor input @x : memref<4xf32> at <@io, offset = 64, size = 16>

// -----

// expected-error @below {{names @x, which is not a tensor}}
rt.entry @f inputs [@x] outputs [] {
}

// -----

rt.tensor output @x : memref<4xf32>
// expected-error @below {{lists tensor @x as input, but its role is output}}
rt.entry @f inputs [@x] outputs [] {
}

// -----

rt.entry @f inputs [] outputs [] {
  // expected-error @below {{names @x, which is not a tensor}}
  %x = rt.get @x : memref<4xf32>
}

// -----

rt.tensor input @x : memref<4xf32>
rt.entry @f inputs [@x] outputs [] {
  // expected-error @below {{has type 'memref<8xf32>', but tensor @x has type 'memref<4xf32>'}}
  %x = rt.get @x : memref<8xf32>
}

// -----

rt.entry @f inputs [] outputs [] {
  // expected-error @below {{is not a command of an entry}}
  %0 = arith.constant 1.0 : f32
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{changes the number of elements from 32 to 16}}
  %1 = rt.view %0 : memref<4x8xf32> to memref<16xf32>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{changes the element type from 'f32' to 'i32'}}
  %1 = rt.view %0 : memref<4x8xf32> to memref<32xi32>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4xf32>
  // expected-error @below {{names @k, which is not a kernel}}
  rt.launch @k ins() outs(%0 : memref<4xf32>)
}

// -----

func.func private @k(memref<4xf32>, memref<4xf32>)
rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4xf32>
  // expected-error @below {{passes 1 operands to kernel @k, which has 2 arguments}}
  rt.launch @k ins() outs(%0 : memref<4xf32>)
}

// -----

func.func private @k(memref<8xf32>)
rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4xf32>
  // expected-error @below {{operand 0 has type 'memref<4xf32>', but kernel @k takes 'memref<8xf32>'}}
  rt.launch @k ins() outs(%0 : memref<4xf32>)
}

// -----

tile.kernel private @k(%x: memref<4xf32>, %y: memref<4xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4xf32>
  %1 = rt.buffer : memref<4xf32>
  // expected-error @below {{has 2 outputs, but kernel @k has 1}}
  rt.launch @k ins() outs(%0, %1 : memref<4xf32>, memref<4xf32>)
}

// -----

rt.tensor input @x : memref<2x3xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<2x3xf32>
  %0 = rt.buffer : memref<2x2xf32>
  // expected-error @below {{multiplies 2x3 by 2x3}}
  rt.gemm %x, %x, %0 : memref<2x3xf32>, memref<2x3xf32>, memref<2x2xf32>
}

// -----

rt.tensor input @x : memref<2x3xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<2x3xf32>
  %0 = rt.buffer : memref<3x2xf32>
  // expected-error @below {{has a matmul result of 2x2, but its output is 3x2}}
  rt.gemm %x, %x, %0 {transpose_rhs} : memref<2x3xf32>, memref<2x3xf32>, memref<3x2xf32>
}

// -----

rt.tensor input @x : memref<2x2xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<2x2xf32>
  // expected-error @below {{writes memory that it multiplies}}
  rt.gemm %x, %x, %x : memref<2x2xf32>, memref<2x2xf32>, memref<2x2xf32>
}

// -----

rt.tensor input @x : memref<2x2xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<2x2xf32>
  %0 = rt.buffer : memref<2x2xf32>
  // expected-error @below {{writes memory that it adds}}
  rt.gemm %x, %x, %0 plus %0 {beta = 1.0 : f32} : memref<2x2xf32>, memref<2x2xf32>, memref<2x2xf32>
}

// -----

rt.tensor input @x : memref<2x2xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<2x2xf32>
  %0 = rt.buffer : memref<3x2xf32>
  // expected-error @below {{has 3 rows, which are no 2 matrices}}
  rt.gemm %x, %x, %0 {batch = 2 : i64} : memref<2x2xf32>, memref<2x2xf32>, memref<3x2xf32>
}

// -----

rt.tensor input @x : memref<4xf32>
rt.entry @f inputs [@x] outputs [] {
  %x = rt.get @x : memref<4xf32>
  // expected-error @below {{copies memory onto itself}}
  rt.copy %x, %x : memref<4xf32>
}

// -----

rt.tensor state @x : memref<4xf32>
rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<4xf32>
  // expected-error @below {{names tensor @x, which has no initial value}}
  rt.initialize %x : memref<4xf32>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4xf32>
  // expected-error @below {{needs the memory of a named tensor}}
  rt.initialize %0 : memref<4xf32>
}

// -----

// A buffer may not be overwritten before its last reader.
rt.tensor output @y : memref<4xf32>
rt.entry @overwritten inputs [] outputs [@y] {
  %y = rt.get @y : memref<4xf32>
  %0 = rt.buffer : memref<4xf32>
  rt.fill 1.0, %0 : memref<4xf32>
  // expected-error @below {{overwrites a buffer before its last reader: command 0 wrote it, command 2 reads it}}
  rt.fill 2.0, %0 : memref<4xf32>
  // expected-note @below {{the last reader is here}}
  rt.copy %0, %y : memref<4xf32>
}

// -----

// Nor may a plan put something else into its memory.
rt.segment arena @arena size 128 alignment 64
rt.tensor output @y : memref<4xf32>
rt.entry @overlap inputs [] outputs [@y] {
  %y = rt.get @y : memref<4xf32>
  // expected-note @below {{the other buffer is here}}
  %0 = rt.buffer at <@arena, offset = 0, size = 80> live <0 to 2> : memref<20xf32>
  // expected-error @below {{is overwritten before its last reader: it shares bytes 64 to 79 from command 1 on with a buffer that lives from command 0 to 2}}
  %1 = rt.buffer at <@arena, offset = 64, size = 16> live <1 to 3> : memref<4xf32>
  %2 = rt.buffer : memref<20xf32>
  rt.fill 1.0, %0 : memref<20xf32>
  rt.fill 2.0, %1 : memref<4xf32>
  rt.copy %0, %2 : memref<20xf32>
  rt.copy %1, %y : memref<4xf32>
}

// -----

rt.segment arena @arena size 128 alignment 64
rt.tensor output @y : memref<4xf32>
rt.entry @live inputs [] outputs [@y] {
  %y = rt.get @y : memref<4xf32>
  // expected-error @below {{is said to live from command 0 to 0, but its users are commands 0 to 1}}
  %0 = rt.buffer at <@arena, offset = 0, size = 16> live <0 to 0> : memref<4xf32>
  rt.fill 1.0, %0 : memref<4xf32>
  rt.copy %0, %y : memref<4xf32>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{has elements 5 to 8 of rows of 8}}
  %1 = rt.view %0 at 5 : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1]>>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{has elements 30 to 33 of memory of 32}}
  %1 = rt.view %0 at 30 : memref<4x8xf32> to memref<4xf32>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{has 3 rows of 8 elements, but the source has 32 elements}}
  %1 = rt.view %0 at 0 : memref<4x8xf32> to memref<3x4xf32, strided<[8, 1]>>
}

// -----

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{must be statically shaped memref}}
  %1 = rt.view %0 at 0 : memref<4x8xf32> to memref<4x4xf32, strided<[9, 2]>>
}

// -----

func.func private @half(memref<4x4xf32, strided<[8, 1]>>)

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  %1 = rt.view %0 at 0 : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1]>>
  rt.launch @half ins() outs(%1 : memref<4x4xf32, strided<[8, 1]>>)
  %2 = rt.buffer : memref<4x8xf32>
  // expected-error @below {{reads a buffer that no command before command 1 writes}}
  rt.copy %0, %2 : memref<4x8xf32>
}

// -----

func.func private @half(memref<4x4xf32, strided<[8, 1]>>)

rt.entry @f inputs [] outputs [] {
  %0 = rt.buffer : memref<4x8xf32>
  %1 = rt.view %0 at 0 : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1]>>
  %2 = rt.view %0 at 4 : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1]>>
  rt.launch @half ins() outs(%1 : memref<4x4xf32, strided<[8, 1]>>)
  rt.launch @half ins() outs(%2 : memref<4x4xf32, strided<[8, 1]>>)
  // expected-error @below {{overwrites a buffer before its last reader: command 0 wrote it, command 3 reads it}}
  rt.launch @half ins() outs(%1 : memref<4x4xf32, strided<[8, 1]>>)
  %3 = rt.buffer : memref<4x8xf32>
  // expected-note @below {{the last reader is here}}
  rt.copy %0, %3 : memref<4x8xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>
rt.tensor gradient @h : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %0 = rt.flat_view [@g, @h] : memref<32xf32>
  %h = rt.get @h : memref<16xf32>
  // expected-note @below {{that starts here}}
  rt.collective_start all_reduce %0 : memref<32xf32>
  // expected-error @below {{touches memory that all ranks work on}}
  rt.fill 0.0, %h : memref<16xf32>
  rt.collective_done %0 : memref<32xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  // expected-error @below {{has no rt.collective_done}}
  rt.collective_start all_reduce %g : memref<16xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  // expected-error @below {{ends a collective that did not start}}
  rt.collective_done %g : memref<16xf32>
}

// -----

rt.tensor state @g : memref<16xi32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xi32>
  // expected-error @below {{must be statically shaped, dense memref of f32, bf16 or f16}}
  rt.collective_start all_reduce %g : memref<16xi32>
}

// -----

rt.tensor state @x : memref<1x12x4xf32>
rt.tensor state @y : memref<2x3x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<1x12x4xf32>
  %y = rt.get @y : memref<2x3x4xf32>
  // expected-error @below {{has 48 elements, which 10 does not divide}}
  rt.collective_start gather_sequence %x rows %y {ranks = 5 : i64} : memref<1x12x4xf32>, memref<2x3x4xf32>
  rt.collective_done %x rows %y : memref<1x12x4xf32>, memref<2x3x4xf32>
}

// -----

rt.tensor state @x : memref<2x12x4xf32>
rt.tensor state @y : memref<2x6x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<2x12x4xf32>
  %y = rt.get @y : memref<2x6x4xf32>
  // expected-error @below {{has 2 chunks, expected two of each sequence of 'memref<2x12x4xf32>'}}
  rt.slice_sequence halo %x, %y {ranks = 2 : i64} : memref<2x12x4xf32>, memref<2x6x4xf32>
}

// -----

rt.tensor state @x : memref<1x12x4xf32>
rt.tensor state @y : memref<2x2x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<1x12x4xf32>
  %y = rt.get @y : memref<2x2x4xf32>
  // expected-error @below {{has rows of 2 tokens, which do not fit 4 chunks of 'memref<1x12x4xf32>'}}
  rt.write_sequence halo %y, %x {ranks = 2 : i64} : memref<2x2x4xf32>, memref<1x12x4xf32>
}

// -----

rt.tensor state @x : memref<1x12x4xf32>
rt.tensor state @y : memref<2x2x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<1x12x4xf32>
  %y = rt.get @y : memref<2x2x4xf32>
  // expected-error @below {{has rows 'memref<2x2x4xf32>' of 'memref<1x12x4xf32>'}}
  rt.collective_start gather_sequence %x rows %y {ranks = 2 : i64} : memref<1x12x4xf32>, memref<2x2x4xf32>
  rt.collective_done %x rows %y : memref<1x12x4xf32>, memref<2x2x4xf32>
}

// -----

rt.tensor state @x : memref<1x12x4xf32>
rt.tensor state @y : memref<2x3x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<1x12x4xf32>
  %y = rt.get @y : memref<2x3x4xf32>
  // expected-note @below {{that starts here}}
  rt.collective_start reduce_scatter_sequence %x rows %y {ranks = 2 : i64} : memref<1x12x4xf32>, memref<2x3x4xf32>
  // expected-error @below {{touches memory that all ranks work on}}
  rt.fill 0.0, %y : memref<2x3x4xf32>
  rt.collective_done %x rows %y : memref<1x12x4xf32>, memref<2x3x4xf32>
}

// -----

rt.tensor state @x : memref<1x12x4xf32>
rt.tensor state @y : memref<2x3x4xf32>

rt.entry @f inputs [] outputs [] {
  %x = rt.get @x : memref<1x12x4xf32>
  %y = rt.get @y : memref<2x3x4xf32>
  // expected-error @below {{is grouped with the next command, which is not the start of its kind}}
  rt.collective_start gather_sequence %x rows %y {grouped, ranks = 2 : i64} : memref<1x12x4xf32>, memref<2x3x4xf32>
  rt.collective_done %x rows %y : memref<1x12x4xf32>, memref<2x3x4xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  // expected-error @below {{has 16 elements, which 3 does not divide}}
  rt.collective_start reduce_scatter %g {ranks = 3 : i64} : memref<16xf32>
  rt.collective_done %g : memref<16xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  // expected-error @below {{needs the number of ranks}}
  rt.collective_start all_gather %g : memref<16xf32>
  rt.collective_done %g : memref<16xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  %part = rt.buffer : memref<5xf32>
  // expected-error @below {{has a part of 5 elements of 16}}
  rt.slice_shard %g, %part {shard = 0 : i64} : memref<16xf32>, memref<5xf32>
}

// -----

rt.tensor gradient @g : memref<16xf32>

rt.entry @f inputs [] outputs [] {
  %g = rt.get @g : memref<16xf32>
  %part = rt.buffer : memref<4xbf16>
  // expected-error @below {{has a part of 'bf16' of memory of 'f32'}}
  rt.write_shard %part, %g {shard = 0 : i64} : memref<4xbf16>, memref<16xf32>
}
