//===- Text.cpp - small conversions to text -------------------------------===//

#include "lib/Support/Text.h"

#include <charconv>
#include <cmath>

namespace nsa {

template <typename T>
static std::string print(T value) {
  if (std::isnan(value))
    return "nan";
  char text[64];
  std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string shortest(double value) { return print(value); }
std::string shortest(float value) { return print(value); }

} // namespace nsa
