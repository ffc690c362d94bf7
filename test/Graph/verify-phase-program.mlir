// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-verify-phase=phase=plan
// RUN: nsa-opt %s --split-input-file --nsa-verify-phase=phase=buffer -o /dev/null
// RUN: not nsa-opt %s --split-input-file --nsa-verify-phase=phase=binary 2>&1 | FileCheck %s --check-prefix=BINARY

// After planning, tensors and buffers have their memory.
// expected-error @+1 {{after phase plan, `rt.tensor` must have a slice of a segment}}
rt.tensor input @x : memref<4xf32>
// expected-error @+1 {{after phase plan, `rt.tensor` must have a slice of a segment}}
rt.tensor output @y : memref<4xf32>
rt.entry @f inputs [@x] outputs [@y] {
  %x = rt.get @x : memref<4xf32>
  %y = rt.get @y : memref<4xf32>
  // expected-error @+1 {{after phase plan, `rt.buffer` must have a slice of a segment}}
  %b = rt.buffer : memref<4xf32>
  rt.copy %x, %b : memref<4xf32>
  rt.copy %b, %y : memref<4xf32>
}

// -----

// Kernels stay until they are binaries.
// BINARY: error: after phase binary, `tile.kernel` may no longer be in a module
tile.kernel @k(%y: memref<4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %i = tile.program_id 0 : i32
  %c = arith.constant 0.0 : f32
  tile.store %c, %y[%i] : f32, memref<4xf32>, (i32)
  tile.return
}
