//===- SignalBlockedThread.h - threads that take no signals -----*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_SIGNALBLOCKEDTHREAD_H
#define NSA_RUNTIME_DISTRIBUTED_SIGNALBLOCKEDTHREAD_H

#include <csignal>
#include <thread>
#include <utility>

namespace nsa {

/// Starts a thread that blocks every signal from its beginning, as do those
/// that a library makes there: a library may keep some for as long as it
/// likes, signals are for the thread that waits for them, and where a
/// connection has ended or nobody reads, writing is an error, no signal that
/// ends the process.
template <typename Body>
std::thread startSignalBlockedThread(Body &&body) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return thread;
}

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_SIGNALBLOCKEDTHREAD_H
