//===- Fork.cpp - what survives fork() ------------------------------------===//

#include "lib/Support/Fork.h"

#include <pthread.h>

using namespace nsa;

// Writers, which are forks, come first: calls of other threads may follow one
// another without a gap.
static pthread_rwlock_t sections =
    PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static uint64_t generation = 0;

static void beforeFork() { pthread_rwlock_wrlock(&sections); }

static void afterForkInParent() { pthread_rwlock_unlock(&sections); }

static void afterForkInChild() {
  // Its owner is the thread that has another number here.
  sections = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  ++generation;
}

[[maybe_unused]] static const int registered =
    pthread_atfork(beforeFork, afterForkInParent, afterForkInChild);

uint64_t nsa::forkGeneration() { return generation; }

NoFork::NoFork() { pthread_rwlock_rdlock(&sections); }

NoFork::~NoFork() { pthread_rwlock_unlock(&sections); }
