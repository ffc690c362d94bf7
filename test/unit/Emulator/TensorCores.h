//===- TensorCores.h - numbers of products ----------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_TENSORCORES_H
#define NSA_TEST_UNIT_EMULATOR_TENSORCORES_H

#include "lib/Support/Float16.h"

#include <cmath>
#include <cstdint>

namespace nsa::emulator {

/// The number in the low half of a register.
inline float widen(uint32_t bits, bool isBF16) {
  auto half = uint16_t(bits);
  return isBF16 ? bf16ToFloat(half) : f16ToFloat(half);
}

/// Tensor cores add the products of one instruction, and the sum so far, and
/// then drop the digits that do not fit. So a sum depends on which of its
/// products share an instruction.
inline float cutToFloat(double sum) {
  auto nearest = float(sum);
  return std::fabs(double(nearest)) > std::fabs(sum) && std::isfinite(nearest)
             ? std::nextafterf(nearest, 0.0F)
             : nearest;
}

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_TENSORCORES_H
