//===- AttentionMistakesTest.cpp - mistakes about masks and softmax -------===//
//
// Each test would fail if a compiled kernel made a mistake that published
// implementations of Native Sparse Attention made.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Mistakes/Probe.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

/// 128 tokens of which every one can have a value component of its own.
static Combination revealing() {
  Combination c;
  c.sequence = 128;
  c.kvHeads = 2;
  c.group = 2;
  c.dv = 128;
  c.seed = testSeed();
  return c;
}

/// Indices [B,Hkv,S,n] of the blocks `choose(t)`, padded with -1.
static Tensor
indicesOf(const Combination &c,
          const std::function<std::vector<int64_t>(int64_t t)> &choose) {
  Tensor indices({c.batch, c.kvHeads, c.sequence, c.count}, -1.0);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.kvHeads; ++h)
      for (int64_t t = 0; t < c.sequence; ++t) {
        std::vector<int64_t> blocks = choose(t);
        std::copy(blocks.begin(), blocks.end(), indices.row({b, h, t}));
      }
  return indices;
}

/// As many of the blocks up to the query's own as there is room for.
static Tensor lastBlocks(const Combination &c) {
  return indicesOf(c, [&](int64_t t) {
    std::vector<int64_t> blocks;
    int64_t last = t / c.lSel;
    for (int64_t j = std::max<int64_t>(last - c.count + 1, 0); j <= last; ++j)
      blocks.push_back(j);
    return blocks;
  });
}

static const std::vector<std::string> kAllBranches = {
    "cmp", "cmp_backward", "slc", "slc_backward", "win", "win_backward"};

/// Compares the three branches with the reference. `score` makes the keys'
/// first components, for windows and selections of everything.
static void
expectReferenceInAllBranches(Probe &probe, const Tensor &q,
                             const std::function<double(int64_t)> &score) {
  const Combination &c = probe.c;
  Tensor k = probe.keys(c.sequence, score);
  Tensor v = probe.trial.normal({c.batch, c.sequence, c.kvHeads, c.dv});
  probe.expectReference("win", q, k, v, windowKeys(c.window));
  Tensor indices = lastBlocks(c);
  probe.trial.set("indices_in", indices);
  probe.expectReference("slc", q, k, v,
                        selectedKeys(indices, c.lSel, c.sequence));
  int64_t rows = c.compressed();
  Tensor kc = probe.keys(rows, [&](int64_t i) { return score(i * c.d); });
  Tensor vc = probe.trial.normal({c.batch, rows, c.kvHeads, c.dv});
  probe.expectReference("cmp", q, kc, vc, compressedKeys(rows, c.l, c.d));
}

TEST(Mistakes, WindowOfWPlusOneKeys_IsNoticed) {
  for (int64_t window : {1, 20, 64, 5000}) {
    Combination c = revealing();
    c.window = window;
    Probe probe(c, {"win", "win_backward"});
    probe.expectKeys("win", c.sequence, [&](int64_t t, int64_t u) {
      return u <= t && u > t - window;
    });
  }
}

TEST(Mistakes, CompressedMaskInverted_IsNoticed) {
  Combination c = revealing();
  c.l = c.d = 4;
  c.lSel = 16;
  Probe probe(c, {"cmp", "cmp_backward"});
  probe.expectKeys("cmp", c.compressed(),
                   [&](int64_t t, int64_t i) { return i * 4 + 3 <= t; });
}

TEST(Mistakes, MaximumOfTheBlockAlone_IsNoticed) {
  Combination c;
  c.sequence = 320;
  c.window = 5000;
  c.count = 80;
  c.logits = 50.0;
  c.seed = testSeed();
  Probe probe(c, kAllBranches);
  // The maximum goes up and down from tile to tile, for any size of tile. The
  // scores being the keys, gradients of queries cancel: compare with fp32.
  auto score = [](int64_t u) {
    const double levels[5] = {20, -30, 45, 0, 40};
    return levels[u / 64] + 3.0 * std::sin(double(u)) +
           8.0 * std::sin(double(u) / 11.0);
  };
  expectReferenceInAllBranches(probe, probe.queries(), score);
}

TEST(Mistakes, MaximumOfOneTokenForAll_IsNoticed) {
  Combination c;
  c.sequence = 130;
  c.kvHeads = 2;
  c.group = 3;
  c.window = 100;
  c.count = 5;
  c.logits = 50.0;
  c.seed = testSeed();
  Probe probe(c, kAllBranches);
  // All scores of a row are near 80, 0 or -80: those of its neighbours and of
  // the other heads are elsewhere, further than exp reaches.
  Tensor q = probe.queries();
  const double factors[5] = {80.0, 0.01, -80.0, 1.0, 30.0};
  for (size_t row = 0; row < q.data.size() / c.dk; ++row)
    q.data[row * c.dk] *= factors[(row + row / c.heads()) % 5];
  q = Trial::single(q);
  expectReferenceInAllBranches(probe, q, [](int64_t u) {
    return 0.9 + 0.1 * std::sin(0.7 * double(u));
  });
}

TEST(Mistakes, NoCausalMaskInTheOwnBlock_IsNoticed) {
  for (int64_t lSel : {16, 64})
    for (int64_t count : {1, 3}) {
      Combination c = revealing();
      c.lSel = lSel;
      c.count = count;
      Probe probe(c, {"slc", "slc_backward"});
      probe.trial.set("indices_in", lastBlocks(c));
      probe.expectKeys("slc", c.sequence, [&](int64_t t, int64_t u) {
        return u <= t && u / lSel > t / lSel - count;
      });
    }
}

TEST(Mistakes, CausalRuleForDisjointBlocks_IsNoticed) {
  const int64_t shapes[][3] = {
      {32, 16, 64}, {64, 16, 64}, {16, 8, 48}, {8, 4, 16}, {32, 32, 64}};
  for (auto [l, d, lSel] : shapes) {
    Combination c = revealing();
    c.l = l;
    c.d = d;
    c.lSel = lSel;
    Probe probe(c, {"cmp", "cmp_backward"});
    probe.expectKeys(
        "cmp", c.compressed(),
        [l = l, d = d](int64_t t, int64_t i) { return i * d + l - 1 <= t; });
  }
}

TEST(Mistakes, RowSumSubtractedOncePerValueTile_IsNoticed) {
  for (int64_t width : {192, 256}) {
    Combination c;
    c.sequence = 70;
    c.group = 2;
    c.dv = width;
    c.window = 33;
    c.count = 3;
    c.seed = testSeed() + width;
    Probe probe(c, kAllBranches);
    Tensor q = probe.trial.normal({c.batch, c.sequence, c.heads(), c.dk});
    expectReferenceInAllBranches(probe, q,
                                 [](int64_t u) { return std::cos(double(u)); });
  }
}

TEST(Mistakes, PaddedIndexReadAsAnAddress_IsNoticed) {
  Combination c;
  c.batch = 2;
  c.sequence = 64;
  c.kvHeads = 2;
  c.group = 2;
  c.count = 4;
  c.seed = testSeed();
  Probe probe(c, {"slc", "slc_backward"});
  // Batch 0 leaves its last block, which lies before the first one of batch 1,
  // to nobody; so does each head. Reading or writing it would show.
  Tensor indices = indicesOf(c, [](int64_t t) {
    return t < 48 ? std::vector<int64_t>{t / 16} : std::vector<int64_t>{0, 2};
  });
  Tensor q = probe.trial.normal({2, 64, 4, 16});
  Tensor k = probe.trial.normal({2, 64, 2, 16});
  Tensor v = probe.trial.normal({2, 64, 2, 16});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t u = 48; u < 64; ++u)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t i = 0; i < 16; ++i) {
          k.at({b, u, h, i}) = 1e3;
          v.at({b, u, h, i}) = 1e6;
        }
  probe.trial.set("indices_in", indices);
  VisibleKeys visible = selectedKeys(indices, c.lSel, c.sequence);
  probe.expectReference("slc", q, k, v, visible);
  for (const char *name : {"slc.dk", "slc.dv"}) {
    Tensor gradient = probe.trial.get(name);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t u = 48; u < 64; ++u)
        for (int64_t i = 0; i < 2 * 16; ++i)
          ASSERT_EQ(gradient.row({b, u})[i], 0.0) << name << " at " << u;
  }
}
