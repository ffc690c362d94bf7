//===- SummationOrder.h - orders in which terms are added -------*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_SUMMATIONORDER_H
#define NSA_LIB_REFERENCE_KERNELS_SUMMATIONORDER_H

#include <cstdint>
#include <numeric>
#include <utility>

namespace nsa::reference {

/// In which order the terms of dot products are added. Order 0 is the plain
/// one; with any other each product has terms in an order of its own, so that
/// the rounding errors of two evaluations are independent draws.
class SummationOrder {
public:
  /// Each `stream` of an order draws orders of its own.
  explicit SummationOrder(unsigned order, uint64_t stream = 0)
      : order(order), state(order) {
    if (stream > 0) {
      state += stream << 32;
      state = draw();
    }
  }

  /// A first term and a step of at most `n` that visits all of `n` terms.
  std::pair<int64_t, int64_t> next(int64_t n) {
    if (order == 0)
      return {0, 1};
    uint64_t bits = draw();
    int64_t step = 1 + static_cast<int64_t>((bits >> 32) % n);
    while (std::gcd(step, n) != 1)
      ++step;
    return {static_cast<int64_t>((bits & 0xffffffffu) % n), step % n};
  }

private:
  /// SplitMix64 (Steele, Lea and Flood 2014).
  uint64_t draw() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  unsigned order;
  uint64_t state;
};

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_SUMMATIONORDER_H
