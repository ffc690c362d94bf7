//===- Convert.cpp - arrays of elements -----------------------------------===//

#include "runtime/CPU/Convert.h"
#include "lib/Support/Float16.h"

#include <algorithm>
#include <cmath>

using namespace nsa;

void nsa::widen(DataType type, const void *source, float *out, int64_t begin,
                int64_t end) {
  const auto *halves = static_cast<const uint16_t *>(source);
  if (type == DataType::F32)
    std::copy(static_cast<const float *>(source) + begin,
              static_cast<const float *>(source) + end, out + begin);
  else if (type == DataType::BF16)
    std::transform(halves + begin, halves + end, out + begin, bf16ToFloat);
  else
    std::transform(halves + begin, halves + end, out + begin, f16ToFloat);
}

void nsa::narrow(DataType type, const float *source, void *out, int64_t begin,
                 int64_t end) {
  auto *halves = static_cast<uint16_t *>(out);
  if (type == DataType::F32)
    std::copy(source + begin, source + end, static_cast<float *>(out) + begin);
  else if (type == DataType::BF16)
    std::transform(source + begin, source + end, halves + begin, floatToBF16);
  else
    std::transform(source + begin, source + end, halves + begin, floatToF16);
}

void nsa::fill(DataType type, double value, void *out, int64_t begin,
               int64_t end) {
  auto set = [&](auto element) {
    using Element = decltype(element);
    std::fill(static_cast<Element *>(out) + begin,
              static_cast<Element *>(out) + end, element);
  };
  switch (type) {
  case DataType::F32:
    return set(float(value));
  case DataType::BF16:
    return set(floatToBF16(float(value)));
  case DataType::F16:
    return set(floatToF16(float(value)));
  case DataType::I32:
    return set(int32_t(value));
  case DataType::I64:
    return set(int64_t(value));
  case DataType::U8:
    return set(uint8_t(value));
  }
}

int64_t nsa::findNonFinite(DataType type, const void *values, int64_t count,
                           bool allowMinusInfinity) {
  for (int64_t i = 0; i < count; ++i) {
    double value = elementAt(type, values, i);
    if (!std::isfinite(value) &&
        !(allowMinusInfinity && std::isinf(value) && value < 0))
      return i;
  }
  return -1;
}

double nsa::elementAt(DataType type, const void *values, int64_t index) {
  switch (type) {
  case DataType::F32:
    return static_cast<const float *>(values)[index];
  case DataType::BF16:
    return bf16ToFloat(static_cast<const uint16_t *>(values)[index]);
  case DataType::F16:
    return f16ToFloat(static_cast<const uint16_t *>(values)[index]);
  case DataType::I32:
    return static_cast<const int32_t *>(values)[index];
  case DataType::I64:
    return double(static_cast<const int64_t *>(values)[index]);
  case DataType::U8:
    return static_cast<const uint8_t *>(values)[index];
  }
  return 0;
}
