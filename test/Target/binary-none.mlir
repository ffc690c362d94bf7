// A program without kernels has no binary.
// RUN: nsa-opt %s --nsa-binary | FileCheck %s

// CHECK-NOT: rt.binary
// CHECK: rt.entry @main
rt.tensor state @s : memref<8xf32>
rt.entry @main inputs [] outputs [] {
  %s = rt.get @s : memref<8xf32>
  rt.fill 1.0, %s : memref<8xf32>
}
