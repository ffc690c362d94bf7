//===- Float16.h - 16-bit floats in software --------------------*- C++ -*-===//
//
// Conversions between fp32 and the bits of bfloat16 and IEEE half. To 16 bits
// they round to nearest, ties to even; a NaN stays a NaN.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_FLOAT16_H
#define NSA_SUPPORT_FLOAT16_H

#include <cstdint>
#include <cstring>

namespace nsa {

inline uint32_t bitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float floatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bf16ToFloat(uint16_t bits) {
  return floatOfBits(uint32_t(bits) << 16);
}

inline uint16_t floatToBF16(float value) {
  uint32_t bits = bitsOfFloat(value);
  uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  uint32_t quiet = bits >> 16 | 0x40;
  return uint16_t((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

inline float f16ToFloat(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 31, fraction = half & 0x3FF;
  if (exponent == 31)
    return floatOfBits(sign | 0x7F800000 | fraction << 13);
  if (exponent != 0)
    return floatOfBits(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = float(fraction) * 0x1p-24f;
  return floatOfBits(sign | bitsOfFloat(magnitude));
}

inline uint16_t floatToF16(float value) {
  uint32_t bits = bitsOfFloat(value);
  uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)
    return sign | 0x7E00;
  if (magnitude >= 0x477FF000)
    return sign | 0x7C00;
  if (magnitude < 0x38800000) {
    // Adding 0.5 leaves the subnormal's bits, rounded, in the low fraction.
    float shifted = floatOfBits(magnitude) + 0.5f;
    return sign | uint16_t(bitsOfFloat(shifted) - 0x3F000000);
  }
  uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return sign | uint16_t((rounded >> 13) - (112u << 10));
}

} // namespace nsa

#endif // NSA_SUPPORT_FLOAT16_H
