//===- Text.h - small conversions to text -----------------------*- C++ -*-===//

#ifndef NSA_SUPPORT_TEXT_H
#define NSA_SUPPORT_TEXT_H

#include <cstddef>
#include <string>

namespace nsa {

/// The shortest decimal that reads back as the same number, such as 0.05;
/// `nan`, `inf` and `-inf` for what is not finite.
std::string shortest(double value);
std::string shortest(float value);

/// Bytes of the UTF-8 sequence that starts at `text`, or 0 if the `size` bytes
/// there do not start with one.
size_t utf8Length(const char *text, size_t size);

/// Text that a terminal can show: newlines and tabs stay, other control
/// characters and bytes that are not UTF-8 become '?'.
std::string printable(const std::string &text);

/// The same on one line: newlines and tabs become '?' as well. For what a
/// message quotes from a file.
std::string oneLine(const std::string &text);

/// Characters of foreign text in a message at most.
constexpr size_t kMostQuoted = 200;

/// The beginning and the end of a text of more than `most` bytes, with "..."
/// between them; sequences of UTF-8 stay whole.
std::string shortened(const std::string &text, size_t most = kMostQuoted);

/// A text that came from outside, in quotes and on one line, for a message:
/// what a terminal cannot show is '?', and a long text is shortened.
std::string quote(const std::string &text);

/// What printf would print.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char *format, ...);

/// 1234567 as 1,234,567.
std::string grouped(unsigned long long value);

} // namespace nsa

#endif // NSA_SUPPORT_TEXT_H
