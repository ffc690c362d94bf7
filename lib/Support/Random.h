//===- Random.h - cryptographically secure random bytes ---------*- C++ -*-===//

#ifndef NSA_SUPPORT_RANDOM_H
#define NSA_SUPPORT_RANDOM_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <string>

namespace nsa {

/// `count` bytes of the kernel's generator (getrandom).
Result<std::string> randomBytes(size_t count);

/// The same as 2 * `count` lower-case hexadecimal digits.
Result<std::string> randomHex(size_t count);

} // namespace nsa

#endif // NSA_SUPPORT_RANDOM_H
