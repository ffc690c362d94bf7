//===- SelectionMistakesTest.cpp - mistakes about choosing blocks ---------===//
//
// Each test would fail if the compiled selection made a mistake that published
// implementations of Native Sparse Attention made.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Mistakes/Probe.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

/// Blocks of 16 tokens that are compressed and selected alike: the score of a
/// selection block is the probability of its one compressed block.
static Combination oneToOne(int64_t sequence, int64_t count) {
  Combination c;
  c.sequence = sequence;
  c.l = c.d = c.lSel = 16;
  c.count = count;
  c.seed = testSeed();
  return c;
}

TEST(Mistakes, ScoresSeeTheFuture_IsNoticed) {
  // Of the local blocks only the query's own is forced, so that the block
  // before it competes. The compressed block that reaches from that one into
  // the query's own has the highest score of all, but is invisible to the first
  // three queries.
  Combination c;
  c.sequence = 128;
  c.count = 3;
  c.local = 1;
  Probe probe(c, {"select"});
  Tensor k = probe.keys(c.compressed(), [](int64_t i) {
    return i % 4 == 3 ? 0.75 * double(i + 1) : -20.0;
  });
  Tensor indices = probe.select(probe.queries(), k);
  for (int64_t t = 48; t < 128; ++t) {
    int64_t own = t / 16, best = t % 16 < 3 ? own - 2 : own - 1;
    EXPECT_EQ(blocksOf(indices, 0, 0, t),
              "0 " + std::to_string(best) + " " + std::to_string(own))
        << "t=" << t;
  }
}

TEST(Mistakes, FutureScoresOverflow_ChangeNothing) {
  Combination c;
  c.sequence = 200;
  c.group = 2;
  c.count = 5;
  c.seed = testSeed();
  Probe probe(c, {"select"});
  Tensor q = probe.queries();
  std::mt19937_64 random(c.seed);
  std::normal_distribution<double> normal;
  Tensor k =
      probe.keys(c.compressed(), [&](int64_t) { return normal(random); });
  Tensor before = probe.select(q, k);
  for (int64_t first : {45, 30, 7, 0}) {
    for (int64_t i = first; i < c.compressed(); ++i)
      k.at({0, i, 0, 0}) = 1e4;
    Tensor after = probe.select(q, k);
    for (int64_t t = 0; t < first * c.d + c.l - 1; ++t)
      EXPECT_EQ(blocksOf(before, 0, 0, t), blocksOf(after, 0, 0, t))
          << "t=" << t;
  }
}

TEST(Mistakes, OwnBlockDropped_IsNoticed) {
  for (int64_t count : {1, 2, 3, 4}) {
    Combination c = oneToOne(160, count);
    Probe probe(c, {"select", "slc", "slc_backward"});
    // The later a block, the lower its score.
    Tensor k = probe.keys(c.compressed(), [](int64_t i) { return -3.0 * i; });
    Tensor indices = probe.select(probe.queries(), k);
    for (int64_t t = 0; t < c.sequence; ++t) {
      const double *row = indices.row({0, 0, t});
      ASSERT_TRUE(std::find(row, row + count, double(t / 16)) != row + count)
          << "n=" << count << " t=" << t;
    }
    // So every row has keys, and is finite in both directions.
    probe.trial.set("indices_in", indices);
    Tensor keys = probe.trial.normal({1, 160, 1, 16});
    probe.expectReference("slc", probe.trial.normal({1, 160, 1, 16}), keys,
                          probe.trial.normal({1, 160, 1, 16}),
                          selectedKeys(indices, c.lSel, c.sequence));
    for (double lse : probe.trial.get("slc.lse").data)
      ASSERT_TRUE(std::isfinite(lse));
  }
}

TEST(Mistakes, NoCompressedBlocks_OwnBlockIsSelected) {
  Combination c;
  c.sequence = 7;
  c.count = 3;
  Probe probe(c, {"select"});
  ASSERT_EQ(c.compressed(), 0);
  Tensor indices = probe.select(probe.queries(), Tensor({1, 0, 1, 16}));
  for (int64_t t = 0; t < c.sequence; ++t)
    EXPECT_EQ(blocksOf(indices, 0, 0, t), "0");
}

TEST(Mistakes, DuplicatedForcedBlocks_AreNoticed) {
  for (int64_t count : {1, 2, 3, 4, 6, 12}) {
    Combination c = oneToOne(160, count);
    Probe probe(c, {"select"});
    Tensor k = probe.keys(c.compressed(), [](int64_t i) { return -1.0 * i; });
    Tensor indices = probe.select(probe.queries(), k);
    for (int64_t t = 0; t < c.sequence; ++t) {
      int64_t own = t / 16;
      // Forced blocks in the order in which they enter, then the best ones,
      // which are the first here.
      std::vector<int64_t> order = {own, 0, own - 1};
      for (int64_t j = 1; j < own; ++j)
        order.push_back(j);
      std::set<int64_t> expected;
      for (int64_t j : order)
        if (j >= 0 && int64_t(expected.size()) < count)
          expected.insert(j);
      ASSERT_EQ(int64_t(expected.size()), std::min(count, own + 1));
      std::string text;
      for (int64_t j : expected)
        text += (text.empty() ? "" : " ") + std::to_string(j);
      EXPECT_EQ(blocksOf(indices, 0, 0, t), text)
          << "n=" << count << " t=" << t;
      // Padding lies on the right.
      const double *row = indices.row({0, 0, t});
      for (int64_t i = expected.size(); i < count; ++i)
        EXPECT_EQ(row[i], -1.0);
    }
  }
}

TEST(Mistakes, GroupSumOverOneHead_IsNoticed) {
  Combination c = oneToOne(128, 4);
  c.group = 4;
  Probe probe(c, {"select"});
  Tensor q = probe.queriesOfHeads();
  for (int64_t odd = 0; odd < 4; ++odd)
    for (bool swap : {false, true}) {
      // The odd head is for one block, the three others for another.
      int64_t lonely = swap ? 3 : 1, popular = swap ? 1 : 3;
      Tensor k({1, c.compressed(), 1, c.dk});
      for (int64_t head = 0; head < 4; ++head)
        k.at({0, head == odd ? lonely : popular, 0, head}) =
            head == odd ? 6.0 : 4.0;
      Tensor indices = probe.select(q, k);
      for (int64_t t = 80; t < c.sequence; ++t) {
        int64_t own = t / 16;
        EXPECT_EQ(blocksOf(indices, 0, 0, t),
                  "0 " + std::to_string(popular) + " " +
                      std::to_string(own - 1) + " " + std::to_string(own))
            << "odd head " << odd << " t=" << t;
      }
    }
}

TEST(Mistakes, ScoresRoundedBeforeTheTopN_IsNoticed) {
  Combination c = oneToOne(256, 4);
  c.group = 32;
  c.dk = 64;
  Probe probe(c, {"select"});
  // Block 3 is better than block 1 by 2e-5 of the score: more than fp32 loses,
  // less than bf16 and fp16 can tell, and a tie would go to block 1.
  Tensor k({1, c.compressed(), 1, c.dk});
  for (int64_t head = 0; head < c.group; ++head) {
    double score = 0.5 + 0.1 * double(head);
    k.at({0, 1, 0, head}) = score;
    k.at({0, 3, 0, head}) = score + 2e-5;
  }
  k = Trial::single(k);
  Tensor indices = probe.select(probe.queriesOfHeads(), k);
  for (int64_t t = 80; t < c.sequence; ++t) {
    int64_t own = t / 16;
    EXPECT_EQ(blocksOf(indices, 0, 0, t),
              "0 3 " + std::to_string(own - 1) + " " + std::to_string(own))
        << "t=" << t;
  }
}

TEST(Mistakes, SumsOfLargeGroups_DoNotOverflow) {
  // Each of 32 heads gives block 2 everything: its score is 32, and the forced
  // blocks, whose scores are 0, are there all the same.
  Combination c = oneToOne(128, 4);
  c.group = 32;
  Probe probe(c, {"select"});
  Tensor k =
      probe.keys(c.compressed(), [](int64_t i) { return i == 2 ? 90.0 : 0.0; });
  Tensor indices = probe.select(probe.queries(), k);
  for (int64_t t = 80; t < c.sequence; ++t) {
    int64_t own = t / 16;
    EXPECT_EQ(blocksOf(indices, 0, 0, t),
              "0 2 " + std::to_string(own - 1) + " " + std::to_string(own))
        << "t=" << t;
  }
}
