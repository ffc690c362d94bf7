// RUN: nsa-opt %s --nsa-buffer | FileCheck %s

tile.kernel private @double(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<128xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
  tile.store %v, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// Every program reads element 0, so nothing may be computed in place.
tile.kernel private @broadcast(%x: memref<128xf32>, %y: memref<128xf32>)
    attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
  %p = tile.program_id 0 : i32
  %c0 = arith.constant 0 : i32
  %c64 = arith.constant 64 : i32
  %start = arith.muli %p, %c64 : i32
  %i = tile.range %start : !tile.tile<1x64xi32>
  %v = tile.load %x[%c0] : memref<128xf32>, (i32) -> f32
  %t = tile.splat %v : !tile.tile<1x64xf32>
  tile.store %t, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
  tile.return
}

// CHECK: rt.tensor state @s : memref<128xf32> init #nn.init<constant, 0.000000e+00>
// CHECK: rt.tensor parameter @w : memref<128xf32> init #nn.init<normal, 2.000000e-02> {decay}
// CHECK: rt.tensor output @y : memref<128xf32>
// CHECK: rt.tensor input @x : memref<128xf32>
// CHECK: rt.tensor input @arg0 : memref<4x8xf32>
// CHECK: rt.tensor input @other.x : memref<8x16xf32>
// CHECK: rt.tensor output @result0 : memref<4x16xf32>

// CHECK-LABEL: rt.entry @init inputs [] outputs [] {
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: rt.initialize %[[S]]
// CHECK-NEXT: %[[W:.*]] = rt.get @w
// CHECK-NEXT: rt.initialize %[[W]]

// The new value is computed where the old one was.
// CHECK-LABEL: rt.entry @in_place inputs [] outputs [] {
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: rt.launch @double ins(%[[S]] : memref<128xf32>) outs(%[[S]] : memref<128xf32>)
// CHECK-NEXT: }
func.func @in_place(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}) {
  %0 = tile.launch @double(%s) : (tensor<128xf32>) -> tensor<128xf32>
  return %0 : tensor<128xf32>
}

// CHECK-LABEL: rt.entry @unsafe_kernel
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: %[[B:.*]] = rt.buffer
// CHECK-NEXT: rt.launch @broadcast ins(%[[S]] : memref<128xf32>) outs(%[[B]] : memref<128xf32>)
// CHECK-NEXT: rt.copy %[[B]], %[[S]]
// CHECK-NEXT: }
func.func @unsafe_kernel(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}) {
  %0 = tile.launch @broadcast(%s) : (tensor<128xf32>) -> tensor<128xf32>
  return %0 : tensor<128xf32>
}

// The old value has a later reader.
// CHECK-LABEL: rt.entry @later_reader inputs [] outputs [@y] {
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: %[[Y:.*]] = rt.get @y
// CHECK-NEXT: %[[B:.*]] = rt.buffer
// CHECK-NEXT: rt.launch @double ins(%[[S]] : memref<128xf32>) outs(%[[B]] : memref<128xf32>)
// CHECK-NEXT: rt.launch @broadcast ins(%[[S]] : memref<128xf32>) outs(%[[Y]] : memref<128xf32>)
// CHECK-NEXT: rt.copy %[[B]], %[[S]]
// CHECK-NEXT: }
func.func @later_reader(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}, tensor<128xf32> {nn.name = "y"}) {
  %0 = tile.launch @double(%s) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = tile.launch @broadcast(%s) : (tensor<128xf32>) -> tensor<128xf32>
  return %0, %1 : tensor<128xf32>, tensor<128xf32>
}

// A part is copied out at the end: what it is of stays until then.
// CHECK-LABEL: rt.entry @returned_part
// CHECK: %[[A:.*]] = rt.buffer
// CHECK: rt.launch @double ins(%{{.*}}) outs(%[[A]] : memref<128xf32>)
// CHECK: %[[B:.*]] = rt.buffer
// CHECK: rt.launch @double ins(%[[A]] : memref<128xf32>) outs(%[[B]] : memref<128xf32>)
// CHECK: %[[HALF:.*]] = rt.view %[[A]] at 0
// CHECK: rt.copy %[[HALF]]
func.func @returned_part(%x: tensor<128xf32> {nn.name = "x", nn.role = "input"})
    -> (tensor<64xf32> {nn.name = "half"}, tensor<128xf32> {nn.name = "y"}) {
  %0 = tile.launch @double(%x) : (tensor<128xf32>) -> tensor<128xf32>
  %1:2 = nn.split %0 {sizes = array<i64: 64, 64>} : (tensor<128xf32>) -> (tensor<64xf32>, tensor<64xf32>)
  %2 = tile.launch @double(%0) : (tensor<128xf32>) -> tensor<128xf32>
  %3 = tile.launch @broadcast(%2) : (tensor<128xf32>) -> tensor<128xf32>
  return %1#0, %3 : tensor<64xf32>, tensor<128xf32>
}

// A value takes the memory of an argument that the end overwrites, and a reset
// comes after every reader.
// CHECK-LABEL: rt.entry @accumulate_and_reset inputs [@x] outputs [@y] {
// CHECK-NEXT: %[[S:.*]] = rt.get @s
// CHECK-NEXT: %[[Y:.*]] = rt.get @y
// CHECK-NEXT: rt.launch @double ins(%[[S]] : memref<128xf32>) outs(%[[S]] : memref<128xf32>)
// CHECK-NEXT: rt.launch @broadcast ins(%[[S]] : memref<128xf32>) outs(%[[Y]] : memref<128xf32>)
// CHECK-NEXT: rt.fill 0.0{{.*}}, %[[S]]
// CHECK-NEXT: }
func.func @accumulate_and_reset(
    %s: tensor<128xf32> {nn.name = "s", nn.role = "state"},
    %x: tensor<128xf32> {nn.name = "x", nn.role = "input"})
    -> (tensor<128xf32> {nn.alias = "s"}, tensor<128xf32> {nn.name = "y"}) {
  %zero = nn.fill 0.0 : tensor<128xf32>
  %0 = tile.launch @double(%s) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = tile.launch @broadcast(%0) : (tensor<128xf32>) -> tensor<128xf32>
  return %zero, %1 : tensor<128xf32>, tensor<128xf32>
}

// A buffer without later readers is taken over, one with readers is not; a
// parameter that no result updates is left alone.
// CHECK-LABEL: rt.entry @chain inputs [@x] outputs [@y] {
// CHECK:      %[[W:.*]] = rt.get @w
// CHECK:      %[[A:.*]] = rt.buffer
// CHECK-NEXT: rt.launch @double ins(%[[W]] : memref<128xf32>) outs(%[[A]] : memref<128xf32>)
// CHECK-NEXT: %[[B:.*]] = rt.buffer
// CHECK-NEXT: rt.launch @double ins(%[[A]] : memref<128xf32>) outs(%[[B]] : memref<128xf32>)
// CHECK-NEXT: rt.launch @double ins(%[[A]] : memref<128xf32>) outs(%[[A]] : memref<128xf32>)
// CHECK-NEXT: rt.launch @broadcast ins(%[[A]] : memref<128xf32>) outs(%{{.*}} : memref<128xf32>)
// CHECK-NEXT: }
func.func @chain(
    %w: tensor<128xf32> {nn.name = "w", nn.role = "parameter", nn.decay, nn.init = #nn.init<normal, 0.02>},
    %x: tensor<128xf32> {nn.name = "x", nn.role = "input"})
    -> (tensor<128xf32> {nn.name = "y"}) {
  %0 = tile.launch @double(%w) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = tile.launch @double(%0) : (tensor<128xf32>) -> tensor<128xf32>
  %2 = tile.launch @double(%0) : (tensor<128xf32>) -> tensor<128xf32>
  %3 = tile.launch @broadcast(%2) : (tensor<128xf32>) -> tensor<128xf32>
  return %3 : tensor<128xf32>
}

// Inputs of one name but another type get the name of the entry; results and
// arguments without a name get a number.
// CHECK-LABEL: rt.entry @other inputs [@arg0, @other.x] outputs [@result0] {
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %{{.*}} : memref<4x8xf32>, memref<8x16xf32>, memref<4x16xf32>
func.func @other(%a: tensor<4x8xf32>, %b: tensor<8x16xf32> {nn.name = "x", nn.role = "input"})
    -> tensor<4x16xf32> {
  %0 = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// Splitting and merging heads are views, of memory on either side.
// CHECK-LABEL: rt.entry @views inputs [@views.arg0, @arg1] outputs [@views.y] {
// CHECK-DAG: %[[Y:.*]] = rt.get @views.y : memref<1x8x4x2xf32>
// CHECK-DAG: %[[X:.*]] = rt.get @views.arg0 : memref<1x8x4xf32>
// CHECK: %[[OUT:.*]] = rt.view %[[Y]] : memref<1x8x4x2xf32> to memref<1x8x8xf32>
// CHECK: rt.gemm %[[X]], %{{.*}}, %[[OUT]]
// CHECK-NEXT: }
func.func @views(%x: tensor<1x8x4xf32>, %w: tensor<4x8xf32>)
    -> (tensor<1x8x4x2xf32> {nn.name = "y"}) {
  %0 = nn.matmul %x, %w : (tensor<1x8x4xf32>, tensor<4x8xf32>) -> tensor<1x8x8xf32>
  %1 = nn.split_heads %0 {heads = 4 : i64} : (tensor<1x8x8xf32>) -> tensor<1x8x4x2xf32>
  return %1 : tensor<1x8x4x2xf32>
}

// A returned argument is copied before anything overwrites it, and two updates
// that exchange their arguments need a third buffer.
// CHECK-LABEL: rt.entry @exchange inputs [] outputs [@old] {
// CHECK-DAG:  %[[S:.*]] = rt.get @s
// CHECK-DAG:  %[[T:.*]] = rt.get @t
// CHECK-DAG:  %[[OLD:.*]] = rt.get @old
// CHECK:      rt.copy %[[S]], %[[OLD]]
// CHECK-NEXT: %[[T1:.*]] = rt.buffer
// CHECK-NEXT: rt.copy %[[T]], %[[T1]]
// CHECK-NEXT: %[[S1:.*]] = rt.buffer
// CHECK-NEXT: rt.copy %[[S]], %[[S1]]
// CHECK-NEXT: rt.copy %[[T1]], %[[S]]
// CHECK-NEXT: rt.copy %[[S1]], %[[T]]
// CHECK-NEXT: }
func.func @exchange(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"},
                    %t: tensor<128xf32> {nn.name = "t", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}, tensor<128xf32> {nn.alias = "t"},
        tensor<128xf32> {nn.name = "old"}) {
  return %t, %s, %s : tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
}

// A value that is returned twice is computed into one result and copied to the
// other; a fill is made for each.
// CHECK-LABEL: rt.entry @twice inputs [] outputs [@a, @b, @c, @d] {
// CHECK:      rt.launch @double ins(%{{.*}}) outs(%[[A:.*]] : memref<128xf32>)
// CHECK-NEXT: rt.copy %[[A]], %{{.*}} : memref<128xf32>
// CHECK-NEXT: rt.fill 1.0{{.*}}, %{{.*}} : memref<4xi32>
// CHECK-NEXT: rt.fill 1.0{{.*}}, %{{.*}} : memref<4xi32>
// CHECK-NEXT: }
func.func @twice(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.name = "a"}, tensor<128xf32> {nn.name = "b"},
        tensor<4xi32> {nn.name = "c"}, tensor<4xi32> {nn.name = "d"}) {
  %0 = tile.launch @double(%s) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = nn.fill 1.0 : tensor<4xi32>
  return %0, %0, %1, %1 : tensor<128xf32>, tensor<128xf32>, tensor<4xi32>, tensor<4xi32>
}

// Nothing runs for tensors without elements; a matmul of length 0 is 0.
// CHECK-LABEL: rt.entry @empty
// CHECK-NOT: rt.gemm
// CHECK: rt.fill 0.0{{.*}}, %{{.*}} : memref<4x16xf32>
// CHECK-NEXT: }
func.func @empty(%a: tensor<4x0xf32>, %b: tensor<0x16xf32>, %c: tensor<16x8xf32>)
    -> (tensor<4x16xf32>, tensor<0x8xf32>) {
  %0 = nn.matmul %a, %b : (tensor<4x0xf32>, tensor<0x16xf32>) -> tensor<4x16xf32>
  %1 = nn.matmul %b, %c : (tensor<0x16xf32>, tensor<16x8xf32>) -> tensor<0x8xf32>
  return %0, %1 : tensor<4x16xf32>, tensor<0x8xf32>
}

// An update that changes nothing keeps the argument: nothing takes its memory.
// CHECK-LABEL: rt.entry @unchanged inputs [] outputs [@y] {
// CHECK: rt.launch @double ins(%s : memref<128xf32>) outs(%[[B:[0-9]+]] : memref<128xf32>)
// CHECK-NEXT: rt.launch @broadcast ins(%[[B]] : memref<128xf32>) outs(%y : memref<128xf32>)
// CHECK-NEXT: }
func.func @unchanged(%s: tensor<128xf32> {nn.name = "s", nn.role = "state"})
    -> (tensor<128xf32> {nn.alias = "s"}, tensor<128xf32> {nn.name = "y"}) {
  %0 = tile.launch @double(%s) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = tile.launch @broadcast(%0) : (tensor<128xf32>) -> tensor<128xf32>
  return %s, %1 : tensor<128xf32>, tensor<128xf32>
}
