// RUN: nsa-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{grid has 2 extents, not 3}}
tile.kernel @grid() attributes {grid = array<i32: 1, 1>, num_outputs = 0 : i32} {
  tile.return
}

// -----

// expected-error@+1 {{has 2 outputs but 1 arguments}}
tile.kernel @outputs(%x: memref<4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  tile.return
}

// -----

// expected-error@+1 {{argument 0 must be a memref of static shape and of identity layout or that of rows, not 'memref<?xf32>'}}
tile.kernel @dynamic(%x: memref<?xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  tile.return
}

// -----

tile.kernel @k(%x: memref<4xf32>, %y: memref<4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
func.func @launch(%x: tensor<4xf32>) {
  // expected-error@+1 {{has 1 inputs and 0 outputs, but @k takes 1 and 1}}
  tile.launch @k(%x) : (tensor<4xf32>) -> ()
  return
}

// -----

tile.kernel @k(%x: memref<4xf32>, %y: memref<4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
}
func.func @launch(%x: tensor<4xf32>) {
  // expected-error@+1 {{gives 'tensor<8xf32>' where argument 1 of @k is 'memref<4xf32>'}}
  %0 = tile.launch @k(%x) : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @range(%i: i32) {
  // expected-error@+1 {{varies along one axis, but its shape is 4x4}}
  %0 = tile.range %i : !tile.tile<4x4xi32>
  return
}

// -----

func.func @map(%x: !tile.tile<4x3xf32>) {
  // expected-error@+1 {{input of shape 4x3 does not broadcast to 4x4}}
  %0 = tile.map (%x : !tile.tile<4x3xf32>) -> !tile.tile<4x4xf32> {
  ^bb0(%e: f32):
    tile.yield %e : f32
  }
  return
}

// -----

func.func @map(%x: !tile.tile<4x4xf32>) {
  // expected-error@+1 {{body yields 'f32' where the result holds 'bf16'}}
  %0 = tile.map (%x : !tile.tile<4x4xf32>) -> !tile.tile<4x4xbf16> {
  ^bb0(%e: f32):
    tile.yield %e : f32
  }
  return
}

// -----

func.func @map(%x: !tile.tile<4x4xf32>, %m: memref<4xf32>, %i: i32) {
  %0 = tile.map (%x : !tile.tile<4x4xf32>) -> !tile.tile<4x4xf32> {
  ^bb0(%e: f32):
    // expected-error@+1 {{is no elementwise operation, so it cannot be in the body of `tile.map`}}
    %v = tile.load %m[%i] : memref<4xf32>, (i32) -> f32
    tile.yield %v : f32
  }
  return
}

// -----

func.func @top_n(%x: !tile.tile<4x8xf32>, %i: i32, %v: !tile.tile<3x2xf32>, %j: !tile.tile<3x2xi32>) {
  // expected-error@+1 {{merges 4 rows into 3}}
  %0:2 = tile.top_n %x, %i, %v, %j : !tile.tile<4x8xf32>, !tile.tile<3x2xf32>, !tile.tile<3x2xi32>
  return
}

// -----

tile.kernel private @view_elements(%x: memref<2x3x4xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  // expected-error @below {{result has 23 elements, expected 24}}
  %flat = tile.view %x : memref<2x3x4xf32> -> memref<23xf32>
  tile.return
}

// -----

tile.kernel private @view_type(%x: memref<24xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  // expected-error @below {{element type 'bf16' of the result is not 'f32'}}
  %flat = tile.view %x : memref<24xf32> -> memref<24xbf16>
  tile.return
}

// -----

// expected-error @below {{must end in `tile.return`}}
tile.kernel private @no_terminator(%x: memref<24xf32>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
}

// -----

// expected-error@+1 {{argument 0 must be a memref of static shape and of identity layout or that of rows, not 'memref<4x8xf32, strided<[16, 1], offset: 8>>'}}
tile.kernel @offset(%x: memref<4x8xf32, strided<[16, 1], offset: 8>>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  tile.return
}

// -----

tile.kernel private @other_rows(%x: memref<4x8xf32, strided<[16, 1]>>) attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {
  // expected-error@+1 {{changes rows of 8 elements at a distance of 16 to rows of 32 at a distance of 32}}
  %flat = tile.view %x : memref<4x8xf32, strided<[16, 1]>> -> memref<32xf32>
  tile.return
}

// -----

func.func @store_layout(%x: memref<16xf32>, %i: !tile.tile<1x16xi32, #tile.rematerialized>, %v: !tile.tile<1x16xf32, #tile.rematerialized>) {
  // expected-error@+1 {{writes a tile in #tile.rematerialized, which no thread holds}}
  tile.store %v, %x[%i] : !tile.tile<1x16xf32, #tile.rematerialized>, memref<16xf32>, (!tile.tile<1x16xi32, #tile.rematerialized>)
  return
}

// -----

func.func @map_shared(%x: !tile.tile<16x16xbf16, #tile.shared>) {
  // expected-error@+1 {{computes in #tile.shared}}
  %0 = tile.map (%x : !tile.tile<16x16xbf16, #tile.shared>) -> !tile.tile<16x16xbf16, #tile.shared> {
  ^bb0(%e: bf16):
    tile.yield %e : bf16
  }
  return
}

// -----

func.func @map_inputs(%x: !tile.tile<16x16xf32, #tile.mma<warps = 1>>, %y: !tile.tile<16x16xf32>) {
  // expected-error@+1 {{input in no layout but results in #tile.mma<warps = 1>}}
  %0 = tile.map (%x, %y : !tile.tile<16x16xf32, #tile.mma<warps = 1>>, !tile.tile<16x16xf32>) -> !tile.tile<16x16xf32, #tile.mma<warps = 1>> {
  ^bb0(%e: f32, %f: f32):
    tile.yield %e : f32
  }
  return
}

// -----

func.func @map_results(%x: !tile.tile<16x16xf32, #tile.rematerialized>) {
  // expected-error@+1 {{results in #tile.rematerialized and no layout must agree}}
  %0:2 = tile.map (%x : !tile.tile<16x16xf32, #tile.rematerialized>) -> !tile.tile<16x16xf32, #tile.rematerialized>, !tile.tile<16x16xf32> {
  ^bb0(%e: f32):
    tile.yield %e, %e : f32, f32
  }
  return
}

// -----

func.func @dot_acc(%x: !tile.tile<16x16xbf16, #tile.shared>, %acc: !tile.tile<16x16xf32>) {
  // expected-error@+1 {{accumulates in no layout, not in #tile.mma}}
  %0 = tile.dot %x, %x, %acc : !tile.tile<16x16xbf16, #tile.shared>, !tile.tile<16x16xbf16, #tile.shared>, !tile.tile<16x16xf32>
  return
}

// -----

func.func @dot_b(%x: !tile.tile<16x16xbf16, #tile.mma<warps = 1>>, %acc: !tile.tile<16x16xf32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{has b in #tile.mma<warps = 1>, not in #tile.shared}}
  %0 = tile.dot %x, %x, %acc : !tile.tile<16x16xbf16, #tile.mma<warps = 1>>, !tile.tile<16x16xbf16, #tile.mma<warps = 1>>, !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  return
}

// -----

func.func @dot_a(%x: !tile.tile<16x16xbf16>, %y: !tile.tile<16x16xbf16, #tile.shared>, %acc: !tile.tile<16x16xf32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{has a in no layout, neither in #tile.shared nor in #tile.mma<warps = 1>}}
  %0 = tile.dot %x, %y, %acc : !tile.tile<16x16xbf16>, !tile.tile<16x16xbf16, #tile.shared>, !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  return
}

// -----

func.func @dot_transposed(%x: !tile.tile<16x16xbf16, #tile.mma<warps = 1>>, %y: !tile.tile<16x16xbf16, #tile.shared>, %acc: !tile.tile<16x16xf32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{transposes a in #tile.mma<warps = 1>}}
  %0 = tile.dot %x, %y, %acc {transpose_a} : !tile.tile<16x16xbf16, #tile.mma<warps = 1>>, !tile.tile<16x16xbf16, #tile.shared>, !tile.tile<16x16xf32, #tile.mma<warps = 1>>
  return
}

// -----

func.func @dot_length(%x: !tile.tile<16x8xbf16, #tile.shared>, %y: !tile.tile<8x12xbf16, #tile.shared>, %acc: !tile.tile<16x12xf32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{contracts 8 elements into 12 columns; with layouts these are multiples of 16 and 8}}
  %0 = tile.dot %x, %y, %acc : !tile.tile<16x8xbf16, #tile.shared>, !tile.tile<8x12xbf16, #tile.shared>, !tile.tile<16x12xf32, #tile.mma<warps = 1>>
  return
}

// -----

func.func @dot_row(%x: !tile.tile<1x16xbf16, #tile.mma<warps = 4>>, %y: !tile.tile<16x24xbf16, #tile.shared>, %acc: !tile.tile<1x24xf32, #tile.mma<warps = 4>>) {
  // expected-error@+1 {{accumulates 1 row in #tile.mma<warps = 4>; with layouts there are 2 at least}}
  %0 = tile.dot %x, %y, %acc : !tile.tile<1x16xbf16, #tile.mma<warps = 4>>, !tile.tile<16x24xbf16, #tile.shared>, !tile.tile<1x24xf32, #tile.mma<warps = 4>>
  return
}

// -----

func.func @reduce_layout(%x: !tile.tile<16x16xf32, #tile.rematerialized>) {
  // expected-error@+1 {{input in #tile.rematerialized must have no layout or #tile.mma}}
  %0 = tile.reduce max %x {axis = 1 : i32} : !tile.tile<16x16xf32, #tile.rematerialized> -> !tile.tile<16x1xf32, #tile.rematerialized>
  return
}

// -----

func.func @convert_type(%x: !tile.tile<16x16xbf16, #tile.shared>) {
  // expected-error@+1 {{changes '!tile.tile<16x16xbf16>' to '!tile.tile<16x16xf32>'}}
  %0 = tile.convert %x : !tile.tile<16x16xbf16, #tile.shared> -> !tile.tile<16x16xf32>
  return
}

// -----

func.func @convert_rematerialized(%x: !tile.tile<16x1xi32, #tile.rematerialized>) {
  // expected-error@+1 {{has no elements to move in #tile.rematerialized}}
  %0 = tile.convert %x : !tile.tile<16x1xi32, #tile.rematerialized> -> !tile.tile<16x1xi32>
  return
}

// -----

func.func @convert_warps(%x: !tile.tile<16x1xi32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{from #tile.mma<warps = 1> to #tile.mma<warps = 2> is none between different places}}
  %0 = tile.convert %x : !tile.tile<16x1xi32, #tile.mma<warps = 1>> -> !tile.tile<16x1xi32, #tile.mma<warps = 2>>
  return
}

// -----

func.func @transpose_layout(%x: !tile.tile<16x8xf32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{needs tiles without layout, not in #tile.mma<warps = 1>}}
  %0 = tile.transpose %x : !tile.tile<16x8xf32, #tile.mma<warps = 1>> -> !tile.tile<8x16xf32>
  return
}

// -----

func.func @sort_layout(%x: !tile.tile<16x8xi32, #tile.mma<warps = 1>>) {
  // expected-error@+1 {{needs tiles without layout, not in #tile.mma<warps = 1>}}
  %0 = tile.sort %x : !tile.tile<16x8xi32, #tile.mma<warps = 1>>
  return
}

// -----

func.func @any_layout(%x: !tile.tile<16x16xi1, #tile.rematerialized>) {
  // expected-error@+1 {{needs tiles without layout, not in #tile.rematerialized}}
  %0 = tile.any %x : !tile.tile<16x16xi1, #tile.rematerialized>
  return
}

// -----

func.func @any_of_warps_layout(%x: !tile.tile<16x1xi1, #tile.rematerialized>) {
  // expected-error@+1 {{input in #tile.rematerialized must have no layout or #tile.mma}}
  %0 = tile.any %x warp_uniform : !tile.tile<16x1xi1, #tile.rematerialized>
  return
}
