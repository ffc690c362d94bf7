// RUN: nsa-opt %s --nsa-serialize-kernels --split-input-file --verify-diagnostics

// expected-error @+1 {{'gpu.module' op has no #nvvm.target, or others with it}}
gpu.module @device {
}

// -----

// expected-error @+1 {{'gpu.module' op is for an unknown chip 'sm_70'}}
gpu.module @device [#nvvm.target<chip = "sm_70">] {
}

// -----

module {
  // expected-error @+1 {{'rt.kernel' op was not lowered to a function}}
  rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> () {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32,
      code_bytes = 0 : i64, stack_bytes = 0 : i64}
  gpu.module @device [#nvvm.target<chip = "sm_80">] {
  }
}
