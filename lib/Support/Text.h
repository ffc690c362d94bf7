//===- Text.h - small conversions to text -----------------------*- C++ -*-===//

#ifndef NSA_SUPPORT_TEXT_H
#define NSA_SUPPORT_TEXT_H

#include <string>

namespace nsa {

/// The shortest decimal that reads back as the same number, such as 0.05;
/// `nan`, `inf` and `-inf` for what is not finite.
std::string shortest(double value);
std::string shortest(float value);

} // namespace nsa

#endif // NSA_SUPPORT_TEXT_H
