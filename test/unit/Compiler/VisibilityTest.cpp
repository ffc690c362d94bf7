//===- VisibilityTest.cpp - pairs of queries and keys ---------------------===//

#include "passes/Conversion/NSAToTile/AttentionKernels.h"

#include <gtest/gtest.h>
#include <limits>

using namespace nsa;

namespace {

/// What the definition of Visibility says, pair by pair.
int64_t countOneByOne(const Visibility &visibility, int64_t sequence,
                      int64_t keys) {
  int64_t pairs = 0;
  for (int64_t t = 0; t < sequence; ++t)
    for (int64_t i = 0; i < keys; ++i) {
      int64_t start = i * visibility.stride;
      bool isComplete = start + visibility.block - 1 <= t;
      bool isInside = !visibility.window || start > t - *visibility.window;
      pairs += isComplete && isInside;
    }
  return pairs;
}

void expectSame(const Visibility &visibility, int64_t sequence, int64_t keys) {
  EXPECT_EQ(visibility.countPairs(sequence, keys),
            countOneByOne(visibility, sequence, keys))
      << "sequence " << sequence << ", keys " << keys << ", stride "
      << visibility.stride << ", block " << visibility.block << ", window "
      << visibility.window.value_or(-1);
}

} // namespace

TEST(Visibility, CountPairs_Windows_EqualsBruteForce) {
  for (int64_t sequence : {1, 2, 7, 16, 33})
    for (int64_t window : {1, 2, 6, 7, 8, 32, 40})
      for (int64_t keys : {int64_t(0), sequence / 2, sequence, sequence + 3})
        expectSame(Visibility::ofWindow(window, sequence), sequence, keys);
}

TEST(Visibility, CountPairs_CompressedBlocks_EqualsBruteForce) {
  for (int64_t sequence : {1, 3, 8, 15, 16, 17, 33})
    for (int64_t stride : {1, 2, 4})
      for (int64_t block : {stride, 2 * stride, 4 * stride, 64 * stride})
        for (int64_t keys : {int64_t(0), int64_t(2), sequence / stride})
          expectSame(Visibility::ofBlocks(block, stride, sequence), sequence,
                     keys);
}

TEST(Visibility, CountPairs_CausalAndWindowedBlocks_EqualsBruteForce) {
  for (int64_t sequence : {1, 5, 16, 31})
    for (int64_t stride : {1, 3, 4})
      for (int64_t block : {1, 4, 8}) {
        expectSame({stride, block, std::nullopt}, sequence, sequence);
        for (int64_t window : {1, 3, 4, 9, 50})
          expectSame({stride, block, window}, sequence, sequence);
      }
}

TEST(Visibility, CountPairs_BillionsOfTokens_IsExactOrTheLargestNumber) {
  constexpr int64_t sequence = 2000000000;
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((Visibility{1, 1, std::nullopt}).countPairs(sequence, sequence),
            sequence * (sequence + 1) / 2);
  EXPECT_EQ(Visibility::ofWindow(512, sequence).countPairs(sequence, sequence),
            512 * (512 + 1) / 2 + (sequence - 512) * 512);
  EXPECT_EQ((Visibility{1, 1, std::nullopt}).countPairs(most, most), most);
  EXPECT_EQ(Visibility::ofBlocks(32, 16, most).countPairs(most, most / 16),
            most);
}
