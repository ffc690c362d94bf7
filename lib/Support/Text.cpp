//===- Text.cpp - small conversions to text -------------------------------===//

#include "lib/Support/Text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

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

size_t utf8Length(const char *text, size_t size) {
  if (size == 0)
    return 0;
  unsigned char lead = static_cast<unsigned char>(text[0]);
  size_t length = lead < 0x80                   ? 1
                  : lead >= 0xC2 && lead < 0xE0 ? 2
                  : lead >= 0xE0 && lead < 0xF0 ? 3
                  : lead >= 0xF0 && lead < 0xF5 ? 4
                                                : 0;
  if (length > size)
    return 0;
  for (size_t i = 1; i < length; ++i)
    if ((text[i] & 0xC0) != 0x80)
      return 0;
  return length;
}

/// The printable characters of a text, with '?' for the rest.
static std::string show(const std::string &text, bool keepLines) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    size_t length = utf8Length(&text[i], text.size() - i);
    unsigned char lead = static_cast<unsigned char>(text[i]);
    bool layout = keepLines && (lead == '\n' || lead == '\t');
    bool control = (lead < 0x20 && !layout) || lead == 0x7F;
    if (length == 0 || control)
      shown += '?';
    else
      shown.append(text, i, length);
    i += length == 0 ? 1 : length;
  }
  return shown;
}

std::string printable(const std::string &text) {
  return show(text, /*keepLines=*/true);
}

std::string oneLine(const std::string &text) {
  return show(text, /*keepLines=*/false);
}

std::string shortened(const std::string &text, size_t most) {
  constexpr const char *gap = "...";
  if (text.size() <= most)
    return text;
  auto isInside = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  size_t kept = (most - std::min(most, std::strlen(gap))) / 2;
  size_t end = kept, begin = text.size() - kept;
  while (end > 0 && isInside(end))
    --end;
  while (begin < text.size() && isInside(begin))
    ++begin;
  return text.substr(0, end) + gap + text.substr(begin);
}

std::string quote(const std::string &text) {
  return "'" + shortened(oneLine(text)) + "'";
}

std::string formatted(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(size_t(std::max(size, 0)), '\0');
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  va_end(arguments);
  return text;
}

std::string grouped(unsigned long long value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3)
    text.insert(at - 3, ",");
  return text;
}

} // namespace nsa
