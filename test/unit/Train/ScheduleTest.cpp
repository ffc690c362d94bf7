//===- ScheduleTest.cpp - learning rate and batch plan --------------------===//

#include "runtime/Train/Schedule.h"
#include "runtime/Train/Agreement.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>

using namespace nsa;

namespace {

TrainConfig config(int64_t steps, int64_t warmup, const char *schedule) {
  TrainConfig train;
  train.steps = steps;
  train.warmupSteps = warmup;
  train.lrSchedule = schedule;
  train.lr = 1e-3;
  train.lrMin = 1e-5;
  return train;
}

TEST(Schedule, Cosine_FollowsTheWarmUp) {
  TrainConfig train = config(110, 10, "cosine");
  EXPECT_DOUBLE_EQ(learningRate(train, 0), 1e-4);
  EXPECT_DOUBLE_EQ(learningRate(train, 4), 5e-4);
  EXPECT_DOUBLE_EQ(learningRate(train, 9), 1e-3);
  EXPECT_NEAR(learningRate(train, 59), (1e-3 + 1e-5) / 2, 1e-12);
  for (int64_t step = 10; step < 110; ++step)
    EXPECT_LT(learningRate(train, step), learningRate(train, step - 1));
}

TEST(Schedule, LinearAndConstant_FollowTheirFormulas) {
  TrainConfig linear = config(100, 0, "linear");
  EXPECT_NEAR(learningRate(linear, 49), (1e-3 + 1e-5) / 2, 1e-12);
  TrainConfig constant = config(100, 10, "constant");
  EXPECT_DOUBLE_EQ(learningRate(constant, 99), 1e-3);
  EXPECT_DOUBLE_EQ(learningRate(constant, 10), 1e-3);
}

TEST(Schedule, WSD_IsConstantThenLinear) {
  TrainConfig train = config(100, 10, "wsd");
  EXPECT_DOUBLE_EQ(learningRate(train, 4), 5e-4);
  EXPECT_DOUBLE_EQ(learningRate(train, 79), 1e-3);
  EXPECT_NEAR(learningRate(train, 89), (1e-3 + 1e-5) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(learningRate(train, 99), 1e-5);
  train.lrDecaySteps = 4;
  EXPECT_DOUBLE_EQ(learningRate(train, 95), 1e-3);
  EXPECT_NEAR(learningRate(train, 97), (1e-3 + 1e-5) / 2, 1e-12);
}

TEST(Schedule, ShortRuns_StayInRange) {
  for (const char *name : {"cosine", "linear", "wsd"})
    for (int64_t steps : {1, 2, 3, 5})
      for (int64_t warmup = 0; warmup <= steps; ++warmup)
        for (int64_t step = 0; step < steps; ++step) {
          double lr = learningRate(config(steps, warmup, name), step);
          EXPECT_GE(lr, 1e-5);
          EXPECT_LE(lr, 1e-3);
        }
}

// The schedule once counted micro-steps and ended at 53 % of the peak.
TEST(Schedule, Schedule_CountsOptimizerSteps) {
  TrainConfig train = config(50, 5, "cosine");
  train.batchSize = 8;
  train.microBatch = 2;
  train.seqLen = 4;
  BatchPlan plan = take(planBatch(train, 2, 4));
  ASSERT_EQ(plan.passes, 4);
  EXPECT_DOUBLE_EQ(learningRate(train, train.steps - 1), train.lrMin);
  std::array<float, 8> hyper = hyperParameters(train, 49);
  EXPECT_EQ(hyper[0], float(train.lrMin));
  EXPECT_EQ(hyper[6], 1.0f);
  EXPECT_EQ(hyper[7], 50.0f);
}

// The batch size once was global for one data set and per rank for another.
TEST(Schedule, BatchSize_IsSequencesPerOptimizerStep) {
  TrainConfig train;
  train.batchSize = 12;
  train.microBatch = 4;
  train.seqLen = 16;
  BatchPlan plan = take(planBatch(train, 4, 16));
  EXPECT_EQ(plan.sequencesPerStep(), 12);
  EXPECT_EQ(plan.tokensPerStep(), 192);

  train.accumulateGradBatches = 2;
  EXPECT_EQ(planBatch(train, 4, 16).message(),
            "train.accumulate_grad_batches (2) must be batch_size / "
            "micro_batch (3)");
  train.accumulateGradBatches = 3;
  EXPECT_TRUE(planBatch(train, 4, 16).ok());
}

TEST(Schedule, RanksThatShareSequences_TakeTheSameSamples) {
  TrainConfig train;
  train.batchSize = 12;
  train.microBatch = 2;
  train.seqLen = 16;
  train.contextParallel = 2;
  BatchPlan plan = take(planBatch(train, 2, 16, 6));
  EXPECT_EQ(plan.passes, 2);
  EXPECT_EQ(plan.sequencesPerStep(), 12);
  EXPECT_EQ(plan.firstSample(0, 1, 2), 8u);
  EXPECT_EQ(plan.firstSample(0, 1, 3), 8u);
  EXPECT_EQ(planBatch(train, 2, 16, 3).message(),
            "train.context_parallel (2) must divide the number of ranks (3)");
  EXPECT_EQ(planBatch(train, 2, 16, 8).message(),
            "train.batch_size (12) must be a multiple of the artefact's "
            "micro-batch times the groups of ranks that share sequences "
            "(2 x 4)");
}

TEST(Schedule, Errors_NameBothNumbers) {
  TrainConfig train;
  train.batchSize = 12;
  train.microBatch = 4;
  train.seqLen = 16;
  EXPECT_EQ(planBatch(train, 5, 16).message(),
            "train.batch_size (12) must be a multiple of the artefact's "
            "micro-batch (5)");
  EXPECT_EQ(planBatch(train, 6, 16).message(),
            "train.micro_batch is 4, the artefact was compiled for 6 "
            "(nsa-compile --micro-batch=4, or --set train.micro_batch=6)");
  EXPECT_EQ(planBatch(train, 4, 32).message(),
            "train.seq_len is 16, the artefact was compiled for 32 "
            "(nsa-compile --seq-len=16, or --set train.seq_len=32)");
}

// A toy model was once trained for 35,000 steps instead of the one asked for.
TEST(Schedule, ArtefactOfAnotherModel_IsRefused) {
  RunConfig config;
  std::string json = printConfigJson(config);
  EXPECT_TRUE(checkModelConfig(config, json));
  RunConfig other = config;
  other.model.dim = 768;
  EXPECT_EQ(messageOf(checkModelConfig(other, json)),
            "model.dim is 768, the artefact was compiled from a model with "
            "128");
  other = config;
  other.nsa.nSel = 3;
  EXPECT_FALSE(checkModelConfig(other, json));
  other = config;
  other.train.lr = 0.5;
  EXPECT_TRUE(checkModelConfig(other, json));
  EXPECT_FALSE(checkModelConfig(config, "{"));
}

} // namespace
