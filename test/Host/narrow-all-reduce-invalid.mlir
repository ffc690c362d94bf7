// RUN: nsa-opt %s --nsa-compress-gradients --verify-diagnostics

// Kernels count elements in 32 bits.
rt.tensor gradient @a : memref<65536x32768xf32> init #nn.init<constant, 0.0>
rt.entry @update inputs [] outputs [] {
  %a = rt.get @a : memref<65536x32768xf32>
  // expected-error @+1 {{a kernel would count 2147483648 elements, more than the 2147467263 that it can}}
  rt.collective_start all_reduce %a : memref<65536x32768xf32>
  rt.collective_done %a : memref<65536x32768xf32>
}
