//===- RunHistoryTest.cpp - what a run has gone through -------------------===//

#include "runtime/Train/RunHistory.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace nsa;

namespace {

TEST(RunHistory, SamplesAt_BatchChanged_CountsEachPeriod) {
  RunHistory history;
  history.setBatch(0, 0, 4);
  EXPECT_EQ(*history.samplesAt(10), 40u);
  history.setBatch(10, 40, 4);
  EXPECT_EQ(history.batches.size(), 1u);
  history.setBatch(10, 40, 6);
  EXPECT_EQ(*history.samplesAt(10), 40u);
  EXPECT_EQ(*history.samplesAt(12), 52u);
  // Taken back before a step was done with it.
  history.setBatch(10, 40, 4);
  EXPECT_EQ(history.batches.size(), 1u);
  EXPECT_EQ(*history.samplesAt(12), 48u);
}

// 9 samples of 32 tokens end where sample 4.5 of 64 tokens would: the next
// whole one comes first.
TEST(RunHistory, SamplesAt_LongerSamples_BeginAfterTheTokensBefore) {
  RunHistory history;
  history.setBatch(0, 0, 3, 32);
  history.setBatch(3, convertSamples(9, 32, 64), 3, 64);
  EXPECT_EQ(history.batches.back().samples, 5u);
  EXPECT_EQ(*history.samplesAt(4), 8u);
  history.batches.back().samples = 9;
  EXPECT_EQ(history.samplesAt(4).message(),
            "batches from step 3 begin at sample 9, those before end at 5");
}

TEST(RunHistory, SamplesAt_PeriodsContradict_NamesBothNumbers) {
  struct Case {
    std::vector<BatchPeriod> batches;
    const char *error;
  };
  for (const Case &wrong :
       {Case{{}, "no batches"},
        Case{{{1, 4, 4}}, "batches from step 1 come first"},
        Case{{{0, 0, 4}, {5, 21, 2}},
             "batches from step 5 begin at sample 21, those before end at 20"},
        Case{{{0, 3, 4}},
             "batches from step 0 begin at sample 3, those before end at 0"},
        Case{{{0, 0, 4}, {0, 0, 2}},
             "batches from step 0 follow those from step 0"},
        Case{{{0, 0, 4}, {50, 200, 2}},
             "batches from step 50 are later than step 20"},
        Case{{{0, 0, 0}}, "a batch of 0"},
        Case{{{0, 0, INT64_MAX}},
             "20 steps of 9223372036854775807 sequences are more than 2^64"}}) {
    RunHistory history;
    history.batches = wrong.batches;
    Result<uint64_t> samples = history.samplesAt(20);
    ASSERT_FALSE(samples.ok()) << wrong.error;
    EXPECT_EQ(samples.message(), wrong.error);
  }
}

TEST(RunHistory, WriteHistory_ReadBack_IsTheSame) {
  RunHistory history;
  history.setBatch(0, 0, 4);
  history.setBatch(7, 28, 6);
  history.setData(0, 0xabc);
  history.setData(7, 0xdef);
  history.initFrom = "/some/model.safetensors";
  history.initHash = 5;
  nlohmann::ordered_json json;
  writeHistory(history, json);
  RunHistory back = readHistory(json);
  ASSERT_EQ(back.batches.size(), 2u);
  EXPECT_EQ(back.batches[1].fromStep, 7);
  EXPECT_EQ(back.batches[1].samples, 28u);
  EXPECT_EQ(back.batches[1].batchSize, 6);
  ASSERT_EQ(back.data.size(), 2u);
  EXPECT_EQ(back.data[1].fromStep, 7);
  EXPECT_EQ(back.data[1].digest, 0xdefu);
  EXPECT_EQ(back.initFrom, history.initFrom);
  EXPECT_EQ(back.initHash, 5u);
  // As checkpoints were before.
  EXPECT_TRUE(readHistory(nlohmann::ordered_json::object()).batches.empty());
  json["batches"][1]["samples"] = -1;
  EXPECT_THROW((void)readHistory(json), std::runtime_error);
}

} // namespace
