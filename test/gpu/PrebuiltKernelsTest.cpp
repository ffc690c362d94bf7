//===- PrebuiltKernelsTest.cpp - kernels that were compiled elsewhere -----===//
//
// Runs the artefacts of nsa-prebuild, of the folder $NSA_PREBUILT, on fresh
// random inputs with poisoned memory and compares them with the fp64
// reference, forward and backward. Needs no compiler: on a GPU box it is how
// every kernel is tested. NSA_TEST_SEED is the seed of the inputs;
// NSA_TEST_REPEATS=100 runs every entry so often and expects the same bits.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "test/gpu/Prebuilt.h"
#include "test/unit/KernelSweep/Checks.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

Result<CompiledArtifact> nsa::test::compileHere(const std::string &text,
                                                const CompilerOptions &) {
  Result<std::string> bytes =
      readFile(prebuiltFolder() + "/" + prebuiltName(text));
  if (!bytes)
    return bytes.takeError();
  CompiledArtifact artifact;
  artifact.bytes = std::move(*bytes);
  return artifact;
}

/// The list of the folder, with inputs of their own; empty without a folder.
static std::vector<Combination> getCombinations() {
  std::vector<Combination> list = readListOrExit(readCombinations);
  std::mt19937_64 random(testSeed());
  for (Combination &c : list)
    c.seed = random();
  return list;
}

TEST(Prebuilt, Folder_IsGiven) {
  EXPECT_FALSE(prebuiltFolder().empty()) << "NSA_PREBUILT names no folder";
}

class PrebuiltKernels : public testing::TestWithParam<Combination> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PrebuiltKernels);
INSTANTIATE_TEST_SUITE_P(All, PrebuiltKernels,
                         testing::ValuesIn(getCombinations()));

TEST_P(PrebuiltKernels, AllKernels_AgreeWithTheReference) {
  checkAll(GetParam());
}

TEST_P(PrebuiltKernels, FusedOnes_AgreeWithTheReference) {
  checkGated(GetParam());
}

TEST_P(PrebuiltKernels, RotationInAttention_IsBitwiseThatApart) {
  checkRotation(GetParam());
}

// Lesson 1: every row is finite, and a future token never changes an earlier
// output, bitwise.
TEST_P(PrebuiltKernels, FutureToken_ChangesNoEarlierOutput) {
  const Combination &c = GetParam();
  if (c.sequence < 2)
    GTEST_SKIP() << "one token has no future";
  Trial trial(c);
  Status status = trial.prepare();
  ASSERT_TRUE(status.ok()) << status.message();
  Inputs in(trial);
  Tensor before = runFull(trial, in);
  auto first = static_cast<int64_t>(1 + trial.random() % (c.sequence - 1));
  in.changeFuture(trial, first);
  Tensor after = runFull(trial, in);
  auto row = static_cast<int64_t>(c.heads() * c.dv);
  for (int64_t b = 0; b < c.batch; ++b) {
    auto begin = b * c.sequence * row;
    EXPECT_TRUE(std::equal(before.data.begin() + begin,
                           before.data.begin() + begin + first * row,
                           after.data.begin() + begin))
        << c.describe() << " first=" << first;
  }
  EXPECT_TRUE(std::all_of(after.data.begin(), after.data.end(), [](double x) {
    return std::isfinite(x);
  })) << c.describe();
}
