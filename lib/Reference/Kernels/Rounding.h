//===- Rounding.h - what storage in bf16 loses ------------------*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_ROUNDING_H
#define NSA_LIB_REFERENCE_KERNELS_ROUNDING_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace nsa::reference {

/// The nearest bfloat16 number, ties to even.
inline double roundBf16(double x) {
  auto single = static_cast<float>(x);
  if (!std::isfinite(single))
    return single;
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  bits += 0x7fff + ((bits >> 16) & 1);
  bits &= 0xffff0000u;
  std::memcpy(&single, &bits, sizeof bits);
  return single;
}

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_ROUNDING_H
