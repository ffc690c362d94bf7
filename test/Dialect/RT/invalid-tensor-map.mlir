// RUN: nsa-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{elements of a tensor map are f32, bf16, f16 or i32, not 'i64'}}
#map = #rt.tensor_map<argument = 0, element = i64, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{a tensor map has 1 to 5 dimensions, not 0}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64>, strides = array<i64>, box = array<i64>, swizzle = 0>

// -----

// expected-error @below {{a tensor map has 1 to 5 dimensions, not 6}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 8, 1, 1, 1, 1, 1>, strides = array<i64: 16, 16, 16, 16, 16>, box = array<i64: 8, 1, 1, 1, 1, 1>, swizzle = 0>

// -----

// expected-error @below {{a tensor map of 2 dimensions has 1 strides, not 2}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128, 1024>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{a tensor map of 2 dimensions has a box of as many, not 3}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1, 1>, swizzle = 0>

// -----

// expected-error @below {{extent -1 of dimension 0 is not between 1 and 4294967296}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: -1, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{extent 4294967297 of dimension 1 is not between 1 and 4294967296}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 4294967297>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{stride 136 of dimension 1 is not a multiple of 16 between 1 and 1099511627775}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 136>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{stride 0 of dimension 1 is not a multiple of 16}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 0>, box = array<i64: 64, 1>, swizzle = 0>

// -----

// expected-error @below {{stride 1099511627776 of dimension 2 is not a multiple of 16}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8, 2>, strides = array<i64: 128, 1099511627776>, box = array<i64: 64, 1, 1>, swizzle = 0>

// -----

// expected-error @below {{box 264 of dimension 0 is not between 1 and 256}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 264, 1>, swizzle = 0>

// -----

// expected-error @below {{a row of the box has 24 bytes, which is not a multiple of 16}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 12, 1>, swizzle = 0>

// -----

// expected-error @below {{a swizzle of 48 bytes is none of 0, 32, 64 and 128}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 48>

// -----

// expected-error @below {{a row of the box has 128 bytes, but the swizzle 64}}
#map = #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 64>

// -----

// The limits themselves are legal.
#map = #rt.tensor_map<argument = 7, element = f32, extents = array<i64: 4294967296, 1>, strides = array<i64: 1099511627760>, box = array<i64: 256, 256>, swizzle = 0>

// -----

// expected-error @below {{tensor map 0 is of argument 1, but there are 1}}
rt.kernel @k : (memref<8x64xbf16>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [#rt.tensor_map<argument = 1, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>]}

// -----

// expected-error @below {{tensor map 0 has elements of type 'f16', but argument 0 has type 'memref<8x64xbf16>'}}
rt.kernel @k : (memref<8x64xbf16>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [#rt.tensor_map<argument = 0, element = f16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>]}

// -----

// expected-error @below {{tensor map 1 describes 1152 bytes of argument 0, which has 1024}}
rt.kernel @k : (memref<8x64xbf16>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>, #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 9>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>]}

// -----

// expected-error @below {{tensor map 0 describes 18446744073709551615 bytes of argument 0, which has 1024}}
rt.kernel @k : (memref<8x64xbf16>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 16777218>, strides = array<i64: 1099511627760>, box = array<i64: 64, 1>, swizzle = 0>]}

// -----

// expected-error @below {{tensor map 0 is of argument 0 of type 'memref<8x64xbf16, strided<[1, 8]>>', which does not lie in rows}}
rt.kernel @k : (memref<8x64xbf16, strided<[1, 8]>>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 64, 8>, strides = array<i64: 128>, box = array<i64: 64, 1>, swizzle = 0>]}

// -----

// expected-error @+2 {{attribute 'tensor_maps' failed to satisfy constraint: array of tensor maps}}
rt.kernel @k : (memref<8x64xbf16>) -> ()
    {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32, code_bytes = 0 : i64, stack_bytes = 0 : i64,
     tensor_maps = [1 : i64]}
