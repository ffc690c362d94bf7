//===- SynthTest.cpp - sources of known entropy ---------------------------===//

#include "runtime/Data/Synth.h"
#include "runtime/Data/Sampler.h"
#include "runtime/Data/Verifier.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <cmath>
#include <map>

using namespace nsa;

namespace {

// A two-state chain has the stationary distribution (q, p) / (p + q).
TEST(Markov, EntropyRate_HasTheClosedForm) {
  MarkovChain chain = take(MarkovChain::create(1, 2, 1.0, 5));
  double p = chain.probability(0, 1), q = chain.probability(1, 0);
  auto entropy = [](double x) {
    return -x * std::log(x) - (1 - x) * std::log(1 - x);
  };
  double expected = (q * entropy(p) + p * entropy(q)) / (p + q);
  EXPECT_NEAR(chain.entropyRate(), expected, 1e-10);
}

TEST(Markov, Sample_HasTheEntropyOfTheTable) {
  for (int64_t order : {1, 2, 3}) {
    MarkovChain chain = take(MarkovChain::create(order, 6, 1.5, 9));
    EXPECT_LT(chain.entropyRate(), std::log(6.0));
    EXPECT_NEAR(chain.loss(chain.sample(400000, 0)), chain.entropyRate(), 0.01);
  }
}

TEST(Markov, TooLargeTables_AreRefused) {
  EXPECT_FALSE(MarkovChain::create(3, 256, 1.0, 1).ok());
  EXPECT_FALSE(MarkovChain::create(0, 4, 1.0, 1).ok());
  EXPECT_FALSE(MarkovChain::create(1, 1, 1.0, 1).ok());
  EXPECT_TRUE(MarkovChain::create(2, 256, 1.0, 1).ok());
  for (double sharpness : {-1.0, 20.5, 1000.0, double(NAN), double(INFINITY)})
    EXPECT_FALSE(MarkovChain::create(1, 4, sharpness, 1).ok()) << sharpness;
  MarkovChain sharp = take(MarkovChain::create(1, 64, 20, 1));
  EXPECT_GT(sharp.entropyRate(), 0);
  EXPECT_TRUE(std::isfinite(sharp.loss(sharp.sample(10000, 1))));
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
  EXPECT_TRUE(failsWith(RecallTask({8, 4, 1, 1}).validate(), "1 to 3 pairs"));
  EXPECT_FALSE((RecallTask{20, 4, 1, 5}).validate());
  EXPECT_FALSE((RecallTask{20, 4, -1, 1}).validate());
}

TEST(Markov, FewerKnownTokens_HaveTheEntropyOfTheirPairs) {
  MarkovChain chain = take(MarkovChain::create(2, 4, 1.5, 5));
  std::vector<uint16_t> tokens = chain.sample(400000, 0);
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> firsts;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    ++pairs[{tokens[i], tokens[i + 1]}];
    ++firsts[tokens[i]];
  }
  double nats = 0;
  for (const auto &[pair, count] : pairs)
    nats -= count * std::log(count / firsts[pair.first]);
  std::vector<double> entropies = chain.entropies();
  ASSERT_EQ(entropies.size(), 2u);
  EXPECT_NEAR(entropies[0], nats / double(tokens.size() - 1), 5e-3);
  EXPECT_GT(entropies[0], entropies[1] + 0.01);
  Manifest manifest;
  manifest.kind = "markov";
  manifest.facts = {{"entropy", 1.0}, {"entropy_after_1", 1.5}};
  EXPECT_EQ(reachableEntropy(manifest, 10, false, false, false), 1.05);
}

/// Recall in documents of 29 tokens, and the sampler of its windows.
class RecallWindows : public ::testing::Test {
protected:
  void open(int64_t seqLen, uint64_t tokens = 20000) {
    SynthOptions options;
    options.output = dir.str();
    options.kind = "recall";
    options.vocab = 20;
    options.pairs = task.pairs;
    options.distance = task.distance;
    options.queries = task.queries;
    options.tokens = tokens;
    options.overwrite = true;
    ASSERT_TRUE(synthesize(options).ok());
    Dataset opened = take(Dataset::open(dir.str()));
    data = std::move(opened);
    Result<Documents> found = Documents::open(data.valDocuments);
    Result<TargetMarks> read = TargetMarks::open(data.valDocuments);
    Result<ValidationWindows> made =
        ValidationWindows::create(data.val, seqLen);
    ASSERT_TRUE(found.ok() && read.ok() && made.ok());
    documents = std::move(*found);
    marks = std::move(*read);
    windows = std::move(*made);
    ASSERT_TRUE(windows->beginAt(documents));
  }

  /// What a model that sees the document from its beginning loses at a
  /// position.
  double nats(int64_t at) const {
    double all = double(task.alphabet());
    if (at < 2 * task.pairs)
      return std::log(at % 2 ? all : all - double(at / 2));
    at -= 2 * task.pairs + task.distance;
    bool asks = at >= 0 && at < 2 * task.queries && at % 2 == 0;
    return asks ? std::log(double(task.pairs - at / 2)) : 0;
  }

  TempDir dir;
  RecallTask task{20, 4, 14, 3};
  Dataset data;
  Documents documents;
  TargetMarks marks;
  std::optional<ValidationWindows> windows;
};

TEST_F(RecallWindows, WholeDocuments_ReachTheEntropyThatIsPrinted) {
  const int64_t length = task.documentTokens(), seqLen = 2 * length;
  ASSERT_NO_FATAL_FAILURE(open(seqLen));
  std::vector<int32_t> tokens(size_t(seqLen), 0), targets = tokens,
                                                  starts = tokens;
  for (bool isIsolated : {false, true}) {
    if (isIsolated)
      windows->isolate(documents);
    double sum = 0, count = 0;
    for (uint64_t i = 0; i < windows->size(); ++i) {
      ASSERT_TRUE(
          windows->read(i, tokens.data(), targets.data(), starts.data()));
      for (int64_t t = 0; t < seqLen; ++t)
        if (targets[size_t(t)] >= 0) {
          sum += nats((t + 1) % length);
          ++count;
        }
    }
    std::optional<double> entropy =
        reachableEntropy(data.manifest, seqLen, true, isIsolated, false);
    ASSERT_TRUE(entropy);
    EXPECT_NEAR(*entropy, sum / count, 1e-12) << isIsolated;
  }
  for (auto [length, begins] : {std::pair(seqLen, false), {seqLen + 1, true}})
    EXPECT_FALSE(reachableEntropy(data.manifest, length, begins, false, false));
}

// Also of the document that a window cuts off: the next one begins with it.
TEST_F(RecallWindows, MarkedTargets_AreShownBeforeInTheWindow) {
  const int64_t seqLen = 2 * task.documentTokens() - 3;
  ASSERT_NO_FATAL_FAILURE(open(seqLen));
  windows->countMarked(marks);
  std::vector<int32_t> tokens(size_t(seqLen), 0), targets = tokens;
  uint64_t counted = 0;
  for (uint64_t i = 0; i < windows->size(); ++i) {
    ASSERT_TRUE(windows->read(i, tokens.data(), targets.data()));
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] < 0)
        continue;
      ++counted;
      bool isShown = false;
      for (size_t before = 1; before < t; ++before)
        isShown |=
            tokens[before - 1] == tokens[t] && tokens[before] == targets[t];
      EXPECT_TRUE(isShown) << "window " << i << " target " << t;
    }
  }
  EXPECT_GE(counted, windows->size() * uint64_t(task.queries));
  EXPECT_EQ(reachableEntropy(data.manifest, seqLen, true, false, true), 0.0);
}

TEST_F(RecallWindows, DamagedMarks_AreErrorsThatNameTheFile) {
  ASSERT_NO_FATAL_FAILURE(open(32));
  EXPECT_TRUE(verifyShards(data));
  std::string bytes = dir.read("val_targets.bits");
  bytes[1030] ^= 4;
  dir.write("val_targets.bits", bytes);
  Status status = verifyShards(data);
  ASSERT_FALSE(status);
  EXPECT_EQ(
      status.message().rfind("'" + dir / "val_targets.bits" + "' has hash ", 0),
      0u)
      << status.message();
  dir.write("val_targets.bits", bytes.substr(1));
  EXPECT_TRUE(failsWith(verifyShards(data), " bytes, the marks of "));
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
  Dataset data = take(Dataset::open(dir / "m"));
  EXPECT_EQ(data.train.size(), 9500u);
  EXPECT_EQ(data.val.size(), 500u);
  EXPECT_EQ(data.manifest.train.shards.size(), 3u);
  Result<MarkovChain> chain = MarkovChain::create(1, 16, 2.0, 1);
  EXPECT_EQ(data.manifest.fact("entropy"), chain->entropyRate());

  options.output = dir / "r";
  options.kind = "recall";
  manifest = synthesize(options);
  EXPECT_TRUE(failsWith(manifest, "1 to 7 pairs"));
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
