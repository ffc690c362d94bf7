//===- NgramTest.cpp - the Witten-Bell baseline ---------------------------===//

#include "runtime/Data/Ngram.h"
#include "runtime/Data/Synth.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <cmath>

using namespace nsa;

namespace {

TokenStream streamOf(const TempDir &dir, const std::string &name,
                     const std::vector<uint16_t> &tokens, int64_t vocab) {
  SplitWriter writer(dir.str(), name, 1000);
  EXPECT_TRUE(writer.append(tokens.data(), tokens.size()));
  SplitInfo split{tokens.size(), 1, *writer.finish()};
  Result<TokenStream> stream = TokenStream::open(dir.str(), split, vocab);
  EXPECT_TRUE(stream.ok());
  return std::move(*stream);
}

TEST(Ngram, Losses_MatchTheFormula) {
  TempDir dir;
  // Bigrams 01, 12, 20, 01, 11; trigrams 012, 120, 201, 011.
  TokenStream train = streamOf(dir, "train", {0, 1, 2, 0, 1, 1}, 4);
  Ngram model = take(Ngram::fit(train));
  auto order0 = [](double count) { return (count + 3.0 / 4) / (6 + 3); };
  double one = (2 + 1 * order0(3)) / (2 + 1);
  EXPECT_DOUBLE_EQ(model.order1(0, 1), one);
  double afterOne = (1 + 2 * order0(1)) / (2 + 2);
  EXPECT_DOUBLE_EQ(model.order1(1, 2), afterOne);
  EXPECT_DOUBLE_EQ(model.order2(0, 1, 2), (1 + 2 * afterOne) / (2 + 2));
  // Contexts that never occurred fall back.
  EXPECT_DOUBLE_EQ(model.order1(3, 2), order0(1));
  EXPECT_DOUBLE_EQ(model.order2(3, 1, 2), afterOne);
}

TEST(Ngram, Probabilities_SumToOne) {
  TempDir dir;
  TokenStream train = streamOf(dir, "train", {0, 1, 2, 0, 1, 1, 3, 3, 0}, 5);
  Ngram model = take(Ngram::fit(train));
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b) {
      double sum1 = 0, sum2 = 0;
      for (int x = 0; x < 5; ++x) {
        sum1 += model.order1(b, x);
        sum2 += model.order2(a, b, x);
      }
      EXPECT_NEAR(sum1, 1.0, 1e-12);
      EXPECT_NEAR(sum2, 1.0, 1e-12);
    }
}

TEST(Ngram, ManyTokens_ReachTheEntropyOfTheSource) {
  TempDir dir;
  for (int order : {1, 2}) {
    MarkovChain chain = take(MarkovChain::create(order, 8, 1.5, 11));
    TokenStream train = streamOf(dir, "train", chain.sample(200000, 0), 8);
    TokenStream val = streamOf(dir, "val", chain.sample(50000, 1), 8);
    Ngram model = take(Ngram::fit(train));
    Result<NgramLoss> loss = model.evaluate(val);
    ASSERT_TRUE(loss.ok());
    double reached = order == 1 ? loss->order1 : loss->order2;
    EXPECT_NEAR(reached, chain.loss(chain.sample(50000, 1)), 0.01);
    EXPECT_NEAR(reached, chain.entropyRate(), 0.03);
    EXPECT_EQ(loss->tokens, 49999u);
  }
}

TEST(Ngram, Ranges_AreTheTokensOfTheirWindows) {
  TempDir dir;
  std::vector<uint16_t> tokens(2000);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = uint16_t((i * i) % 7);
  TokenStream stream = streamOf(dir, "train", tokens, 7);
  Ngram model = take(Ngram::fit(stream, 1000));
  EXPECT_EQ(model.fitted(), 1000u);
  Result<NgramLoss> whole = model.evaluate(stream);
  Result<NgramLoss> pieces =
      model.evaluate(stream, {{0, 1000}, {1000, 500}, {1500, 499}});
  ASSERT_TRUE(whole.ok() && pieces.ok());
  EXPECT_EQ(pieces->tokens, whole->tokens);
  EXPECT_NEAR(pieces->order1, whole->order1, 1e-12);
  EXPECT_NEAR(pieces->order2, whole->order2, 1e-12);
}

TEST(Ngram, EmptyOrWideInput_IsRefused) {
  TempDir dir;
  EXPECT_FALSE(Ngram::fit(TokenStream()).ok());
  TokenStream wide = streamOf(dir, "train", {1, 2}, 257);
  EXPECT_TRUE(
      failsWith(Ngram::fit(wide), "at most 256 tokens, the data has 257"));
  TokenStream one = streamOf(dir, "val", {1}, 8);
  Ngram small = take(Ngram::fit(one));
  EXPECT_FALSE(small.evaluate(one).ok());
}

} // namespace
