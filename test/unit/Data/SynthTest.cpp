//===- SynthTest.cpp - sources of known entropy ---------------------------===//

#include "runtime/Data/Synth.h"
#include "runtime/Data/TokenStream.h"
#include "test/unit/TempDir.h"

#include <cmath>
#include <map>

using namespace nsa;

namespace {

// A two-state chain has the stationary distribution (q, p) / (p + q).
TEST(Markov, EntropyRate_HasTheClosedForm) {
  Result<MarkovChain> chain = MarkovChain::create(1, 2, 1.0, 5);
  ASSERT_TRUE(chain.ok());
  double p = chain->probability(0, 1), q = chain->probability(1, 0);
  auto entropy = [](double x) {
    return -x * std::log(x) - (1 - x) * std::log(1 - x);
  };
  double expected = (q * entropy(p) + p * entropy(q)) / (p + q);
  EXPECT_NEAR(chain->entropyRate(), expected, 1e-10);
}

TEST(Markov, Sample_HasTheEntropyOfTheTable) {
  for (int64_t order : {1, 2, 3}) {
    Result<MarkovChain> chain = MarkovChain::create(order, 6, 1.5, 9);
    ASSERT_TRUE(chain.ok());
    EXPECT_LT(chain->entropyRate(), std::log(6.0));
    EXPECT_NEAR(chain->loss(chain->sample(400000, 0)), chain->entropyRate(),
                0.01);
  }
}

TEST(Markov, TooLargeTables_AreRefused) {
  EXPECT_FALSE(MarkovChain::create(3, 256, 1.0, 1).ok());
  EXPECT_FALSE(MarkovChain::create(0, 4, 1.0, 1).ok());
  EXPECT_FALSE(MarkovChain::create(1, 1, 1.0, 1).ok());
  EXPECT_TRUE(MarkovChain::create(2, 256, 1.0, 1).ok());
  for (double sharpness : {-1.0, 20.5, 1000.0, double(NAN), double(INFINITY)})
    EXPECT_FALSE(MarkovChain::create(1, 4, sharpness, 1).ok()) << sharpness;
  Result<MarkovChain> sharp = MarkovChain::create(1, 64, 20, 1);
  ASSERT_TRUE(sharp.ok());
  EXPECT_GT(sharp->entropyRate(), 0);
  EXPECT_TRUE(std::isfinite(sharp->loss(sharp->sample(10000, 1))));
}

TEST(Recall, Queries_RepeatPairs) {
  RecallTask task{20, 4, 10, 3};
  ASSERT_TRUE(task.validate());
  for (uint64_t index = 0; index < 50; ++index) {
    std::vector<uint16_t> document = task.document(3, index);
    ASSERT_EQ(document.size(), size_t(task.documentTokens()));
    std::map<uint16_t, uint16_t> pairs;
    for (size_t i = 0; i < 8; i += 2) {
      EXPECT_GE(document[i], 1);
      EXPECT_LE(document[i], 9);
      EXPECT_GE(document[i + 1], 10);
      EXPECT_LE(document[i + 1], 18);
      EXPECT_TRUE(pairs.emplace(document[i], document[i + 1]).second);
    }
    for (size_t i = 8; i < 18; ++i)
      EXPECT_EQ(document[i], 19);
    for (size_t i = 18; i < 24; i += 2) {
      ASSERT_EQ(pairs.count(document[i]), 1u);
      EXPECT_EQ(pairs[document[i]], document[i + 1]);
      pairs.erase(document[i]);
    }
    EXPECT_EQ(document.back(), 0);
  }
}

TEST(Recall, Losses_CountEveryChoice) {
  RecallTask task{20, 2, 3, 1};
  double nats =
      2 * std::log(9.0) + std::log(9.0) + std::log(8.0) + std::log(2.0);
  EXPECT_NEAR(task.lossWithRecall(), nats / 10, 1e-12);
  EXPECT_NEAR(task.lossWithoutRecall(), (nats + std::log(9.0)) / 10, 1e-12);
}

TEST(Recall, Errors_NameBothNumbers) {
  EXPECT_NE(RecallTask({8, 4, 1, 1}).validate().message().find("1 to 3 pairs"),
            std::string::npos);
  EXPECT_FALSE((RecallTask{20, 4, 1, 5}).validate());
  EXPECT_FALSE((RecallTask{20, 4, -1, 1}).validate());
}

TEST(Synth, EverySource_WritesShardsAndFacts) {
  TempDir dir;
  SynthOptions options;
  options.output = dir / "m";
  options.vocab = 16;
  options.tokens = 10000;
  options.shardTokens = 4000;
  Result<Manifest> manifest = synthesize(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  Result<Dataset> data = Dataset::open(dir / "m");
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->train.size(), 9500u);
  EXPECT_EQ(data->val.size(), 500u);
  EXPECT_EQ(data->manifest.train.shards.size(), 3u);
  Result<MarkovChain> chain = MarkovChain::create(1, 16, 2.0, 1);
  EXPECT_EQ(data->manifest.fact("entropy"), chain->entropyRate());

  options.output = dir / "r";
  options.kind = "recall";
  manifest = synthesize(options);
  ASSERT_FALSE(manifest.ok());
  EXPECT_NE(manifest.message().find("1 to 7 pairs"), std::string::npos);
  options.pairs = options.queries = 4;
  manifest = synthesize(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(manifest->train.tokens,
            manifest->train.documents * uint64_t(2 * 4 + 64 + 2 * 4 + 1));
  options.output = dir / "tiny";
  options.tokens = 100;
  EXPECT_FALSE(synthesize(options).ok());
}

} // namespace
