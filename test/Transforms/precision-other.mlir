// RUN: nsa-opt --nsa-precision=precision=fp32 --verify-diagnostics %s

// Nothing computes in another type than the model says.
// expected-error @below {{the model's precision (bf16) is not that of the compiler (fp32): option precision=bf16 sets it}}
module attributes {nn.precision = "bf16"} {
}
