// Parts of a tensor are columns of its memory; what cannot take them is copied.
// RUN: nsa-opt %s --nsa-buffer --canonicalize --cse | FileCheck %s
// RUN: nsa-opt %s --nsa-buffer --canonicalize --cse --nsa-schedule --nsa-plan -o /dev/null
// RUN: nsa-opt %s --nsa-buffer --remarks-filter-missed=nsa-buffer -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED

// The accesses of a view as a vector become those of a row and its columns.
// CHECK-LABEL: tile.kernel private @flat_a0p48
// CHECK-SAME: (%[[X:.*]]: memref<2x4x32xf32, strided<[192, 48, 1]>>, %{{.*}}: memref<2x4x32xf32>)
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : i32
// CHECK-DAG: %[[C16:.*]] = arith.constant 16 : i32
// CHECK: %[[N:.*]] = tile.program_id 0
// CHECK: %[[ROWS:.*]] = tile.view %[[X]] : memref<2x4x32xf32, strided<[192, 48, 1]>> -> memref<8x32xf32, strided<[48, 1]>>
// CHECK: %[[ROW:.*]] = arith.divui %[[N]], %[[C2]]
// CHECK: %[[REST:.*]] = arith.remui %[[N]], %[[C2]]
// CHECK: %[[COLUMN:.*]] = arith.muli %[[REST]], %[[C16]]
// CHECK: %[[COLUMNS:.*]] = tile.range %[[COLUMN]] : !tile.tile<1x16xi32>
// CHECK: tile.load %[[ROWS]][%[[ROW]], %[[COLUMNS]]]
tile.kernel private @flat(%x: memref<2x4x32xf32>, %y: memref<2x4x32xf32>)
    attributes {grid = array<i32: 16, 1, 1>, num_outputs = 1 : i32} {
  %xs = tile.view %x : memref<2x4x32xf32> -> memref<256xf32>
  %ys = tile.view %y : memref<2x4x32xf32> -> memref<256xf32>
  %n = tile.program_id 0 : i32
  %c16 = arith.constant 16 : i32
  %start = arith.muli %n, %c16 : i32
  %i = tile.range %start : !tile.tile<1x16xi32>
  %v = tile.load %xs[%i] : memref<256xf32>, (!tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
  tile.store %v, %ys[%i] : !tile.tile<1x16xf32>, memref<256xf32>, (!tile.tile<1x16xi32>)
  tile.return
}

// Loads and stores by coordinates take any layout.
tile.kernel private @heads(%x: memref<2x4x2x16xf32>, %y: memref<2x4x2x16xf32>)
    attributes {grid = array<i32: 2, 4, 2>, num_outputs = 1 : i32} {
  %b = tile.program_id 0 : i32
  %t = tile.program_id 1 : i32
  %h = tile.program_id 2 : i32
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x16xi32>
  %v = tile.load %x[%b, %t, %h, %i] : memref<2x4x2x16xf32>, (i32, i32, i32, !tile.tile<1x16xi32>) -> !tile.tile<1x16xf32>
  tile.store %v, %y[%b, %t, %h, %i] : !tile.tile<1x16xf32>, memref<2x4x2x16xf32>, (i32, i32, i32, !tile.tile<1x16xi32>)
  tile.return
}

// Pieces of 24 elements are not in one row of 32.
tile.kernel private @crossing(%x: memref<2x4x32xf32>, %y: memref<2x4x32xf32>)
    attributes {grid = array<i32: 11, 1, 1>, num_outputs = 1 : i32} {
  %xs = tile.view %x : memref<2x4x32xf32> -> memref<256xf32>
  %ys = tile.view %y : memref<2x4x32xf32> -> memref<256xf32>
  %n = tile.program_id 0 : i32
  %c24 = arith.constant 24 : i32
  %start = arith.muli %n, %c24 : i32
  %i = tile.range %start : !tile.tile<1x24xi32>
  %v = tile.load %xs[%i] : memref<256xf32>, (!tile.tile<1x24xi32>) -> !tile.tile<1x24xf32>
  tile.store %v, %ys[%i] : !tile.tile<1x24xf32>, memref<256xf32>, (!tile.tile<1x24xi32>)
  tile.return
}

tile.kernel private @token(%x: memref<1x1x20xf32>, %y: memref<1x1x20xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x20xi32>
  %v = tile.load %x[%c0, %c0, %i] : memref<1x1x20xf32>, (i32, i32, !tile.tile<1x20xi32>) -> !tile.tile<1x20xf32>
  tile.store %v, %y[%c0, %c0, %i] : !tile.tile<1x20xf32>, memref<1x1x20xf32>, (i32, i32, !tile.tile<1x20xi32>)
  tile.return
}

// CHECK-LABEL: rt.entry @split
// CHECK: %[[P:.*]] = rt.buffer : memref<2x4x48xf32>
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %[[P]]
// CHECK: %[[A:.*]] = rt.view %[[P]] at 16 : memref<2x4x48xf32> to memref<2x4x32xf32, strided<[192, 48, 1]>>
// CHECK: rt.launch @flat_a0p48 ins(%[[A]] :
// CHECK: %[[H:.*]] = rt.view %[[P]] at 16 : memref<2x4x48xf32> to memref<2x4x2x16xf32, strided<[192, 48, 16, 1]>>
// CHECK: rt.launch @heads_a0p48 ins(%[[H]] :
func.func @split(%x: tensor<2x4x8xf32>, %w: tensor<48x8xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x2x16xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<48x8xf32>) -> tensor<2x4x48xf32>
  %unused, %a = nn.split %p {sizes = array<i64: 16, 32>} : (tensor<2x4x48xf32>) -> (tensor<2x4x16xf32>, tensor<2x4x32xf32>)
  %0 = tile.launch @flat(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %h = nn.split_heads %a {heads = 2 : i64} : (tensor<2x4x32xf32>) -> tensor<2x4x2x16xf32>
  %1 = tile.launch @heads(%h) : (tensor<2x4x2x16xf32>) -> tensor<2x4x2x16xf32>
  return %0, %1 : tensor<2x4x32xf32>, tensor<2x4x2x16xf32>
}

// What computes an operand writes its columns.
// CHECK-LABEL: rt.entry @concat
// CHECK: %[[P:.*]] = rt.buffer : memref<2x4x64xf32>
// CHECK: %[[A:.*]] = rt.view %[[P]] at 0 : memref<2x4x64xf32> to memref<2x4x2x16xf32, strided<[256, 64, 16, 1]>>
// CHECK: rt.launch @heads_a1p64 ins(%{{.*}}) outs(%[[A]] :
// CHECK: %[[B:.*]] = rt.view %[[P]] at 32 : memref<2x4x64xf32> to memref<2x4x32xf32, strided<[256, 64, 1]>>
// CHECK: rt.launch @flat_a1p64 ins(%{{.*}}) outs(%[[B]] :
// CHECK-NEXT: rt.gemm %[[P]],
// CHECK-NOT: rt.copy
// CHECK: }
func.func @concat(%x: tensor<2x4x2x16xf32>, %y: tensor<2x4x32xf32>, %w: tensor<64x8xf32>) -> tensor<2x4x8xf32> {
  %0 = tile.launch @heads(%x) : (tensor<2x4x2x16xf32>) -> tensor<2x4x2x16xf32>
  %a = nn.merge_heads %0 : (tensor<2x4x2x16xf32>) -> tensor<2x4x32xf32>
  %b = tile.launch @flat(%y) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %p = nn.concat %a, %b : (tensor<2x4x32xf32>, tensor<2x4x32xf32>) -> tensor<2x4x64xf32>
  %z = nn.matmul %p, %w : (tensor<2x4x64xf32>, tensor<64x8xf32>) -> tensor<2x4x8xf32>
  return %z : tensor<2x4x8xf32>
}

// An update in place of a part without other readers; the rest stays.
// CHECK-LABEL: rt.entry @update
// CHECK: %[[P:.*]] = rt.buffer : memref<2x4x48xf32>
// CHECK: %[[A:.*]] = rt.view %[[P]] at 0 : {{.*}} strided<[192, 48, 1]>>
// CHECK-NEXT: rt.launch @flat_a0p48_a1p48 ins(%[[A]] : {{.*}}) outs(%[[A]] :
// CHECK-NOT: rt.buffer
// CHECK: }
func.func @update(%x: tensor<2x4x8xf32>, %w: tensor<48x8xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x48xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<48x8xf32>) -> tensor<2x4x48xf32>
  %a, %b = nn.split %p {sizes = array<i64: 32, 16>} : (tensor<2x4x48xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>)
  %a1 = tile.launch @flat(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %a2 = tile.launch @flat(%a1) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %z = nn.concat %a1, %b : (tensor<2x4x32xf32>, tensor<2x4x16xf32>) -> tensor<2x4x48xf32>
  return %a2, %z : tensor<2x4x32xf32>, tensor<2x4x48xf32>
}

// CHECK-LABEL: rt.entry @read_later
// CHECK: rt.launch @flat_a0p48 ins
// CHECK: rt.launch @flat_a0p48 ins
func.func @read_later(%x: tensor<2x4x8xf32>, %w: tensor<48x8xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x32xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<48x8xf32>) -> tensor<2x4x48xf32>
  %a, %b = nn.split %p {sizes = array<i64: 32, 16>} : (tensor<2x4x48xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>)
  %a1 = tile.launch @flat(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %a2 = tile.launch @flat(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %a3 = tile.launch @flat(%a1) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  return %a3, %a2 : tensor<2x4x32xf32>, tensor<2x4x32xf32>
}

// Matmuls and kernels that cross rows need copies.
// CHECK-LABEL: rt.entry @copied
// CHECK: rt.launch @copy_t8x32_f32_a0p48 ins(%{{.*}} : memref<2x4x32xf32, strided<[192, 48, 1]>>) outs(%[[D:.*]] : memref<2x4x32xf32>)
// CHECK: rt.launch @crossing ins(%[[D]] : memref<2x4x32xf32>)
// CHECK: rt.gemm %[[D]],
// MISSED-DAG: Reason="@crossing needs a dense operand 0: it is copied"
// MISSED-DAG: Reason="operand 0 is copied to its columns"
func.func @copied(%x: tensor<2x4x8xf32>, %w: tensor<48x8xf32>, %v: tensor<32x8xf32>)
    -> (tensor<2x4x32xf32>, tensor<2x4x8xf32>, tensor<2x4x32xf32>, tensor<2x4x64xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<48x8xf32>) -> tensor<2x4x48xf32>
  %a, %b = nn.split %p {sizes = array<i64: 32, 16>} : (tensor<2x4x48xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>)
  %0 = tile.launch @crossing(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %1 = nn.matmul %a, %v : (tensor<2x4x32xf32>, tensor<32x8xf32>) -> tensor<2x4x8xf32>
  %2 = tile.launch @crossing(%a) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %3 = tile.launch @flat(%2) : (tensor<2x4x32xf32>) -> tensor<2x4x32xf32>
  %4 = nn.concat %2, %3 : (tensor<2x4x32xf32>, tensor<2x4x32xf32>) -> tensor<2x4x64xf32>
  return %0, %1, %a, %4 : tensor<2x4x32xf32>, tensor<2x4x8xf32>, tensor<2x4x32xf32>, tensor<2x4x64xf32>
}

// Parts of parts of other rows are cut from a copy; rows of a matrix from itself.
// CHECK-LABEL: rt.entry @parts_of_parts
// CHECK: rt.view %{{.*}} at 96 : memref<48x8xf32> to memref<36x8xf32>
// CHECK-NEXT: rt.copy
// CHECK: %[[C:.*]] = rt.buffer : memref<2x4x2x16xf32>
// CHECK: rt.launch @copy_t8x32_f32_a0p48_0 ins(%{{.*}}) outs(%[[C]]
// CHECK: rt.view %[[C]] at 8 : memref<2x4x2x16xf32> to memref<2x4x2x8xf32, strided<[128, 32, 16, 1]>>
// CHECK-NEXT: rt.launch @copy_t16x8_f32_a0p16
// CHECK-NEXT: }
func.func @parts_of_parts(%x: tensor<2x4x8xf32>, %w: tensor<48x8xf32>) -> (tensor<2x4x2x8xf32>, tensor<36x8xf32>) {
  %p = nn.matmul %x, %w {transpose_rhs} : (tensor<2x4x8xf32>, tensor<48x8xf32>) -> tensor<2x4x48xf32>
  %a, %b = nn.split %p {sizes = array<i64: 32, 16>} : (tensor<2x4x48xf32>) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>)
  %h = nn.split_heads %a {heads = 2 : i64} : (tensor<2x4x32xf32>) -> tensor<2x4x2x16xf32>
  %c, %d = nn.split %h {sizes = array<i64: 8, 8>} : (tensor<2x4x2x16xf32>) -> (tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>)
  %e, %f = nn.split %w {rows, sizes = array<i64: 12, 36>} : (tensor<48x8xf32>) -> (tensor<12x8xf32>, tensor<36x8xf32>)
  return %d, %f : tensor<2x4x2x8xf32>, tensor<36x8xf32>
}

// The first reader makes the copy, here one that stands before the second split.
// CHECK-LABEL: rt.entry @read_before_split
// CHECK: %[[C:.*]] = rt.buffer : memref<11x40xf32>
// CHECK: rt.copy
// CHECK: rt.copy %[[C]]
// CHECK: rt.view %[[C]] at 18 : memref<11x40xf32> to memref<11x22xf32, strided<[40, 1]>>
func.func @read_before_split(%x: tensor<26x40xf32>) -> (tensor<26x40xf32>, tensor<11x22xf32>) {
  %a, %b = nn.split %x {rows, sizes = array<i64: 11, 15>} : (tensor<26x40xf32>) -> (tensor<11x40xf32>, tensor<15x40xf32>)
  %y = nn.concat %b, %a {rows} : (tensor<15x40xf32>, tensor<11x40xf32>) -> tensor<26x40xf32>
  %c, %d = nn.split %a {sizes = array<i64: 18, 22>} : (tensor<11x40xf32>) -> (tensor<11x18xf32>, tensor<11x22xf32>)
  return %y, %d : tensor<26x40xf32>, tensor<11x22xf32>
}

// Nothing is copied where there is nothing.
// CHECK-LABEL: rt.entry @empty
// CHECK-NOT: rt.launch
// CHECK: }
func.func @empty(%x: tensor<0x4x48xf32>) -> (tensor<0x4x16xf32>, tensor<0x4x48xf32>) {
  %a, %b = nn.split %x {sizes = array<i64: 32, 16>} : (tensor<0x4x48xf32>) -> (tensor<0x4x32xf32>, tensor<0x4x16xf32>)
  %y = nn.concat %b, %a : (tensor<0x4x16xf32>, tensor<0x4x32xf32>) -> tensor<0x4x48xf32>
  return %b, %y : tensor<0x4x16xf32>, tensor<0x4x48xf32>
}

// Rows of one token are dense; they begin where kernels expect it, or are copied.
// CHECK-LABEL: rt.entry @one_token
// CHECK: %[[P:.*]] = rt.buffer : memref<1x1x40xf32>
// CHECK: %[[A:.*]] = rt.view %[[P]] at 0 : memref<1x1x40xf32> to memref<1x1x20xf32>
// CHECK: rt.launch @token ins(%{{.*}}) outs(%[[A]] :
// CHECK: %[[B:.*]] = rt.buffer : memref<1x1x20xf32>
// CHECK: rt.launch @token ins(%{{.*}}) outs(%[[B]] :
// CHECK: %[[C:.*]] = rt.view %[[P]] at 20 : memref<1x1x40xf32> to memref<1x1x20xf32>
// CHECK: rt.copy %[[B]], %[[C]]
func.func @one_token(%x: tensor<1x1x20xf32>, %w: tensor<40x8xf32>) -> tensor<1x1x8xf32> {
  %a = tile.launch @token(%x) : (tensor<1x1x20xf32>) -> tensor<1x1x20xf32>
  %b = tile.launch @token(%x) : (tensor<1x1x20xf32>) -> tensor<1x1x20xf32>
  %p = nn.concat %a, %b : (tensor<1x1x20xf32>, tensor<1x1x20xf32>) -> tensor<1x1x40xf32>
  %z = nn.matmul %p, %w : (tensor<1x1x40xf32>, tensor<40x8xf32>) -> tensor<1x1x8xf32>
  return %z : tensor<1x1x8xf32>
}

// The gradients of flattened parameters are added where they lie.
// CHECK-LABEL: rt.entry @flattened
// CHECK: %[[S:.*]] = rt.flat_view [@grad.p, @grad.q] : memref<6x8xf32>
// CHECK: rt.gemm %{{.*}}, %{{.*}}, %[[S]] {beta = 1.0{{.*}}, transpose_lhs}
// CHECK-NOT: rt.copy
// CHECK: }
func.func @flattened(%dy: tensor<64x6xf32>, %x: tensor<64x8xf32>,
    %p: tensor<4x8xf32> {nn.name = "grad.p", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>},
    %q: tensor<2x8xf32> {nn.name = "grad.q", nn.role = "gradient", nn.init = #nn.init<constant, 0.0>})
    -> (tensor<4x8xf32> {nn.alias = "grad.p"}, tensor<2x8xf32> {nn.alias = "grad.q"}) {
  %g = nn.flatten %p, %q in ["grad.p", "grad.q"] : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<6x8xf32>
  %s = nn.matmul %dy, %x, %g {transpose_lhs} : (tensor<64x6xf32>, tensor<64x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %p1, %q1 = nn.unflatten %s in ["grad.p", "grad.q"] : (tensor<6x8xf32>) -> (tensor<4x8xf32>, tensor<2x8xf32>)
  return %p1, %q1 : tensor<4x8xf32>, tensor<2x8xf32>
}
