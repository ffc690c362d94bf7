//===- ThreadPoolTest.cpp - the runtime's threads -------------------------===//

#include "runtime/CPU/ThreadPool.h"

#include <chrono>
#include <gtest/gtest.h>
#include <set>
#include <thread>

using namespace nsa;

namespace {

std::unique_ptr<ThreadPool> makePool(int threads) {
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(threads);
  EXPECT_TRUE(pool.ok()) << pool.message();
  return std::move(*pool);
}

} // namespace

TEST(ThreadPool, Loops_CoverEveryIndexOnce) {
  for (int threads : {1, 2, 4, 16}) {
    std::unique_ptr<ThreadPool> pool = makePool(threads);
    for (int64_t count : {0, 1, 2, 7, 1000, 4097}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool->execute([&] {
        pool->parallelFor(count, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            ++seen[size_t(i)];
        });
      });
      for (std::atomic<int> &times : seen)
        ASSERT_EQ(times, 1);
    }
  }
}

// Thousands of loops of few iterations, with pauses in which helpers fall
// asleep: what is lost or run twice shows in the sum.
TEST(ThreadPool, ManyShortLoops_RunInOneJob) {
  std::unique_ptr<ThreadPool> pool = makePool(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 20; ++round) {
    pool->execute([&] {
      for (int64_t loop = 0; loop < 500; ++loop)
        pool->parallelFor(
            5, [&](int64_t begin, int64_t end) { sum += end - begin; });
    });
    if (round % 5 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sum, 20 * 500 * 5);
}

// Each loop reads what all threads wrote in the one before, without locks.
TEST(ThreadPool, Loops_SeeWhatEarlierLoopsWrote) {
  std::unique_ptr<ThreadPool> pool = makePool(3);
  const int64_t count = 20000;
  std::vector<int64_t> from(count, 0), to(count, 0);
  pool->execute([&] {
    for (int64_t step = 0; step < 200; ++step) {
      pool->parallelFor(count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          to[size_t(i)] = from[size_t(count - 1 - i)] + 1;
      });
      std::swap(from, to);
    }
  });
  for (int64_t value : from)
    ASSERT_EQ(value, 200);
}

TEST(ThreadPool, EveryThread_HasItsTurn) {
  std::unique_ptr<ThreadPool> pool = makePool(6);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  pool->execute([&] {
    pool->onEachThread([&](int64_t) {
      std::lock_guard<std::mutex> lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  });
  EXPECT_EQ(threads.size(), 6u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}
