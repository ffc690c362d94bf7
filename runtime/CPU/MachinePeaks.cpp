//===- MachinePeaks.cpp - what this processor can do at best --------------===//

#include "runtime/CPU/MachinePeaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

using namespace nsa;

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

// Twelve sums hide the latency of four cycles of two units, with slack.
static constexpr int sums = 12;

#if defined(__x86_64__)
namespace {
typedef float Vector256 __attribute__((vector_size(32)));
typedef float Vector512 __attribute__((vector_size(64)));
} // namespace

/// Runs `steps` times a multiply-add on each of the sums, in registers.
template <typename Vector>
static inline __attribute__((always_inline)) float multiplyAdd(int64_t steps) {
  // Nothing is known about the factors, nor that the sums are equal.
  volatile float half = 0.5f;
  Vector acc[sums] = {}, x = acc[0] + half, y = acc[0] + half;
  for (Vector &sum : acc)
    sum += half;
  for (int64_t i = 0; i < steps; ++i)
#pragma GCC unroll 12
    for (int s = 0; s < sums; ++s)
      acc[s] = acc[s] * x + y;
  float total = 0;
  for (int s = 0; s < sums; ++s)
    total += acc[s][0];
  return total;
}

__attribute__((target("avx2,fma"))) static float multiplyAdd256(int64_t steps) {
  return multiplyAdd<Vector256>(steps);
}

__attribute__((target("avx512f"))) static float multiplyAdd512(int64_t steps) {
  return multiplyAdd<Vector512>(steps);
}
#endif

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

/// Seconds from the moment at which all threads begin `work` until the last has
/// ended it.
static double timeTogether(int threads, const std::function<void(int)> &work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  auto run = [&](int thread) {
    ready.fetch_add(1);
    while (!go.load())
      std::this_thread::yield();
    work(thread);
  };
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(run, thread);
  while (ready.load() < threads - 1)
    std::this_thread::yield();
  auto start = std::chrono::steady_clock::now();
  go.store(true);
  work(0);
  for (std::thread &other : others)
    other.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The largest `amount` per second of several rounds.
static double best(int threads, double amount,
                   const std::function<void(int)> &work) {
  constexpr int rounds = 12;
  double seconds = timeTogether(threads, work);
  for (int round = 1; round < rounds; ++round)
    seconds = std::min(seconds, timeTogether(threads, work));
  return amount / seconds;
}

static void measureFlops(MachinePeaks &peaks) {
#if defined(__x86_64__)
  constexpr int64_t steps = 1'000'000;
  [[maybe_unused]] static volatile float sink;
  double perLane = 2.0 * sums * double(steps) * peaks.threads;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    peaks.flops = best(peaks.threads, 8 * perLane,
                       [](int) { sink = multiplyAdd256(steps); });
  if (__builtin_cpu_supports("avx512f"))
    peaks.wideFlops = best(peaks.threads, 16 * perLane,
                           [](int) { sink = multiplyAdd512(steps); });
#endif
}

static void measureCopy(MachinePeaks &peaks) {
  constexpr size_t bytes = size_t(32) << 20;
  struct Buffers {
    std::vector<char> from = std::vector<char>(bytes, 1);
    std::vector<char> to = std::vector<char>(bytes, 2);
  };
  std::vector<Buffers> buffers(static_cast<size_t>(peaks.threads));
  peaks.copy =
      best(peaks.threads, 2.0 * double(bytes) * peaks.threads, [&](int thread) {
        Buffers &own = buffers[static_cast<size_t>(thread)];
        std::memcpy(own.to.data(), own.from.data(), bytes);
      });
}

void MachinePeaks::raiseTo(const MachinePeaks &other) {
  flops = std::max(flops, other.flops);
  wideFlops = std::max(wideFlops, other.wideFlops);
  copy = std::max(copy, other.copy);
}

MachinePeaks nsa::measurePeaks(int threads) {
  MachinePeaks peaks;
  peaks.threads = std::max(1, threads);
  measureFlops(peaks);
  measureCopy(peaks);
  return peaks;
}
