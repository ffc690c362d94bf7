// RUN: nsa-opt %s --split-input-file --verify-diagnostics

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
