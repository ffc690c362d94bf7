//===- InThreads.h - ranks as threads of a test -----------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_DISTRIBUTED_INTHREADS_H
#define NSA_TEST_UNIT_DISTRIBUTED_INTHREADS_H

#include <functional>
#include <thread>
#include <vector>

namespace nsa {

/// Calls `body(rank)` for every rank at once, and waits for all.
inline void inThreads(int size, const std::function<void(int)> &body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace nsa

#endif // NSA_TEST_UNIT_DISTRIBUTED_INTHREADS_H
