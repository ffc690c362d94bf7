//===- TrainerChangesTest.cpp - going on as something else ----------------===//

#include "lib/Support/Hash.h"
#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <nlohmann/json.hpp>

using namespace nsa;

namespace {

class TrainerChangesTest : public TrainerFixture {
protected:
  /// Trains the first ten steps of the run.
  void trainHalf(BigramModel &model, const std::string &name) {
    TrainOptions options = named(name);
    options.stopAfter = 10;
    ASSERT_TRUE(succeeds(train(model, options)));
  }

  TrainOptions resuming(const std::string &name) {
    TrainOptions options;
    options.configPath = "configs/test.yaml";
    options.resume = name == "auto" ? name : dir / ("runs/" + name);
    return options;
  }

  bool hasLogged(const std::string &name, const std::string &text) {
    return dir.read("runs/" + name + "/train.log").find(text) !=
           std::string::npos;
  }

  nlohmann::json stateOf(const std::string &name, const std::string &step) {
    return nlohmann::json::parse(dir.read(
        "runs/" + name + "/checkpoints/step-000000" + step + "/state.json"));
  }
};

constexpr const char *otherKernels =
    "same parameters, other kernels: not bit for bit";

TEST_F(TrainerChangesTest, Resume_OtherParameters_AreNamed) {
  BigramModel first(2, 8, 16, 1), wider(2, 8, 17, 2);
  trainHalf(first, "a");
  std::string before = logOf("a");
  Result<TrainEnd> end = train(wider, resuming("a"));
  EXPECT_TRUE(failsWith(
      end, "its parameters are not the artefact's: 'w' is F32[16x16], the "
           "artefact's is F32[17x17]"));
  EXPECT_EQ(logOf("a"), before);
}

TEST_F(TrainerChangesTest, ResumeAuto_SameParametersOtherProgram_IsFound) {
  BigramModel first(2, 8, 16, 1), second(2, 8, 16, 2), wider(2, 8, 17, 3);
  trainHalf(first, "a");
  TrainOptions options = resuming("auto");
  options.runName = "b";
  ASSERT_TRUE(succeeds(train(wider, options)));
  EXPECT_EQ(run, dir / "runs/b");
  EXPECT_TRUE(hasLogged("b", "(1 of others)"));
  ASSERT_TRUE(succeeds(train(second, resuming("auto"))));
  EXPECT_EQ(run, dir / "runs/a");
  EXPECT_TRUE(hasLogged("a", otherKernels));
}

TEST_F(TrainerChangesTest, Resume_OtherBatch_NeedsItsFlagAndIsRecorded) {
  BigramModel first(2, 8, 16), second(2, 8, 16), third(2, 8, 16);
  trainHalf(first, "a");
  config.train.batchSize = 4;
  EXPECT_EQ(messageOf(train(second, resuming("a"))),
            "cannot resume: train.batch_size was 6 and is now 4 "
            "(--allow-changed-batch goes on with it)");
  TrainOptions options = resuming("a");
  options.allowChangedBatch = true;
  options.stopAfter = 5;
  ASSERT_TRUE(succeeds(train(second, options)));
  EXPECT_TRUE(hasLogged("a", "changed since: train.batch_size: 6 -> 4"));
  nlohmann::json state = stateOf("a", "15");
  EXPECT_EQ(state["samples"], 60 + 5 * 4);
  ASSERT_EQ(state["batches"].size(), 2u);
  EXPECT_EQ(state["batches"][1]["from_step"], 10);
  EXPECT_EQ(state["batches"][1]["samples"], 60);
  EXPECT_EQ(state["batches"][1]["batch_size"], 4);
  EXPECT_TRUE(contains(dir.read("runs/a/checkpoints/step-00000015/config.yaml"),
                       "batch_size: 4"));
  // It is this run's batch size from then on.
  ASSERT_TRUE(succeeds(train(third, resuming("a"))));
  EXPECT_EQ(stateOf("a", "20")["samples"], 60 + 10 * 4);
  EXPECT_EQ(stateOf("a", "20")["batches"].size(), 2u);
}

// The samples of a step follow those of the step before, whatever its batch.
TEST_F(TrainerChangesTest, Resume_OtherBatch_TakesTheNextSamples) {
  BigramModel first(2, 8, 16), second(2, 8, 16);
  trainHalf(first, "a");
  TrainOptions options = resuming("a");
  options.allowChangedBatch = true;
  options.stopAfter = 1;
  config.train.batchSize = 2;
  ASSERT_TRUE(train(second, options).ok());
  TrainSampler order =
      take(TrainSampler::create(data.train, 8, uint64_t(config.train.seed)));
  int32_t tokens[8], targets[8];
  ASSERT_TRUE(order.read(60, tokens, targets));
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(second.find("tokens")->as<int32_t>()[i], tokens[i]) << i;
}

TEST_F(TrainerChangesTest, Resume_OtherData_NeedsItsFlagAndIsRecorded) {
  BigramModel first(2, 8, 16), second(2, 8, 16), third(2, 8, 16);
  trainHalf(first, "a");
  SynthOptions other;
  other.output = dir / "other";
  other.vocab = 16;
  other.tokens = 5000;
  other.seed = 77;
  ASSERT_TRUE(synthesize(other).ok());
  Dataset opened = take(Dataset::open(dir / "other"));
  uint64_t before = data.manifest.digest(), after = opened.manifest.digest();
  data = std::move(opened);
  EXPECT_TRUE(failsWith(train(second, resuming("a")),
                        "it belongs to data " + toHex(before) + ", this is " +
                            toHex(after) +
                            " (--allow-changed-data goes on with other "
                            "data)"));
  TrainOptions options = resuming("auto");
  options.allowChangedData = true;
  options.stopAfter = 5;
  ASSERT_TRUE(succeeds(train(second, options)));
  EXPECT_EQ(run, dir / "runs/a");
  EXPECT_TRUE(hasLogged("a", "changed since: data: " + toHex(before) + " -> " +
                                 toHex(after)));
  nlohmann::json state = stateOf("a", "15");
  EXPECT_EQ(state["data_digest"], toHex(after));
  ASSERT_EQ(state["data"].size(), 2u);
  EXPECT_EQ(state["data"][1]["from_step"], 10);
  ASSERT_TRUE(succeeds(train(third, resuming("auto"))));
  EXPECT_EQ(run, dir / "runs/a");
}

TEST_F(TrainerChangesTest, Resume_OtherLength_ErrorNamesInitFrom) {
  BigramModel first(2, 8, 16), second(2, 4, 16);
  trainHalf(first, "a");
  config.train.seqLen = 4;
  EXPECT_EQ(messageOf(train(second, resuming("a"))),
            "cannot resume: train.seq_len was 8 and is now 4 "
            "(--init-from begins a run with the weights alone)");
}

} // namespace
