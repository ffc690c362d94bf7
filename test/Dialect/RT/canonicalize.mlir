// RUN: nsa-opt %s --canonicalize --cse | FileCheck %s

rt.tensor input @x : memref<1x64x32xf32>
rt.tensor output @y : memref<64x32xf32>

// CHECK-LABEL: rt.entry @views
rt.entry @views inputs [@x] outputs [@y] {
  // CHECK-NEXT: %[[X:.*]] = rt.get @x
  %x = rt.get @x : memref<1x64x32xf32>
  // CHECK-NEXT: %[[Y:.*]] = rt.get @y
  %y = rt.get @y : memref<64x32xf32>
  %again = rt.get @y : memref<64x32xf32>
  // CHECK-NEXT: %[[V:.*]] = rt.view %[[X]] : memref<1x64x32xf32> to memref<64x32xf32>
  %heads = rt.view %x : memref<1x64x32xf32> to memref<1x64x4x8xf32>
  %rows = rt.view %heads : memref<1x64x4x8xf32> to memref<64x32xf32>
  // CHECK-NEXT: rt.copy %[[V]], %[[Y]]
  rt.copy %rows, %again : memref<64x32xf32>
  // CHECK-NEXT: }
  %unused = rt.buffer : memref<64x32xf32>
}

// Two buffers of one type are two buffers.
// CHECK-LABEL: rt.entry @buffers
rt.entry @buffers inputs [] outputs [@y] {
  // CHECK: rt.buffer
  // CHECK: rt.buffer
  %y = rt.get @y : memref<64x32xf32>
  %a = rt.buffer : memref<64x32xf32>
  %b = rt.buffer : memref<64x32xf32>
  rt.fill 1.0, %a : memref<64x32xf32>
  rt.fill 2.0, %b : memref<64x32xf32>
  rt.copy %a, %y : memref<64x32xf32>
  rt.copy %b, %y : memref<64x32xf32>
}

// A view of the same shape is its source.
// CHECK-LABEL: rt.entry @same
rt.entry @same inputs [@x] outputs [@y] {
  // CHECK-NOT: rt.view
  %x = rt.get @x : memref<1x64x32xf32>
  %v = rt.view %x : memref<1x64x32xf32> to memref<1x64x32xf32>
  rt.fill 0.0, %v : memref<1x64x32xf32>
}

// Columns are no view of the source alone: their view stays.
// CHECK-LABEL: rt.entry @parts
rt.entry @parts inputs [@x] outputs [@y] {
  // CHECK: %[[A:.*]] = rt.view %{{.*}} at 1024
  // CHECK: rt.view %[[A]] : memref<32x32xf32> to memref<1024xf32>
  %x = rt.get @x : memref<1x64x32xf32>
  %a = rt.view %x at 1024 : memref<1x64x32xf32> to memref<32x32xf32>
  %b = rt.view %a : memref<32x32xf32> to memref<1024xf32>
  rt.fill 0.0, %b : memref<1024xf32>
  // CHECK: %[[C:.*]] = rt.view %{{.*}} at 0 : memref<1x64x32xf32> to memref<1x64x32xf32>
  %c = rt.view %x at 0 : memref<1x64x32xf32> to memref<1x64x32xf32>
  rt.fill 1.0, %c : memref<1x64x32xf32>
}
