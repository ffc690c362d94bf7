//===- Arithmetic.h - how formulas are evaluated ----------------*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_ARITHMETIC_H
#define NSA_LIB_REFERENCE_KERNELS_ARITHMETIC_H

namespace nsa::reference {

/// How a formula is evaluated. The reference is F64; the others measure the
/// error that the types of a kernel cause, whatever its order of summation.
enum class Arithmetic {
  F64,
  /// Every product, sum and exponential in fp32.
  F32,
  /// F32, with probabilities and their gradients rounded to bf16 where they are
  /// operands of a matmul, and results rounded to bf16.
  BF16,
  /// The same with f16.
  F16
};

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_ARITHMETIC_H
