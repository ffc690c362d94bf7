//===- SamplerTest.cpp - the order of training samples --------------------===//

#include "runtime/Data/Sampler.h"
#include "lib/Support/Philox.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <algorithm>
#include <set>

using namespace nsa;

namespace {

/// A stream in which the token at position i is i.
struct Ramp {
  explicit Ramp(uint64_t count) {
    std::vector<uint16_t> tokens(count);
    for (uint64_t i = 0; i < count; ++i)
      tokens[i] = uint16_t(i);
    SplitWriter writer(dir.str(), "train", 1000);
    EXPECT_TRUE(writer.append(tokens.data(), count));
    SplitInfo split{count, 1, *writer.finish()};
    Result<TokenStream> opened = TokenStream::open(dir.str(), split, 65536);
    EXPECT_TRUE(opened.ok());
    stream = std::move(*opened);
  }
  TempDir dir;
  TokenStream stream;
};

// From the known-answer file of the Random123 library.
TEST(Philox, KnownSeeds_MatchTheReference) {
  EXPECT_EQ(philox(0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d,
                                                   0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420,
                                     0x24126ea1}));
}

TEST(Permutation, AnySize_IsABijection) {
  for (uint64_t size : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    Permutation order(size, 7, 3);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      uint64_t image = order(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
  uint64_t large = (uint64_t(1) << 40) + 12345;
  Permutation order(large, 7, 3);
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 1000; ++i)
    images.insert(order(large - 1 - i));
  EXPECT_EQ(images.size(), 1000u);
  EXPECT_GT(*images.rbegin(), large / 2);
}

TEST(Sampler, Epoch_TilesTheStream) {
  Ramp ramp(1030);
  TrainSampler sampler = take(TrainSampler::create(ramp.stream, 10, 42));
  ASSERT_EQ(sampler.samplesPerEpoch(), 103u);
  std::vector<int32_t> tokens(10), targets(10);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> uses(1030);
    for (uint64_t i = 0; i < 103; ++i) {
      ASSERT_TRUE(sampler.read(epoch * 103 + i, tokens.data(), targets.data()));
      for (int t = 0; t < 10; ++t) {
        ++uses[size_t(tokens[t])];
        EXPECT_EQ(targets[t], (tokens[t] + 1) % 1030);
      }
    }
    EXPECT_TRUE(
        std::all_of(uses.begin(), uses.end(), [](int n) { return n == 1; }));
  }
}

TEST(Sampler, Order_IsAFunctionOfSeedAndIndex) {
  Ramp ramp(5003);
  auto order = [&](uint64_t seed, uint64_t first) {
    Result<TrainSampler> sampler = TrainSampler::create(ramp.stream, 16, seed);
    std::vector<uint64_t> positions;
    positions.reserve(400);
    for (uint64_t i = 0; i < 400; ++i)
      positions.push_back(sampler->position(first + i));
    return positions;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  // A later start continues the same order: resuming needs only the counter.
  std::vector<uint64_t> late = order(1, 100), full = order(1, 0);
  EXPECT_TRUE(std::equal(full.begin() + 100, full.end(), late.begin()));
  // Epochs differ in order and phase.
  EXPECT_NE(order(1, 0), order(1, 5003 / 16));
}

TEST(Sampler, TooFewTokens_AreAnError) {
  Ramp ramp(16);
  EXPECT_EQ(messageOf(TrainSampler::create(ramp.stream, 16, 1)),
            "the training split holds 16 tokens, a window of 16 needs 17");
  EXPECT_TRUE(TrainSampler::create(ramp.stream, 15, 1).ok());
  EXPECT_FALSE(ValidationWindows::create(ramp.stream, 16).ok());
  TokenStream empty;
  EXPECT_FALSE(TrainSampler::create(empty, 1, 1).ok());
  EXPECT_FALSE(ValidationWindows::create(empty, 1).ok());
}

TEST(Sampler, ValidationWindows_AreFixedAndSpread) {
  Ramp ramp(1001);
  ValidationWindows windows = take(ValidationWindows::create(ramp.stream, 10));
  EXPECT_EQ(windows.size(), 100u);
  EXPECT_EQ(windows.choose(4), (std::vector<uint64_t>{0, 25, 50, 75}));
  EXPECT_EQ(windows.choose(1000).size(), 100u);
  std::vector<int32_t> tokens(10), targets(10);
  ASSERT_TRUE(windows.read(99, tokens.data(), targets.data()));
  EXPECT_EQ(tokens[0], 990);
  EXPECT_EQ(targets[9], 1000);
}

} // namespace
