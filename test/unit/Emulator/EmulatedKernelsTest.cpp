//===- EmulatedKernelsTest.cpp - CUDA kernels against the reference -------===//
//
// Compiles every nsa operation for a GPU, runs it on the emulator with poisoned
// memory, and compares forward and backward with the fp64 reference, as
// KernelSweepTest does for the CPU. NSA_TEST_SUITE=full tries 120 combinations,
// otherwise 12. NSA_SWEEP_COUNT overrides the number, NSA_TEST_SEED the seed.
// NSA_COMBINATION takes one combination, in the words of a failure's message,
// and NSA_TARGET=cpu runs it as KernelSweepTest would.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Emulator/EmulatedModule.h"
#include "test/unit/KernelSweep/Checks.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

size_t sweepCount() {
  if (const char *text = std::getenv("NSA_SWEEP_COUNT"))
    return std::strtoull(text, nullptr, 10);
  const char *suite = std::getenv("NSA_TEST_SUITE");
  return suite && std::string(suite) == "full" ? 120 : 12;
}

Result<CompiledArtifact> compileForGPU(const std::string &text,
                                       const CompilerOptions &options) {
  CompilerOptions changed = options;
  changed.target = "sm_90a";
  return emulator::compileForEmulator(text, changed);
}

Compile chosenCompiler() {
  const char *target = std::getenv("NSA_TARGET");
  return target && std::string(target) == "cpu" ? Compile() : compileForGPU;
}

/// Small shapes, bf16 in every second one: that is what has tensor cores.
std::vector<Combination> combinations(uint64_t seed) {
  if (const char *text = std::getenv("NSA_COMBINATION")) {
    std::optional<Combination> c = parseCombination(text);
    EXPECT_TRUE(c) << "no combination: " << text;
    return {c.value_or(Combination())};
  }
  std::vector<Combination> list = spread(sweepCount(), seed, 1e6);
  for (size_t i = 0; i < list.size(); ++i)
    list[i].bf16 = i % 2 == 1;
  return list;
}

} // namespace

TEST(EmulatedKernels, EveryKernelAgreesWithTheReference) {
  for (const Combination &c : combinations(testSeed())) {
    checkAll(c, chosenCompiler());
    if (HasFailure())
      break;
  }
}

TEST(EmulatedKernels, GatedAttentionAgreesWithTheReference) {
  size_t number = 0;
  for (const Combination &c : combinations(testSeed() + 1)) {
    bool given = std::getenv("NSA_COMBINATION");
    checkGated(given ? c : withGating(c, number++), chosenCompiler());
    if (HasFailure())
      break;
  }
}
