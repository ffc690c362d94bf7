// RUN: nsa-opt %s --nsa-plan | FileCheck %s
// RUN: nsa-opt %s --nsa-plan --remarks-filter-analyse=nsa-plan -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: nsa-opt %s --nsa-plan=gemm-workspace=4096 | FileCheck %s --check-prefix=LIBRARY

// The library on a GPU takes what it is given.
// LIBRARY: rt.segment workspace @workspace size 4096 alignment 64
// LIBRARY: rt.gemm {{.*}} workspace <@workspace, offset = 0, size = 4096>

// CHECK: rt.segment persistent @persistent size 1024 alignment 64
// CHECK: rt.segment io @io size 320 alignment 64
// CHECK: rt.segment arena @arena size 192 alignment 64
// CHECK: rt.segment workspace @workspace size 192 alignment 64

// REMARK: remark: [Analysis] ArenaPeak | Category:nsa-plan | Function=chain | Bytes=192, LiveBytes=192
// REMARK: remark: [Analysis] ArenaPeak | Category:nsa-plan | Function=small | Bytes=64, LiveBytes=64

// Decaying parameters, other parameters, states of the optimizer by name,
// gradients, constants, other state.
// CHECK: rt.tensor state @s {{.*}} at <@persistent, offset = 960, size = 4>
// CHECK: rt.tensor constant @c {{.*}} at <@persistent, offset = 896, size = 16>
// CHECK: rt.tensor gradient @g {{.*}} at <@persistent, offset = 832, size = 4>
// CHECK: rt.tensor state @v {{.*}} at <@persistent, offset = 768, size = 4> {state = "v"}
// CHECK: rt.tensor state @m {{.*}} at <@persistent, offset = 704, size = 4> {state = "m"}
// CHECK: rt.tensor parameter @bias {{.*}} at <@persistent, offset = 640, size = 4>
// CHECK: rt.tensor parameter @w {{.*}} at <@persistent, offset = 0, size = 100> {decay}
// CHECK: rt.tensor parameter @w2 {{.*}} at <@persistent, offset = 128, size = 512> {decay}
rt.tensor state @s : memref<1xf32> init #nn.init<constant, 0.0>
rt.tensor constant @c : memref<4xf32> init #nn.init<constant, 0.0>
rt.tensor gradient @g : memref<1xf32> init #nn.init<constant, 0.0>
rt.tensor state @v : memref<1xf32> init #nn.init<constant, 0.0> {state = "v"}
rt.tensor state @m : memref<1xf32> init #nn.init<constant, 0.0> {state = "m"}
rt.tensor parameter @bias : memref<1xf32> init #nn.init<constant, 0.0>
rt.tensor parameter @w : memref<25xf32> init #nn.init<normal, 0.02> {decay}
rt.tensor parameter @w2 : memref<128xf32> init #nn.init<normal, 0.02> {decay}
// Outputs come after inputs.
// CHECK: rt.tensor output @half_y {{.*}} at <@io, offset = 192, size = 32>
// CHECK: rt.tensor output @y {{.*}} at <@io, offset = 256, size = 64>
// CHECK: rt.tensor input @x {{.*}} at <@io, offset = 0, size = 64>
// CHECK: rt.tensor input @half {{.*}} at <@io, offset = 64, size = 32>
// CHECK: rt.tensor input @none {{.*}} at <@io, offset = 192, size = 0>
rt.tensor output @half_y : memref<4x4xbf16>
rt.tensor output @y : memref<16xf32>
rt.tensor input @x : memref<16xf32>
rt.tensor input @half : memref<4x4xbf16>
rt.tensor input @more : memref<4x4xf32>
rt.tensor input @none : memref<1x0x4xf32>

tile.kernel private @k(%x: memref<16xf32>, %y: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}

// The third buffer takes the place of the first, whose last reader has run. A
// reader and a writer of one command do not share. A buffer without commands is
// erased.
// CHECK-LABEL: rt.entry @chain
// CHECK-SAME: arena_peak = 192
// CHECK:      rt.buffer at <@arena, offset = [[A:[0-9]+]], size = 64> live <0 to 1>
// CHECK-NEXT: rt.buffer at <@arena, offset = {{[0-9]+}}, size = 128> live <1 to 3>
// CHECK-NEXT: rt.buffer at <@arena, offset = [[A]], size = 64> live <2 to 3>
// CHECK-NEXT: rt.launch
// CHECK: }
rt.entry @chain inputs [@x] outputs [@y] {
  %x = rt.get @x : memref<16xf32>
  %y = rt.get @y : memref<16xf32>
  %a = rt.buffer : memref<16xf32>
  %b = rt.buffer : memref<32xf32>
  %c = rt.buffer : memref<16xf32>
  %unused = rt.buffer : memref<1024xf32>
  rt.launch @k ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
  rt.launch @k2 ins(%a : memref<16xf32>) outs(%b : memref<32xf32>)
  rt.launch @k ins(%x : memref<16xf32>) outs(%c : memref<16xf32>)
  rt.launch @k3 ins(%b, %c : memref<32xf32>, memref<16xf32>) outs(%y : memref<16xf32>)
}

tile.kernel private @k2(%x: memref<16xf32>, %y: memref<32xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
tile.kernel private @k3(%x: memref<32xf32>, %z: memref<16xf32>, %y: memref<16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}

// A view keeps its buffer alive. Another entry uses the same arena.
// CHECK-LABEL: rt.entry @small
// CHECK-SAME: arena_peak = 64
// CHECK: rt.buffer at <@arena, offset = 0, size = 64> live <0 to 1>
rt.entry @small inputs [@x] outputs [@y] {
  %x = rt.get @x : memref<16xf32>
  %y = rt.get @y : memref<16xf32>
  %a = rt.buffer : memref<16xf32>
  %v = rt.view %a : memref<16xf32> to memref<4x4xf32>
  %u = rt.view %v : memref<4x4xf32> to memref<16xf32>
  rt.launch @k ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
  rt.launch @k ins(%u : memref<16xf32>) outs(%y : memref<16xf32>)
}

// The bf16 operands of a matmul get fp32 copies, fp32 operands none.
// CHECK-LABEL: rt.entry @mixed
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %{{.*}} workspace <@workspace, offset = 0, size = 192> :
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %{{.*}} workspace <@workspace, offset = 0, size = 64> :
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %{{.*}} : memref<4x4xf32>
rt.entry @mixed inputs [@half, @more] outputs [@half_y] {
  %x = rt.get @half : memref<4x4xbf16>
  %more = rt.get @more : memref<4x4xf32>
  %y = rt.get @half_y : memref<4x4xbf16>
  %a = rt.buffer : memref<4x4xf32>
  rt.gemm %x, %x, %y : memref<4x4xbf16>, memref<4x4xbf16>, memref<4x4xbf16>
  rt.gemm %more, %more, %y : memref<4x4xf32>, memref<4x4xf32>, memref<4x4xbf16>
  rt.gemm %more, %more, %a : memref<4x4xf32>, memref<4x4xf32>, memref<4x4xf32>
}
