//===- ArenaPackerTest.cpp - properties of every plan ---------------------===//

#include "passes/Analysis/ArenaPacker.h"

#include "gtest/gtest.h"
#include <random>

using namespace nsa;

static constexpr uint64_t kAlignment = 64;

/// Every buffer lies in the arena at an aligned offset, and no two that are
/// alive together share a byte.
static void expectValid(const std::vector<ArenaBuffer> &buffers,
                        const ArenaPlan &plan) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kAlignment, 0u);
    EXPECT_LE(plan.offsets[i] + buffers[i].size, plan.size);
    for (size_t j = 0; j < i; ++j) {
      if (!buffers[i].overlapsInTime(buffers[j]) || buffers[i].size == 0 ||
          buffers[j].size == 0)
        continue;
      bool apart = plan.offsets[i] + buffers[i].size <= plan.offsets[j] ||
                   plan.offsets[j] + buffers[j].size <= plan.offsets[i];
      EXPECT_TRUE(apart) << "buffers " << j << " and " << i << " overlap";
    }
  }
  EXPECT_GE(plan.size, getPeakLiveBytes(buffers, kAlignment));
}

TEST(ArenaPacker, NoBuffers_NeedNoMemory) {
  ArenaPlan plan = packArena({}, kAlignment);
  EXPECT_EQ(plan.size, 0u);
  EXPECT_TRUE(plan.offsets.empty());
}

TEST(ArenaPacker, AfterTheLastReader_MemoryIsReused) {
  ArenaPlan plan = packArena({{100, 0, 1}, {100, 2, 3}}, kAlignment);
  EXPECT_EQ(plan.size, 128u);
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
}

TEST(ArenaPacker, ReaderAndWriterOfOneStep_DoNotShare) {
  ArenaPlan plan = packArena({{64, 0, 1}, {64, 1, 2}}, kAlignment);
  EXPECT_EQ(plan.size, 128u);
}

TEST(ArenaPacker, EmptyBuffers_TakeNoMemory) {
  ArenaPlan plan = packArena({{0, 0, 9}, {64, 0, 9}}, kAlignment);
  EXPECT_EQ(plan.size, 64u);
}

TEST(ArenaPacker, Peak_CountsBothEndsOfALifetime) {
  EXPECT_EQ(getPeakLiveBytes({{64, 0, 1}, {64, 1, 2}, {64, 3, 3}}, kAlignment),
            128u);
}

TEST(ArenaPacker, RandomPrograms_ArePackedWithoutOverlap) {
  std::random_device entropy;
  uint32_t seed = entropy();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int program = 0; program < 200; ++program) {
    std::vector<ArenaBuffer> buffers(1 + random() % 80);
    uint32_t steps = 1 + random() % 60;
    for (ArenaBuffer &buffer : buffers) {
      buffer.size = random() % 4 == 0 ? random() % 100000 : random() % 500;
      buffer.first = random() % steps;
      buffer.last = buffer.first + random() % (steps - buffer.first);
    }
    expectValid(buffers, packArena(buffers, kAlignment));
    if (HasFailure())
      return;
  }
}

/// The shape of a training step: each layer's forward keeps some buffers for
/// its backward, which runs in the opposite order.
static std::vector<ArenaBuffer> makeTrainingStep(uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t layers = 12, commands = 20;
  const uint64_t sizes[] = {1 << 20, 3 << 18, 1 << 18, 1 << 16, 4096, 64};
  std::vector<ArenaBuffer> buffers;
  for (uint32_t layer = 0; layer < layers; ++layer)
    for (uint32_t command = 0; command < commands; ++command) {
      uint32_t forward = layer * commands + command;
      uint32_t backward = 2 * layers * commands - 1 - forward;
      uint64_t size = sizes[random() % 6];
      bool kept = random() % 2;
      uint32_t next = forward + 1 + random() % 3;
      buffers.push_back({size, forward, kept ? backward : next});
      buffers.push_back({size, backward, backward + uint32_t(random() % 3)});
    }
  return buffers;
}

TEST(ArenaPacker, TrainingSteps_StayNearTheLowerBound) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<ArenaBuffer> buffers = makeTrainingStep(seed);
    ArenaPlan plan = packArena(buffers, kAlignment);
    expectValid(buffers, plan);
    uint64_t bound = getPeakLiveBytes(buffers, kAlignment);
    EXPECT_LE(double(plan.size), 1.10 * double(bound));
  }
}

TEST(ArenaPacker, PackedTwice_PlanIsTheSame) {
  std::mt19937 random(3);
  std::vector<ArenaBuffer> buffers(300);
  for (uint32_t i = 0; i < buffers.size(); ++i)
    buffers[i] = {1 + random() % 9000, i / 2, i / 2 + uint32_t(random() % 40)};
  EXPECT_EQ(packArena(buffers, kAlignment).offsets,
            packArena(buffers, kAlignment).offsets);
}
