//===- AllocationTest.cpp - a run allocates nothing -----------------------===//

#include "nsa/Runtime/Runtime.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

static std::atomic<size_t> allocations{0};

void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

using namespace nsa;

TEST(Program, Run_AllocatesNothing) {
  std::string bytes = makeTestArtifact();
  Artifact artifact = take(Artifact::fromBytes(bytes.data(), bytes.size()));
  RuntimeOptions options;
  options.profile = options.poison = options.checkFinite = true;
  Program program = take(Program::create(artifact, options));
  for (const char *name : {"init", "eval", "ids"}) {
    const EntryInfo *entry = program.findEntry(name);
    size_t before = allocations;
    bool passed = program.run(*entry).ok();
    EXPECT_EQ(allocations - before, 0u) << name;
    EXPECT_TRUE(passed);
  }
}
