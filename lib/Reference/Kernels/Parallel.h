//===- Parallel.h - rows of the reference on all processors -----*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_PARALLEL_H
#define NSA_LIB_REFERENCE_KERNELS_PARALLEL_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace nsa::reference {

inline int64_t processors() {
  return std::max(1u, std::thread::hardware_concurrency());
}

/// Calls `body(begin, end)` for parts of [0, count) of `part` each, in any
/// order: on all processors if `work`, the steps of all of them, is worth the
/// threads. No two parts write the same.
template <typename Body>
void forEachPart(int64_t count, int64_t part, double work, const Body &body) {
  int64_t parts = (count + part - 1) / part;
  int64_t threads = std::min(parts, processors());
  std::atomic<int64_t> next = 0;
  auto take = [&] {
    for (int64_t i = next++; i < parts; i = next++)
      body(i * part, std::min(count, (i + 1) * part));
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads && work >= 1e6; ++i)
    others.emplace_back(take);
  take();
  for (std::thread &thread : others)
    thread.join();
}

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_PARALLEL_H
