//===- ThreadPool.h - persistent threads for one program --------*- C++ -*-===//
//
// The pool's first thread, the leader, executes a whole job and distributes its
// loops; the others help. The caller's thread only waits, so that kernels
// always have the pool's large stacks.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_CPU_THREADPOOL_H
#define NSA_RUNTIME_CPU_THREADPOOL_H

#include "lib/Support/Fork.h"
#include "nsa/Support/Result.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <type_traits>
#include <vector>

namespace nsa {

/// A callable by reference: no allocation, and the callee must not outlive it.
template <typename... Arguments>
class CallableRef {
public:
  template <typename Callable, typename = std::enable_if_t<!std::is_same_v<
                                   std::decay_t<Callable>, CallableRef>>>
  CallableRef(Callable &&callable)
      : object(const_cast<void *>(static_cast<const void *>(&callable))),
        call([](void *object, Arguments... arguments) {
          (*static_cast<std::remove_reference_t<Callable> *>(object))(
              arguments...);
        }) {}

  void operator()(Arguments... arguments) const { call(object, arguments...); }

private:
  void *object;
  void (*call)(void *, Arguments...);
};

class ThreadPool {
public:
  /// The stack of each thread, in bytes.
  static constexpr size_t stackBytes = size_t(8) << 20;

  /// Starts `threads` >= 1 threads.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);

  /// Ends the threads. No job may be running.
  ~ThreadPool();

  int threads() const { return int(handles.size()); }

  /// Whether its threads exist: not in a forked child, where a pool is unusable
  /// and even its destructor would wait for them.
  bool hasThreads() const { return generation == forkGeneration(); }

  /// Runs `job` on the leader and waits for its end.
  void execute(CallableRef<> job);

  /// Calls `body(begin, end)` for disjoint ranges that cover 0..count-1, on all
  /// threads, and waits for the last. Only inside a job, and not nested. Which
  /// ranges there are depends on the number of threads.
  void parallelFor(int64_t count, CallableRef<int64_t, int64_t> body);

  /// Calls `body(thread)` once on each thread. Only inside a job.
  void onEachThread(CallableRef<int64_t> body);

private:
  ThreadPool() = default;
  static void *enterLeader(void *pool);
  static void *enterHelper(void *pool);
  void lead();
  void help();
  uint64_t awaitLoop(uint64_t last);
  void open(int64_t count, int64_t chunk, CallableRef<int64_t, int64_t> body);
  void work();

  std::vector<pthread_t> handles;
  const uint64_t generation = forkGeneration();

  // The job that the leader waits for.
  std::mutex jobMutex;
  std::condition_variable jobChanged;
  const CallableRef<> *job = nullptr;
  bool stopping = false;

  // The loop. Odd epochs are open: helpers may join. A helper raises `active`
  // before it looks at the epoch and the leader closes the epoch before it
  // looks at `active`, so no helper touches a loop that has ended.
  alignas(64) std::atomic<uint64_t> epoch{0};
  alignas(64) std::atomic<int64_t> active{0};
  alignas(64) std::atomic<int64_t> next{0};
  int64_t count = 0;
  int64_t chunk = 1;
  const CallableRef<int64_t, int64_t> *body = nullptr;

  // Helpers that stopped spinning.
  std::mutex sleepMutex;
  std::condition_variable wake;
  std::atomic<int> sleepers{0};
  std::atomic<bool> ending{false};
};

} // namespace nsa

#endif // NSA_RUNTIME_CPU_THREADPOOL_H
