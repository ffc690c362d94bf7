//===- KernelSweepTest.cpp - every nsa kernel against the reference -------===//
//
// Compiles every nsa operation for a spread of shapes, runs it with poisoned
// memory on fresh random inputs, and compares forward and backward with the
// fp64 reference. NSA_TEST_SUITE=full tries 320 combinations, otherwise 3.
// NSA_SWEEP_COUNT overrides the number, NSA_TEST_SEED the seed.
//
//===----------------------------------------------------------------------===//

#include "test/unit/KernelSweep/Checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

TEST(KernelSweep, EveryKernel_AgreesWithTheReference) {
  size_t number = 0;
  for (const Combination &c :
       sampleCombinations(sweepCount(320, 3), testSeed(), 3e8)) {
    checkAll(c);
    ++number;
    if (HasFailure())
      break;
  }
  std::printf("%zu combinations\n", number);
  RecordProperty("combinations", std::to_string(number));
}

TEST(KernelSweep, AnyTileSizes_AgreeWithTheReference) {
  for (Combination c :
       sampleCombinations(sweepCount(64, 2), testSeed() + 2, 1e7)) {
    c.tileSizes = randomTileSizes(c.seed, 8);
    checkAll(c);
    checkGated(c);
    if (HasFailure())
      break;
  }
}

TEST(KernelSweep, EqualBlocks_Tie) {
  for (Combination c :
       sampleCombinations(sweepCount(64, 4), testSeed() + 1, 1e7)) {
    c.logits = std::min(c.logits, 1.0);
    checkTies(c);
    if (HasFailure())
      break;
  }
}

TEST(KernelSweep, LargeScores_OwnLogSumExp_GradientsAsExactAsTheFormula) {
  checkLargeScores();
}

// Lesson 1: a future token never changes an earlier output, bitwise.
TEST(KernelSweep, FutureToken_ChangesNoEarlierOutput) {
  std::mt19937_64 random(testSeed());
  for (int64_t sequence : {33, 129, 512}) {
    Combination c;
    c.sequence = sequence;
    c.kvHeads = 2;
    c.group = 2;
    c.window = 20;
    c.seed = random();
    Trial trial(c);
    Status status = trial.prepare({"full"});
    ASSERT_TRUE(status.ok()) << status.message();
    Inputs in(trial);
    Tensor before = runFull(trial, in);
    for (int trialNumber = 0; trialNumber < 4; ++trialNumber) {
      auto t = static_cast<int64_t>(1 + random() % (sequence - 1));
      in.changeFuture(trial, t);
      Tensor after = runFull(trial, in);
      size_t unchanged = t * c.heads() * c.dv;
      EXPECT_TRUE(std::equal(before.data.begin(),
                             before.data.begin() + unchanged,
                             after.data.begin()))
          << "S=" << sequence << " t=" << t;
      EXPECT_NE(before.data, after.data);
      for (double x : after.data)
        ASSERT_TRUE(std::isfinite(x));
      before = after;
    }
  }
}

// Lesson 1: every row is finite at every S, forward and backward, also where
// rows see nothing and where every score is equal.
TEST(KernelSweep, EveryRow_IsFiniteAtEveryLength) {
  std::vector<int64_t> lengths = {1, 7, 8, 15, 17, 33, 65, 128};
  for (int64_t sequence : sampleOf(lengths, 3, testSeed())) {
    Combination c;
    c.sequence = sequence;
    c.logits = 0.0;
    c.seed = testSeed() + sequence;
    checkAll(c);
  }
}
