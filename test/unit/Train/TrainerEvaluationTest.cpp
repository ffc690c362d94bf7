//===- TrainerEvaluationTest.cpp - what runs say of themselves ------------===//

#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <nlohmann/json.hpp>

using namespace nsa;

namespace {

class TrainerEvaluationTest : public TrainerFixture {
protected:
  std::vector<nlohmann::json> records(const std::string &name) {
    std::vector<nlohmann::json> all;
    std::istringstream lines(dir.read("runs/a/" + name));
    for (std::string line; std::getline(lines, line);)
      all.push_back(nlohmann::json::parse(line));
    return all;
  }

  /// The first two sequences are of 8 tokens, those after step 4 of 16.
  void makeStages() {
    config.train.batchSize = 2;
    config.train.evalEvery = 6;
    config.train.saveEvery = 0;
    config.train.steps = 8;
    config.stages = {{4, 8, 2, 2, 10000}, {4, 16, 2, 2, 10000}};
  }

  Result<TrainEnd> trainStage(size_t stage, const TrainOptions &options) {
    config = withStage(config, stage);
    BigramModel model(2, uint64_t(config.train.seqLen), 16);
    TrainOptions own = options;
    own.stage = stage;
    return train(model, own);
  }
};

TEST_F(TrainerEvaluationTest, Utilization_CountsTheEntriesOfAStep) {
  config.runtime.peakTflops = 1e-6;
  BigramModel model(2, 8, 16);
  model.operations = {{"accumulate", 100}, {"step", 1000}, {"update", 7}};
  ASSERT_TRUE(train(model, named("a")).ok());
  nlohmann::json metrics = metricsOf("a");
  EXPECT_EQ(metrics["flops_per_step"], 2 * 100 + 1000);
  EXPECT_NEAR(double(metrics["mfu"]),
              1200.0 * 20 / (double(metrics["step_seconds"]) * 1e6), 1e-9);
  for (const nlohmann::json &record : records("heartbeat_rank0.jsonl"))
    if (record["msg"] == "step")
      EXPECT_NEAR(double(record["mfu"]) * 48 * 1e6,
                  1200 * double(record["toks_per_s"]), 1e-3);
  EXPECT_TRUE(contains(logOf("a"), " | mfu "));

  TrainOptions options = named("separate");
  options.separateUpdate = true;
  BigramModel other(2, 8, 16);
  other.operations = model.operations;
  ASSERT_TRUE(train(other, options).ok());
  metrics = metricsOf("separate");
  EXPECT_EQ(metrics["flops_per_step"], 3 * 100 + 7);
}

TEST_F(TrainerEvaluationTest, UnknownPeak_HasNoUtilization) {
  BigramModel model(2, 8, 16);
  model.operations = {{"step", 1000}};
  ASSERT_TRUE(train(model, named("a")).ok());
  nlohmann::json metrics = metricsOf("a");
  EXPECT_EQ(metrics["flops_per_step"], 1000);
  EXPECT_FALSE(metrics.contains("mfu"));
  EXPECT_FALSE(contains(logOf("a"), " | mfu "));
}

/// The number after "mean " in the last progress line.
static double lastMean(const std::string &log) {
  size_t at = log.rfind("| mean ");
  return at == std::string::npos ? -1 : std::stod(log.substr(at + 7));
}

TEST_F(TrainerEvaluationTest, ResumedRun_ShowsTheMeanOfAllLastSteps) {
  BigramModel straight(2, 8, 16), first(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(straight, named("straight")).ok());
  TrainOptions options = named("a");
  options.stopAfter = 10;
  ASSERT_TRUE(train(first, options).ok());
  options = {};
  options.resume = dir / "runs/a";
  ASSERT_TRUE(train(second, options).ok());
  double mean = lastMean(logOf("straight"));
  EXPECT_GT(mean, 0);
  EXPECT_EQ(lastMean(logOf("a")), mean);
  nlohmann::json metrics = metricsOf("a");
  EXPECT_NEAR(double(metrics["train_loss_mean"]), mean, 1e-4);
}

TEST_F(TrainerEvaluationTest, Positions_ShareTheLossOfTheirWindows) {
  config.train.seqLen = 200;
  config.train.steps = 4;
  config.train.evalEvery = 2;
  config.train.evalBatches = 3;
  config.train.finalEvalBatches = 1;
  SynthOptions longer;
  longer.output = dir / "longer";
  longer.vocab = 16;
  longer.tokens = 20000;
  ASSERT_TRUE(synthesize(longer).ok());
  data = std::move(*Dataset::open(dir / "longer"));
  BigramModel model(2, 200, 16);
  model.addAttention({0.1f, 0.2f, 0.3f, 1.0f}, {3, 2, 4});
  ASSERT_TRUE(succeeds(train(model, named("a"))));
  std::vector<nlohmann::json> all = records("eval.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["msg"], "validated");
  EXPECT_EQ(all[1]["msg"], "final");
  for (const nlohmann::json &record : all) {
    ASSERT_EQ(record["positions"].size(), 3u);
    EXPECT_EQ(record["layers"], nlohmann::json::array({0}));
    EXPECT_EQ(record["gates"][0][2], double(0.3f));
    EXPECT_EQ(record["selections"][0][2], 4);
    int64_t targets = 0, ends[] = {64, 128, 200};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(record["positions"][i]["last"], ends[i]);
      targets += int64_t(record["positions"][i]["tokens"]);
    }
    EXPECT_EQ(targets, 2 * 200) << "one micro-batch of each range";
  }
  // The final evaluation takes the same two windows.
  double sum = 0;
  for (const nlohmann::json &part : all[1]["positions"])
    sum += double(part["loss"]) * double(part["tokens"]);
  EXPECT_NEAR(sum / 400, double(all[1]["loss"]), 1e-6);
}

TEST_F(TrainerEvaluationTest, StageSwitch_IsEvaluatedOnTheSameTokens) {
  makeStages();
  Result<TrainEnd> end = trainStage(0, named("a"));
  ASSERT_TRUE(end.ok()) << end.message();
  ASSERT_EQ(*end, TrainEnd::StageEnded);
  TrainOptions options;
  options.resume = dir / "runs/a";
  ASSERT_TRUE(succeeds(trainStage(1, options)));
  std::vector<nlohmann::json> all = records("eval.jsonl");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["msg"], "stage_end");
  EXPECT_EQ(all[1]["msg"], "stage_begun");
  EXPECT_EQ(all[2]["msg"], "validated");
  EXPECT_EQ(all[3]["msg"], "final");
  // A bigram knows no length: nothing differs but the targets, if they do.
  EXPECT_EQ(all[0]["tokens"], 3 * 2 * 8);
  EXPECT_EQ(all[1]["earlier_length"]["tokens"], 3 * 2 * 8);
  EXPECT_NEAR(double(all[1]["earlier_length"]["loss"]), double(all[0]["loss"]),
              1e-6);
  EXPECT_NE(double(all[2]["earlier_length"]["loss"]),
            double(all[1]["earlier_length"]["loss"]))
      << "two steps later";
  EXPECT_TRUE(contains(logOf("a"), "the first 8 of sequences of 16, "));
}

TEST_F(TrainerEvaluationTest, LengthsThatAreNoMultiples_AreNotCompared) {
  makeStages();
  config.stages[1].seqLen = 12;
  ASSERT_TRUE(trainStage(0, named("a")).ok());
  TrainOptions options;
  options.resume = dir / "runs/a";
  ASSERT_TRUE(trainStage(1, options).ok());
  EXPECT_TRUE(contains(logOf("a"),
                       "no loss at equal length before and after: sequences of "
                       "12 tokens are no multiple of 8"));
  for (const nlohmann::json &record : records("eval.jsonl"))
    EXPECT_TRUE(record["msg"] != "stage_end" && record["msg"] != "stage_begun")
        << record;
}

TEST_F(TrainerEvaluationTest, SampleEvery_AddsSamplesDuringTraining) {
  config.train.sampleEvery = 8;
  BigramModel model(2, 8, 16);
  ASSERT_TRUE(train(model, named("a")).ok());
  std::string log = logOf("a");
  size_t count = 0;
  // The data are numbers: that there are no samples is said instead.
  for (size_t at = 0;
       (at = log.find("no sample during training", at)) != std::string::npos;
       ++at)
    ++count;
  EXPECT_EQ(count, 2u);
}

} // namespace
