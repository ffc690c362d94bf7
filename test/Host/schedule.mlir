// RUN: nsa-opt %s --pass-pipeline="builtin.module(rt.entry(nsa-schedule))" | FileCheck %s
// RUN: nsa-opt %s --nsa-phase-schedule --remarks-filter-analyse=nsa-schedule -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

rt.tensor output @y : memref<1024xf32>
rt.tensor state @s : memref<1024xf32> init #nn.init<constant, 0.0>
tile.kernel private @k(%x: memref<1024xf32>, %y: memref<1024xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
tile.kernel private @add(%x: memref<1024xf32>, %y: memref<1024xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}

// REMARK: remark: [Analysis] PeakLiveBytes | Category:nsa-schedule | Function=late_users | Bytes=4096, BytesBefore=12288
// REMARK: remark: [Analysis] PeakLiveBytes | Category:nsa-schedule | Function=in_order | Bytes=4096, BytesBefore=4096
// REMARK: remark: [Analysis] PeakLiveBytes | Category:nsa-schedule | Function=overwrite | Bytes=8192, BytesBefore=8192

// Three values are made first and used last: each is used at once instead. The
// three updates of @s stay in order.
// CHECK-LABEL: rt.entry @late_users
// CHECK-NEXT: %[[A:.*]] = rt.buffer
// CHECK-NEXT: rt.fill 1.0{{.*}}, %[[A]]
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: rt.launch @add ins(%[[A]] : memref<1024xf32>) outs(%[[S]] : memref<1024xf32>)
// CHECK-NEXT: %[[B:.*]] = rt.buffer
// CHECK-NEXT: rt.fill 2.0{{.*}}, %[[B]]
// CHECK-NEXT: rt.launch @add ins(%[[B]] : memref<1024xf32>) outs(%[[S]] : memref<1024xf32>)
// CHECK-NEXT: %[[C:.*]] = rt.buffer
// CHECK-NEXT: rt.fill 3.0{{.*}}, %[[C]]
// CHECK-NEXT: rt.launch @add ins(%[[C]] : memref<1024xf32>) outs(%[[S]] : memref<1024xf32>)
// CHECK-NEXT: }
rt.entry @late_users inputs [] outputs [] {
  %s = rt.get @s : memref<1024xf32>
  %a = rt.buffer : memref<1024xf32>
  %b = rt.buffer : memref<1024xf32>
  %c = rt.buffer : memref<1024xf32>
  rt.fill 1.0, %a : memref<1024xf32>
  rt.fill 2.0, %b : memref<1024xf32>
  rt.fill 3.0, %c : memref<1024xf32>
  rt.launch @add ins(%a : memref<1024xf32>) outs(%s : memref<1024xf32>)
  rt.launch @add ins(%b : memref<1024xf32>) outs(%s : memref<1024xf32>)
  rt.launch @add ins(%c : memref<1024xf32>) outs(%s : memref<1024xf32>)
}

// An order with the lowest peak is kept, although another has the same.
// CHECK-LABEL: rt.entry @in_order
// CHECK: rt.fill 1.0
// CHECK: rt.launch @add
// CHECK: rt.fill 2.0
// CHECK: rt.launch @add
rt.entry @in_order inputs [] outputs [] {
  %s = rt.get @s : memref<1024xf32>
  %a = rt.buffer : memref<1024xf32>
  rt.fill 1.0, %a : memref<1024xf32>
  rt.launch @add ins(%a : memref<1024xf32>) outs(%s : memref<1024xf32>)
  %b = rt.buffer : memref<1024xf32>
  rt.fill 2.0, %b : memref<1024xf32>
  rt.launch @add ins(%b : memref<1024xf32>) outs(%s : memref<1024xf32>)
}

// The fill of @s frees nothing and needs nothing, and yet stays after the
// readers of the old value.
// CHECK-LABEL: rt.entry @overwrite
// CHECK: rt.launch @k ins(%[[S:[a-z0-9]+]] : memref<1024xf32>)
// CHECK: rt.launch @k ins(%{{.*}} : memref<1024xf32>)
// CHECK: rt.launch @k ins(%[[S]] : memref<1024xf32>)
// CHECK: rt.fill 0.0{{.*}}, %[[S]]
// CHECK: rt.copy %{{.*}}, %{{.*}}
rt.entry @overwrite inputs [] outputs [@y] {
  %s = rt.get @s : memref<1024xf32>
  %y = rt.get @y : memref<1024xf32>
  %a = rt.buffer : memref<1024xf32>
  %b = rt.buffer : memref<1024xf32>
  rt.launch @k ins(%s : memref<1024xf32>) outs(%a : memref<1024xf32>)
  rt.launch @k ins(%a : memref<1024xf32>) outs(%b : memref<1024xf32>)
  rt.launch @k ins(%s : memref<1024xf32>) outs(%a : memref<1024xf32>)
  rt.fill 0.0, %s : memref<1024xf32>
  rt.copy %b, %y : memref<1024xf32>
}
