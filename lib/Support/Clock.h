//===- Clock.h - time that only grows ---------------------------*- C++ -*-===//

#ifndef NSA_LIB_SUPPORT_CLOCK_H
#define NSA_LIB_SUPPORT_CLOCK_H

#include <chrono>
#include <cstdint>

namespace nsa {

/// Nanoseconds of the steady clock.
inline uint64_t steadyNanoseconds() {
  return uint64_t(std::chrono::nanoseconds(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

} // namespace nsa

#endif // NSA_LIB_SUPPORT_CLOCK_H
