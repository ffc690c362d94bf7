//===- Rounding.h - what storage in 16 bits loses ---------------*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_ROUNDING_H
#define NSA_LIB_REFERENCE_KERNELS_ROUNDING_H

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Support/Float16.h"

namespace nsa::reference {

/// The nearest number of a type, ties to even.
using Round = double (*)(double);

inline double keep(double x) { return x; }
inline double roundBF16(double x) {
  return bf16ToFloat(floatToBF16(static_cast<float>(x)));
}
inline double roundF16(double x) {
  return f16ToFloat(floatToF16(static_cast<float>(x)));
}

/// What `arithmetic` does to the operands of matmuls and to results.
inline Round getRounding(Arithmetic arithmetic) {
  switch (arithmetic) {
  case Arithmetic::BF16:
    return roundBF16;
  case Arithmetic::F16:
    return roundF16;
  default:
    return keep;
  }
}

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_ROUNDING_H
