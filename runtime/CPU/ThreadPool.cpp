//===- ThreadPool.cpp - persistent threads for one program ----------------===//

#include "runtime/CPU/ThreadPool.h"

#include <algorithm>
#include <cstring>
#include <sched.h>

using namespace nsa;

/// How often a thread looks before it sleeps or yields: some tens of
/// microseconds, more than the gap between two commands.
static constexpr int spins = 1000;

static inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stackBytes);
  int failure = 0;
  for (int i = 0; i < threads && failure == 0; ++i) {
    pthread_t handle;
    failure = pthread_create(&handle, &attributes,
                             i == 0 ? enterLeader : enterHelper, pool.get());
    if (failure == 0)
      pool->handles.push_back(handle);
  }
  pthread_attr_destroy(&attributes);
  if (failure != 0)
    return Error{"cannot start thread " + std::to_string(pool->handles.size()) +
                 " of " + std::to_string(threads) + ": " +
                 std::strerror(failure)};
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(jobMutex);
    stopping = true;
    jobChanged.notify_all();
  }
  {
    std::lock_guard<std::mutex> lock(sleepMutex);
    ending = true;
    wake.notify_all();
  }
  for (pthread_t handle : handles)
    pthread_join(handle, nullptr);
}

void *ThreadPool::enterLeader(void *pool) {
  static_cast<ThreadPool *>(pool)->lead();
  return nullptr;
}

void *ThreadPool::enterHelper(void *pool) {
  static_cast<ThreadPool *>(pool)->help();
  return nullptr;
}

void ThreadPool::lead() {
  std::unique_lock<std::mutex> lock(jobMutex);
  while (true) {
    jobChanged.wait(lock, [&] { return job || stopping; });
    if (stopping)
      return;
    lock.unlock();
    (*job)();
    lock.lock();
    job = nullptr;
    jobChanged.notify_all();
  }
}

void ThreadPool::execute(CallableRef<> newJob) {
  std::unique_lock<std::mutex> lock(jobMutex);
  job = &newJob;
  jobChanged.notify_all();
  jobChanged.wait(lock, [&] { return !job; });
}

/// Waits for an open loop other than `last` and returns its epoch, or 0 when
/// the pool ends.
uint64_t ThreadPool::awaitLoop(uint64_t last) {
  auto ready = [&] {
    uint64_t now = epoch.load();
    return ((now & 1) && now != last) || ending.load();
  };
  for (int i = 0; i < spins && !ready(); ++i)
    pause();
  if (!ready()) {
    std::unique_lock<std::mutex> lock(sleepMutex);
    sleepers.fetch_add(1);
    wake.wait(lock, ready);
    sleepers.fetch_sub(1);
  }
  return ending.load() ? 0 : epoch.load();
}

void ThreadPool::help() {
  uint64_t last = 0;
  while (uint64_t found = awaitLoop(last)) {
    active.fetch_add(1);
    uint64_t now = epoch.load();
    if (now & 1) {
      work();
      last = now;
    } else {
      last = found;
    }
    active.fetch_sub(1);
  }
}

/// Takes chunks until none is left.
void ThreadPool::work() {
  while (true) {
    int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= count)
      return;
    (*body)(begin, std::min(begin + chunk, count));
  }
}

/// Lets all threads work on a loop until its end.
void ThreadPool::open(int64_t newCount, int64_t newChunk,
                      CallableRef<int64_t, int64_t> newBody) {
  count = newCount;
  chunk = newChunk;
  body = &newBody;
  next.store(0);
  epoch.fetch_add(1);
  if (sleepers.load() > 0) {
    // A sleeper holds the mutex from its last look to its sleep.
    std::lock_guard<std::mutex> lock(sleepMutex);
    wake.notify_all();
  }
  work();
  epoch.fetch_add(1);
  for (int i = 0; active.load() != 0; ++i)
    i < spins ? pause() : void(sched_yield());
}

void ThreadPool::parallelFor(int64_t count,
                             CallableRef<int64_t, int64_t> body) {
  if (count <= 0)
    return;
  if (count == 1 || threads() == 1)
    return body(0, count);
  // Small chunks even out causal grids, whose last programs do most.
  open(count, std::max<int64_t>(1, count / (threads() * 8)), body);
}

void ThreadPool::onEachThread(CallableRef<int64_t> body) {
  // A thread that took its one iteration waits until all have been taken.
  std::atomic<int64_t> arrived{0};
  int64_t all = threads();
  auto once = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      body(i);
    arrived.fetch_add(end - begin);
    while (arrived.load() < all)
      sched_yield();
  };
  if (all == 1)
    return body(0);
  open(all, 1, once);
}
