//===- Signals.cpp - stopping and looking at a run ------------------------===//

#include "runtime/Train/Signals.h"

#include <atomic>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace nsa {

// Handlers can reach nothing but globals of this type.
static volatile std::sig_atomic_t stopSignal = 0;
static volatile std::sig_atomic_t dumpRequested = 0;
/// The exit code of stops while there is nothing to save.
static volatile std::sig_atomic_t leaveCode = 0;
/// Scopes that live, and what the first of them found.
static std::atomic<int> depth = 0;
static struct sigaction old[5];

/// A terminal and a launcher may both forward the same Ctrl-C.
static constexpr long sameRequestMilliseconds = 1000;

extern "C" {
static void leaveEarly() {
  static const char text[] = "stopped before the first step\n";
  if (leaveCode == 0)
    return;
  [[maybe_unused]] ssize_t written = ::write(2, text, sizeof text - 1);
  ::_exit(leaveCode);
}
static void onStop(int signal) {
  leaveEarly();
  stopSignal = signal;
}
static void onInterrupt(int signal) {
  leaveEarly();
  static timespec first;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (stopSignal != SIGINT) {
    first = now;
    stopSignal = SIGINT;
  } else if ((now.tv_sec - first.tv_sec) * 1000 +
                 (now.tv_nsec - first.tv_nsec) / 1000000 >=
             sameRequestMilliseconds) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}
static void onDump(int) { dumpRequested = 1; }
}

static void install(int signal, void (*handler)(int), int flags,
                    struct sigaction &old) {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &old);
}

SignalScope::SignalScope(int leaveWith) {
  leaveCode = leaveWith;
  if (depth++ > 0)
    return;
  stopSignal = 0;
  dumpRequested = 0;
  install(SIGINT, onInterrupt, SA_RESTART, old[0]);
  install(SIGTERM, onStop, SA_RESTART, old[1]);
  install(SIGHUP, onStop, SA_RESTART, old[2]);
  // nohup means it.
  if (old[2].sa_handler == SIG_IGN)
    sigaction(SIGHUP, &old[2], nullptr);
  install(SIGUSR1, onDump, SA_RESTART, old[3]);
  install(SIGPIPE, SIG_IGN, 0, old[4]);
}

SignalScope::~SignalScope() {
  if (--depth > 0)
    return;
  const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
  for (int i = 0; i < 5; ++i)
    sigaction(signals[i], &old[i], nullptr);
}

int SignalScope::stopRequested() const { return stopSignal; }

bool SignalScope::takeDumpRequest() {
  bool requested = dumpRequested != 0;
  dumpRequested = 0;
  return requested;
}

} // namespace nsa
