//===- ReferenceTest.cpp - the fp64 reference against finite differences --===//
//
// Every differentiable formula of lib/Reference against central differences,
// and the rules of selection against hand-made cases.
//
//===----------------------------------------------------------------------===//

#include "lib/Reference/Kernels/Compression.h"
#include "lib/Reference/Kernels/NN.h"
#include "lib/Reference/Kernels/Statistics.h"
#include "test/unit/VisibleKeys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

using namespace nsa::reference;

namespace {

/// Random tensors from a printed seed.
class Reference : public testing::Test {
protected:
  void SetUp() override {
    const char *text = std::getenv("NSA_TEST_SEED");
    seed = text ? std::strtoull(text, nullptr, 10) : std::random_device()();
    random.seed(seed);
    RecordProperty("seed", std::to_string(seed));
  }
  void TearDown() override {
    if (HasFailure())
      std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  }

  Tensor normal(std::vector<int64_t> shape, double scale = 1.0) {
    Tensor t(std::move(shape));
    std::normal_distribution<double> distribution;
    for (double &x : t.data)
      x = scale * distribution(random);
    return t;
  }

  /// Compares `gradient` with central differences of the weighted sum of
  /// `forward`'s result with respect to `input`.
  template <typename Forward>
  void check(Tensor &input, const Tensor &gradient, const Tensor &weights,
             Forward forward, const char *what) {
    ASSERT_EQ(input.shape, gradient.shape) << what;
    auto objective = [&] {
      Tensor out = forward();
      double sum = 0.0;
      for (size_t i = 0; i < out.data.size(); ++i)
        sum += out.data[i] * weights.data[i];
      return sum;
    };
    const double step = 1e-5;
    for (size_t i = 0; i < input.data.size(); i += 1 + input.data.size() / 97) {
      double saved = input.data[i];
      input.data[i] = saved + step;
      double up = objective();
      input.data[i] = saved - step;
      double down = objective();
      input.data[i] = saved;
      double slope = (up - down) / (2 * step);
      EXPECT_NEAR(gradient.data[i], slope, 1e-6 * (1.0 + std::fabs(slope)))
          << what << " element " << i;
    }
  }

  uint64_t seed = 0;
  std::mt19937_64 random;
};

} // namespace

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

TEST_F(Reference, Attention_GradientsEqualDifferences) {
  const int64_t sequence = 21;
  Tensor indices({2, 2, sequence, 2}, -1.0);
  for (int64_t t = 0; t < sequence; ++t)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t h = 0; h < 2; ++h) {
        indices.at({b, h, t, 0}) = t / 8 > 1 ? double(h) : double(t / 8);
        if (t / 8 > 1)
          indices.at({b, h, t, 1}) = double(t / 8);
      }
  struct Case {
    const char *name;
    int64_t keys;
    VisibleKeys visible;
  } cases[] = {{"window", sequence, windowKeys(5)},
               {"compressed", compressedLength(sequence, 8, 4),
                compressedKeys(compressedLength(sequence, 8, 4), 8, 4)},
               {"selected", sequence, selectedKeys(indices, 8, sequence)}};
  for (Case &c : cases) {
    Tensor q = normal({2, sequence, 4, 6}), k = normal({2, c.keys, 2, 6});
    Tensor v = normal({2, c.keys, 2, 3});
    Tensor dout = normal({2, sequence, 4, 3});
    auto forward = [&] { return attention(q, k, v, 0.4, c.visible).output; };
    AttentionResult result = attention(q, k, v, 0.4, c.visible);
    AttentionGradients grads = attentionBackward(dout, q, k, v, result.output,
                                                 result.lse, 0.4, c.visible);
    check(q, grads.q, dout, forward, c.name);
    check(k, grads.k, dout, forward, c.name);
    check(v, grads.v, dout, forward, c.name);
  }
}

TEST_F(Reference, RowsSeeNothing_AreZero) {
  Tensor q = normal({1, 9, 1, 4}), k = normal({1, 1, 1, 4});
  AttentionResult result = attention(q, k, k, 1.0, compressedKeys(1, 8, 4));
  for (int64_t t = 0; t < 9; ++t) {
    EXPECT_EQ(std::isinf(result.lse.at({0, 0, t})), t < 7) << t;
    EXPECT_EQ(result.output.at({0, t, 0, 0}) == 0.0, t < 7) << t;
  }
}

TEST_F(Reference, Window_HasExactlyWKeys) {
  std::vector<int64_t> keys;
  windowKeys(4)(0, 0, 10, keys);
  EXPECT_EQ(keys, (std::vector<int64_t>{7, 8, 9, 10}));
  windowKeys(4)(0, 0, 2, keys);
  EXPECT_EQ(keys, (std::vector<int64_t>{0, 1, 2}));
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

static std::vector<double> row(const Tensor &indices, int64_t t) {
  const double *begin = indices.row({0, 0, t});
  return std::vector<double>(begin, begin + indices.dim(3));
}

TEST_F(Reference, OverlapWeightsOfTheDefaults_Are12221) {
  // l=32 d=16 l'=64: block j takes rows 4j-1 .. 4j+3 with weights 1,2,2,2,1.
  const int64_t sequence = 192;
  SelectionRule rule{32, 16, 64, 16, 1, 2, 1.0};
  int64_t count = compressedLength(sequence, 32, 16);
  for (int64_t i = 0; i < count; ++i) {
    // The query of the last token sees row i alone with probability 1.
    Tensor q({1, sequence, 1, 1}, 1.0), k({1, count, 1, 1}, -1e9);
    Tensor lse({1, 1, sequence}, 0.0);
    k.data[i] = 0.0;
    Tensor scores = blockScores(q, k, lse, rule);
    for (int64_t j = 0; j < 3; ++j) {
      int64_t m = i - (4 * j - 1);
      double weight = m < 0 || m > 4 ? 0.0 : (m == 0 || m == 4 ? 1.0 : 2.0);
      EXPECT_EQ(scores.at({0, 0, sequence - 1, j}), weight) << i << " " << j;
    }
  }
}

TEST_F(Reference, Selection_TakesForcedThenBestThenLowest) {
  const int64_t sequence = 64;
  Tensor scores({1, 1, sequence, 8}, 0.0);
  scores.at({0, 0, 63, 3}) = 2.0;
  scores.at({0, 0, 63, 5}) = 2.0;
  auto choose = [&](int64_t count) {
    return row(selectBlocks(scores, {8, 8, 8, count, 1, 2, 1.0}), 63);
  };
  EXPECT_EQ(choose(1), (std::vector<double>{7}));
  EXPECT_EQ(choose(2), (std::vector<double>{0, 7}));
  EXPECT_EQ(choose(3), (std::vector<double>{0, 6, 7}));
  EXPECT_EQ(choose(4), (std::vector<double>{0, 3, 6, 7}));
  EXPECT_EQ(choose(6), (std::vector<double>{0, 1, 3, 5, 6, 7}));
  EXPECT_EQ(choose(10), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, -1, -1}));
}

TEST_F(Reference, Selection_HasTheOwnBlockOnce) {
  const int64_t sequence = 70;
  SelectionRule rule{8, 4, 8, 3, 1, 2, 0.3};
  Tensor q = normal({1, sequence, 2, 4});
  Tensor k = normal({1, compressedLength(sequence, 8, 4), 1, 4});
  Tensor lse = attention(q, k, k, 0.3, compressedKeys(k.dim(1), 8, 4)).lse;
  Tensor indices = selectBlocks(blockScores(q, k, lse, rule), rule);
  for (int64_t t = 0; t < sequence; ++t) {
    std::vector<double> chosen = row(indices, t);
    int64_t candidates = t / 8 + 1, valid = 0;
    bool own = false;
    for (size_t i = 0; i < chosen.size(); ++i) {
      valid += chosen[i] >= 0;
      own |= chosen[i] == double(t / 8);
      if (i > 0 && chosen[i] >= 0)
        EXPECT_LT(chosen[i - 1], chosen[i]) << t;
    }
    EXPECT_TRUE(own) << t;
    EXPECT_EQ(valid, std::min<int64_t>(3, candidates)) << t;
  }
}

//===----------------------------------------------------------------------===//
// Compression and combination
//===----------------------------------------------------------------------===//

TEST_F(Reference, CompressedLength_HasNoPartialBlock) {
  EXPECT_EQ(compressedLength(31, 32, 16), 0);
  EXPECT_EQ(compressedLength(32, 32, 16), 1);
  EXPECT_EQ(compressedLength(47, 32, 16), 1);
  EXPECT_EQ(compressedLength(48, 32, 16), 2);
}

TEST_F(Reference, Compression_GradientsEqualDifferences) {
  Tensor x = normal({2, 19, 2, 3});
  Tensor dout = normal({2, compressedLength(19, 8, 4), 2, 3});
  check(
      x, compressMeanBackward(dout, x, 8, 4), dout,
      [&] { return compressMean(x, 8, 4); }, "mean");
}

TEST_F(Reference, LearnedCompression_GradientsEqualDifferences) {
  for (bool mlp : {false, true})
    for (bool positions : {false, true}) {
      Tensor x = normal({2, 19, 2, 3});
      Projection phi{normal({2, 24, 3}), {}, {}};
      if (mlp)
        phi.outputWeight = normal({2, 3, 3});
      if (positions)
        phi.positions = normal({2, 8, 3});
      Tensor dout = normal({2, compressedLength(19, 8, 4), 2, 3});
      ProjectionGradients grads = compressProjectedBackward(dout, x, phi, 8, 4);
      auto forward = [&] { return compressProjected(x, phi, 8, 4); };
      check(x, grads.input, dout, forward, "input");
      check(phi.weight, grads.phi.weight, dout, forward, "weight");
      check(phi.outputWeight, grads.phi.outputWeight, dout, forward,
            "output weight");
      check(phi.positions, grads.phi.positions, dout, forward, "positions");
    }
}

TEST_F(Reference, LearnedCompressionOfOneToken_IsWhatItsFormulaSays) {
  // One token, one channel: 2 * silu(3 * (x + 5)).
  Tensor x({1, 1, 1, 1}, 0.25), w({1, 1, 1}, 3.0), w2({1, 1, 1}, 2.0);
  Tensor p({1, 1, 1}, 5.0);
  double z = 3.0 * 5.25;
  EXPECT_DOUBLE_EQ(compressProjected(x, {w, {}, {}}, 1, 1).data[0], 0.75);
  EXPECT_DOUBLE_EQ(compressProjected(x, {w, {}, p}, 1, 1).data[0], z);
  EXPECT_DOUBLE_EQ(compressProjected(x, {w, w2, p}, 1, 1).data[0],
                   2.0 * z / (1.0 + std::exp(-z)));
}

TEST_F(Reference, Combine_GradientsEqualDifferences) {
  Tensor gates = normal({1, 5, 2, 3});
  Tensor a = normal({1, 5, 2, 4}), b = normal({1, 5, 2, 4});
  Tensor c = normal({1, 5, 2, 4}), dout = normal({1, 5, 2, 4});
  CombineGradients grads = combineBackward(dout, gates, {&a, &b, &c});
  auto forward = [&] { return combine(gates, {&a, &b, &c}); };
  check(gates, grads.gates, dout, forward, "gates");
  check(a, grads.branches[0], dout, forward, "first branch");
  check(b, grads.branches[1], dout, forward, "second branch");
  check(c, grads.branches[2], dout, forward, "third branch");
}

TEST_F(Reference, HandMadeCase_HasTheseStatistics) {
  // Two tokens: all on the window, and equal shares of 0.6.
  Tensor gates({1, 2, 1, 3});
  gates.data = {0.0, 0.0, 1.0, 0.2, 0.2, 0.2};
  Tensor y = gateStatistics(gates);
  EXPECT_NEAR(y.data[0], 0.1, 1e-12);
  EXPECT_NEAR(y.data[2], 0.6, 1e-12);
  EXPECT_NEAR(y.data[3], std::log(3.0) / 2, 1e-12);
  // Five queries in blocks of 2: the last block is partial.
  Tensor indices({1, 1, 5, 2}, -1.0);
  indices.data = {0, -1, 0, -1, 0, 1, 1, -1, 0, 2};
  y = selectionStatistics(indices, 2);
  EXPECT_NEAR(y.data[0], 7.0 / 5, 1e-12);
  // Distances 0 0 1 0 0 2 0.
  EXPECT_NEAR(y.data[1], 3.0 / 7, 1e-12);
  // {0}, {0, 1}, {0, 2}.
  EXPECT_NEAR(y.data[2], 5.0 / 3, 1e-12);
}

//===----------------------------------------------------------------------===//
// The rest of the decoder
//===----------------------------------------------------------------------===//

TEST_F(Reference, MatmulGradients_AreMatmuls) {
  Tensor x = normal({2, 3, 4}), w = normal({4, 5}), dout = normal({2, 3, 5});
  auto forward = [&] { return matmul(x, w, false, false, {2, 3, 5}); };
  check(x, matmul(dout, w, false, true, {2, 3, 4}), dout, forward, "input");
  check(w, matmul(x, dout, true, false, {4, 5}), dout, forward, "weight");
}

TEST_F(Reference, RmsNorm_GradientsEqualDifferences) {
  Tensor x = normal({2, 3, 7}), w = normal({7}), dout = normal({2, 3, 7});
  auto forward = [&] { return rmsNorm(x, w, 1e-5).output; };
  RmsNormGradients grads =
      rmsNormBackward(dout, x, w, rmsNorm(x, w, 1e-5).rstd);
  check(x, grads.input, dout, forward, "input");
  check(w, grads.weight, dout, forward, "weight");
}

TEST_F(Reference, Bias_GradientIsTheSumOfRows) {
  Tensor x = normal({2, 3, 7}), bias = normal({7}), dout = normal({2, 3, 7});
  auto forward = [&] { return addBias(x, bias); };
  check(x, dout, dout, forward, "input");
  check(bias, sumRows(dout), dout, forward, "bias");
}

TEST_F(Reference, Rotary_IsARotationWithAnInverse) {
  Tensor x = normal({1, 5, 2, 6}), table = rotaryTable(17, 6, 100.0);
  Tensor back = rotary(rotary(x, table, 4, false), table, 4, true);
  for (size_t i = 0; i < x.data.size(); ++i)
    EXPECT_NEAR(back.data[i], x.data[i], 1e-12);
  Tensor dout = normal({1, 5, 2, 6});
  check(
      x, rotary(dout, table, 4, true), dout,
      [&] { return rotary(x, table, 4, false); }, "rotary");
}

TEST_F(Reference, Gates_GradientsEqualDifferences) {
  for (auto [softmax, branches] :
       {std::pair(false, 3), {true, 3}, {false, 1}, {true, 2}, {true, 6}}) {
    Tensor logits = normal({2, 3, 6}), bias = normal({6});
    Tensor dout = normal({2, 3, 6 / branches, branches});
    auto forward = [&, softmax = softmax, branches = branches] {
      return gate(logits, bias, softmax, branches);
    };
    GateGradients grads = gateBackward(dout, forward(), softmax);
    check(logits, grads.logits, dout, forward, "logits");
    check(bias, grads.bias, dout, forward, "bias");
  }
}

TEST_F(Reference, Activations_GradientsEqualDifferences) {
  Tensor x = normal({3, 5}), up = normal({3, 5}), dout = normal({3, 5});
  check(x, siluBackward(dout, x), dout, [&] { return silu(x); }, "silu");
  SwigluGradients grads = swigluBackward(dout, x, up);
  auto forward = [&] { return swiglu(x, up); };
  check(x, grads.gate, dout, forward, "swiglu gate");
  check(up, grads.up, dout, forward, "swiglu up");
  check(x, geluBackward(dout, x), dout, [&] { return gelu(x); }, "gelu");
  grads = gegluBackward(dout, x, up);
  auto gated = [&] { return geglu(x, up); };
  check(x, grads.gate, dout, gated, "geglu gate");
  check(up, grads.up, dout, gated, "geglu up");
  check(x, scale(dout, 0.3), dout, [&] { return scale(x, 0.3); }, "scale");
  check(
      x, squaredReluBackward(dout, x), dout, [&] { return squaredRelu(x); },
      "squared relu");
  check(
      x, softcapBackward(dout, softcap(x, 0.7), 0.7), dout,
      [&] { return softcap(x, 0.7); }, "softcap");
}

TEST_F(Reference, CrossEntropyGradient_SkipsIgnoredTargets) {
  Tensor logits = normal({2, 3, 5}), targets({2, 3});
  targets.data = {0, 4, -1, 2, 2, -1};
  Tensor seedGrad(std::vector<int64_t>{}, 1.0);
  CrossEntropyResult result = crossEntropy(logits, targets);
  EXPECT_EQ(result.count.data[0], 4.0);
  Tensor grad =
      crossEntropyBackward(seedGrad, logits, targets, result.lse, result.count);
  check(
      logits, grad, seedGrad,
      [&] { return crossEntropy(logits, targets).loss; }, "logits");
  for (int64_t c = 0; c < 5; ++c)
    EXPECT_EQ(grad.at({0, 2, c}), 0.0);
}

TEST_F(Reference, EmbeddingGradient_SumsRepeatedTokens) {
  Tensor table = normal({4, 3}), ids({1, 5});
  ids.data = {1, 3, 1, 0, 1};
  Tensor dout = normal({1, 5, 3});
  check(
      table, embeddingBackward(dout, ids, 4), dout,
      [&] { return embedding(table, ids); }, "table");
}

TEST_F(Reference, IdsOutsideOfTheTable_AreZero) {
  Tensor table = normal({4, 3}), ids({1, 3});
  ids.data = {4, -1, 2};
  Tensor out = embedding(table, ids);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(out.at({0, 0, c}), 0.0);
    EXPECT_EQ(out.at({0, 1, c}), 0.0);
    EXPECT_EQ(out.at({0, 2, c}), table.at({2, c}));
  }
  Tensor grad = embeddingBackward(normal({1, 3, 3}), ids, 4);
  for (int64_t v : {0, 1, 3})
    for (int64_t c = 0; c < 3; ++c)
      EXPECT_EQ(grad.at({v, c}), 0.0);
}

TEST_F(Reference, Adamw_SkipsNonFiniteSteps) {
  Tensor w = normal({3}), m({3}), v({3}), g = normal({3}), hyper({8});
  hyper.data = {1e-2, 0.9, 0.99, 1e-8, 0.1, 1.0, 1.0, 1.0};
  Tensor before = w;
  adamw(w, m, v, g, std::nan(""), 1.0, hyper, true);
  EXPECT_EQ(w.data, before.data);
  adamw(w, m, v, g, gradientNorm({&g}), 1.0, hyper, true);
  for (size_t i = 0; i < 3; ++i) {
    // The first step moves every weight by lr against the gradient's sign.
    double decayed = before.data[i] * (1.0 - 1e-3);
    EXPECT_NEAR(w.data[i], decayed - std::copysign(1e-2, g.data[i]), 1e-6);
  }
}
