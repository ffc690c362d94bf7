//===- RunJournalTest.cpp - one event reaches all who record it -----------===//

#include "runtime/Train/RunJournal.h"
#include "test/unit/TempDir.h"

#include <filesystem>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

class RunJournalTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<RunDirectory> created = RunDirectory::create(dir / "runs", "a", "");
    ASSERT_TRUE(created.ok());
    ASSERT_TRUE(journal.open(std::move(*created), 0, 0).ok());
  }

  TempDir dir;
  Console console{stdout, false};
  Ranks alone;
  RunJournal journal{console, alone};
};

} // namespace

TEST_F(RunJournalTest, Event_ReachesConsoleHeartbeatsAndFiles) {
  journal.publish({.step = 3,
                   .line = "anomaly nan_loss at step 3",
                   .heartbeat = "nan_loss: 9",
                   .anomaly = AnomalyKind::NanLoss,
                   .sample = "== sample\ntext\n"});
  EXPECT_EQ(dir.read("runs/a/train.log"), "anomaly nan_loss at step 3\n");
  EXPECT_NE(dir.read("runs/a/heartbeat_rank0.jsonl").find("nan_loss: 9"),
            std::string::npos);
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "nan_loss\n");
  EXPECT_EQ(dir.read("runs/a/samples.txt"), "== sample\ntext\n");
}

TEST_F(RunJournalTest, UnwritableRecord_IsOneWarningAndTheRunGoesOn) {
  std::filesystem::create_directory(dir / "runs/a/samples.txt");
  for (int i = 0; i < 2; ++i)
    journal.publish({.step = 1, .sample = "text"});
  journal.sayWarnings();
  std::string log = dir.read("runs/a/train.log");
  EXPECT_NE(log.find("samples.txt"), std::string::npos);
  EXPECT_EQ(log.find("training goes on"), log.rfind("training goes on"));
}
