//===- Fork.h - what survives fork() ----------------------------*- C++ -*-===//
//
// A child has the memory of its parent and one of its threads: pools are
// without threads there, and what other threads had locked stays locked.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_FORK_H
#define NSA_SUPPORT_FORK_H

#include <cstdint>

namespace nsa {

/// How many calls of fork() lie between this process and the first one that
/// used this library: what belongs to another number has lost its threads.
uint64_t forkGeneration();

/// While one lives, fork() in another thread waits. Not to be nested.
class NoFork {
public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork &) = delete;
  NoFork &operator=(const NoFork &) = delete;
};

} // namespace nsa

#endif // NSA_SUPPORT_FORK_H
