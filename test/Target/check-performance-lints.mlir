// What is slow in a training entry is an error, once for each kernel and line,
// unless it is allowed by name.
// RUN: not nsa-opt %s --nsa-check-performance-lints 2>&1 | FileCheck %s --implicit-check-not=error:
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=scalar-loop 2>&1 | FileCheck %s --check-prefix=COPY
// RUN: nsa-opt %s --nsa-check-performance-lints=allow=scalar-loop,copy | FileCheck %s --check-prefix=PASSES
// RUN: nsa-opt %s --nsa-check-performance-lints=allow=scalar-loop@slow,copy | FileCheck %s --check-prefix=PASSES
// RUN: nsa-opt %s --nsa-check-performance-lints=allow=all@slow,copy | FileCheck %s --check-prefix=PASSES
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=scalar-loop@fast,unfused@slow,copy 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OTHER --implicit-check-not=error:
// RUN: nsa-opt %s --nsa-check-performance-lints=allow=all | FileCheck %s --check-prefix=PASSES
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=slow 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=slow@fast 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=copy@slow 2>&1 | FileCheck %s --check-prefix=NO-KERNEL
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=spill@ 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not nsa-opt %s --nsa-check-performance-lints=allow=all,spill@x 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// COPY-NOT: scalar-loop
// COPY: error: performance lint 'copy'
// OTHER: error: performance lint 'scalar-loop' in kernel @slow;
// PASSES: rt.entry @accumulate
// NAME: error: unknown performance lint 'slow'; known are scalar-loop, scalar-access, scalar-product, unfused, spill, serialised, copy, all
// NO-KERNEL: error: performance lint 'copy@slow': copies are of no kernel
// EMPTY: error: performance lint 'spill@': expected the name of a kernel after '@'
// UNKNOWN: error: performance lint 'spill' is allowed in @x, but there is no such kernel

rt.kernel @slow : (memref<16384xf32>, memref<16384xf32>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 96 : i64,
     stack_bytes = 0 : i64, performance_lints = ["scalar-loop"]}
rt.kernel @fast : (memref<16384xf32>, memref<16384xf32>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 96 : i64,
     stack_bytes = 0 : i64}
rt.tensor input @x : memref<16384xf32>
rt.tensor gradient @g : memref<16384xf32> init #nn.init<constant, 0.0>
rt.tensor gradient @h : memref<16xf32> init #nn.init<constant, 0.0>

// Initial values train nothing, nor does what writes an output.
rt.entry @init inputs [] outputs [] {
  %g = rt.get @g : memref<16384xf32>
  rt.initialize %g : memref<16384xf32>
}
rt.entry @forward inputs [@x] outputs [] {
  %x = rt.get @x : memref<16384xf32>
  %0 = rt.buffer : memref<16384xf32>
  rt.launch @slow ins(%x : memref<16384xf32>) outs(%0 : memref<16384xf32>)
}

rt.entry @accumulate inputs [@x] outputs [] {
  %x = rt.get @x : memref<16384xf32>
  %g = rt.get @g : memref<16384xf32>
  %h = rt.get @h : memref<16xf32>
  %0 = rt.buffer : memref<16384xf32>
  %1 = rt.buffer : memref<16384xf32>
  %2 = rt.buffer : memref<16xf32>
  // CHECK: check-performance-lints.mlir:[[@LINE+1]]:3: error: performance lint 'scalar-loop' in kernel @slow; allow with --allow-slow-path=scalar-loop or, only there, scalar-loop@slow{{$}}
  rt.launch @slow ins(%x : memref<16384xf32>) outs(%0 : memref<16384xf32>)
  rt.launch @slow ins(%0 : memref<16384xf32>) outs(%1 : memref<16384xf32>)
  rt.launch @fast ins(%1 : memref<16384xf32>) outs(%g : memref<16384xf32>)
  // CHECK: check-performance-lints.mlir:[[@LINE+1]]:3: error: performance lint 'copy' of 65536 bytes; allow with --allow-slow-path=copy
  rt.copy %x, %g : memref<16384xf32>
  rt.fill 0.0, %2 : memref<16xf32>
  rt.copy %2, %h : memref<16xf32>
}
