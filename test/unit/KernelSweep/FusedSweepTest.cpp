//===- FusedSweepTest.cpp - fused nsa kernels against the reference -------===//
//
// The shapes, the poisoned memory and the bounds of KernelSweepTest, for the
// operations that fusion makes. NSA_TEST_SUITE=full tries 160 combinations,
// otherwise 3. NSA_SWEEP_COUNT overrides the number, NSA_TEST_SEED the seed.
//
//===----------------------------------------------------------------------===//

#include "test/unit/KernelSweep/Checks.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

TEST(FusedSweep, GatedAttention_AgreesWithTheReference) {
  size_t number = 0;
  for (const Combination &c :
       sampleCombinations(sweepCount(160, 3), testSeed() + 1, 1e8)) {
    checkGated(withGating(c, number++));
    if (HasFailure())
      break;
  }
  std::printf("%zu combinations\n", number);
  RecordProperty("combinations", std::to_string(number));
}

// Every score here is exact in fp32 as the formula computes it, and the kernel
// takes exponents of 2: a query with two nearly equal keys has the gradient of
// one more or one less place of bf16.
TEST(FusedSweep, ScoresOfTenThousand_NearTie_ErrorIsThatOfTheFormula) {
  std::optional<Combination> c = parseCombination(
      "B=1 S=127 Hkv=1 G=6 dk=16 dv=16 n=80 w=1 l=64 d=16 l'=64 bf16 mean "
      "logits=10000 gating=sigmoid with bias seed=9278113512234895703");
  ASSERT_TRUE(c);
  checkGated(*c);
}

// Also where rows see nothing, where there is no compressed row at all, and
// where every score is equal.
TEST(FusedSweep, RotationInAttention_IsBitwiseThatApart) {
  size_t number = 0;
  for (const Combination &c :
       sampleCombinations(sweepCount(80, 2), testSeed() + 2, 1e8)) {
    checkRotation(withGating(c, number++));
    if (HasFailure())
      break;
  }
}

TEST(FusedSweep, EveryRow_IsFiniteAtEveryLength) {
  size_t number = 0;
  std::vector<int64_t> lengths = {1, 7, 8, 17, 65};
  for (int64_t sequence : sampleOf(lengths, 2, testSeed())) {
    Combination c;
    c.sequence = sequence;
    c.logits = 0.0;
    c.seed = testSeed() + sequence;
    checkGated(withGating(c, number++));
  }
}
