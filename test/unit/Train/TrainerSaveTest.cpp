//===- TrainerSaveTest.cpp - saves that fail, and when to save ------------===//

#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <csignal>
#include <sys/resource.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

/// Steps have three calls of accumulate.
constexpr int64_t perStep = 3;

class TrainerSaveTest : public TrainerFixture {
protected:
  void SetUp() override {
    TrainerFixture::SetUp();
    getrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  void TearDown() override {
    limitFiles(old.rlim_cur);
    TrainerFixture::TearDown();
  }

  /// No file may grow past so many bytes: what a full disk looks like.
  void limitFiles(rlim_t bytes) {
    struct rlimit limit = {bytes, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  std::string read(const std::string &name) { return dir.read("runs/" + name); }

  struct rlimit old;
};

size_t count(const std::string &text, const std::string &what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at)
    ++found;
  return found;
}

// Moments that overflow leave loss and gradients finite: such weights once
// replaced the last good ones.
TEST_F(TrainerSaveTest, MomentNotFinite_EndsTheRunAndKeepsTheLastGoodOne) {
  config.train.keepCheckpoints = 1;
  BigramModel model(2, 8, 16);
  model.before[9 * perStep] = [&] { model.set("v.w", 7, INFINITY); };
  Result<TrainEnd> end = train(model, named("a"));
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::NonFinite);
  std::string log = read("a/train.log");
  EXPECT_TRUE(
      contains(log, "step 10: no checkpoint was saved: state 'v.w'[7] is "
                    "inf\nlast good checkpoint: " +
                        dir / "runs/a/checkpoints/step-00000005\n"));
  EXPECT_EQ(read("a/checkpoints/latest"), "step-00000005\n");
  EXPECT_EQ(read("a/.anomaly_type"), "nan_loss\n");
  EXPECT_TRUE(contains(read("a/metrics.json"), "\"end\": \"nan_loss\""));
  BigramModel straight(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(straight, named("b")).ok());
  TrainOptions resume;
  resume.resume = dir / "runs/a";
  ASSERT_TRUE(train(second, resume).ok());
  EXPECT_EQ(tensors("a", "00000020"), tensors("b", "00000020"));
}

TEST_F(TrainerSaveTest, WeightNotFiniteAtTheEnd_IsNotSaved) {
  config.train.saveEvery = 0;
  BigramModel model(2, 8, 16);
  model.before[19 * perStep] = [&] { model.set("m.w", 7, NAN); };
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::NonFinite);
  EXPECT_TRUE(contains(read("a/train.log"), "parameter 'w'[7] is nan"));
  EXPECT_FALSE(fs::exists(dir / "runs/a/checkpoints/latest"));
}

// A full disk once ended the run; its records then had holes.
TEST_F(TrainerSaveTest, DiskIsFullForAWhile_TrainingGoesOn) {
  BigramModel straight(2, 8, 16), model(2, 8, 16);
  ASSERT_TRUE(train(straight, named("a")).ok());
  model.before[7 * perStep] = [&] { limitFiles(600); };
  model.before[13 * perStep] = [&] { limitFiles(old.rlim_cur); };
  Result<TrainEnd> end = train(model, named("b"));
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::Finished);
  std::string log = read("b/train.log"), checkpoints = "b/checkpoints/";
  EXPECT_TRUE(contains(
      log, "step 10: no checkpoint was saved: cannot write '" +
               dir / "runs/b/checkpoints/.tmp-step-00000010/"
                     "model.safetensors': File too large; training goes on, "
                     "and the next save tries again\n"));
  EXPECT_TRUE(contains(log, "saves that failed for lack of room: 1\n"));
  EXPECT_EQ(count(log, "heartbeat_rank0.jsonl': File too large"), 2u)
      << "when it begins and at the end: " << log;
  for (const char *step : {"step-00000005", "step-00000015", "step-00000020"})
    EXPECT_TRUE(fs::exists(dir / "runs/" + checkpoints + step)) << step;
  EXPECT_FALSE(fs::exists(dir / "runs/" + checkpoints + "step-00000010"));
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(tensors("a", "00000020"), tensors("b", "00000020"));
  EXPECT_EQ(count(read("b/heartbeat_rank0.jsonl"), "\"msg\":\"step\""), 20u);
}

TEST_F(TrainerSaveTest, DiskIsFullAtTheEnd_IsAnError) {
  config.train.saveEvery = 0;
  BigramModel model(2, 8, 64);
  limitFiles(8000);
  EXPECT_TRUE(failsWith(train(model, named("a")),
                        "no checkpoint was saved: cannot write '"));
  limitFiles(old.rlim_cur);
  EXPECT_TRUE(
      contains(read("a/train.log"),
               "warning: a file of a checkpoint takes 32,776 bytes, but "
               "this process may write 8,000 (ulimit -f): no save can "
               "succeed"));
}

TEST_F(TrainerSaveTest, SaveMinutes_SavesByTheClock) {
  config.train.saveEvery = 0;
  config.train.saveMinutes = 0.05 / 60;
  BigramModel model(2, 8, 16);
  for (int64_t step = 0; step < 10; ++step)
    model.slow[step * perStep] = 0.02;
  ASSERT_TRUE(train(model, named("a")).ok());
  size_t saves = count(read("a/train.log"), "\nsaved ");
  EXPECT_GE(saves, 3u);
  EXPECT_LE(saves, 6u);
  config.train.saveMinutes = 0;
  BigramModel other(2, 8, 16);
  ASSERT_TRUE(train(other, named("b")).ok());
  EXPECT_EQ(count(read("b/train.log"), "\nsaved "), 1u);
}

// What was written into a folder that nobody finds again once ended with 0.
TEST_F(TrainerSaveTest, RunDirectoryIsGone_IsAnError) {
  for (bool removed : {true, false}) {
    std::string name = removed ? "removed" : "renamed";
    fs::path folder = dir / "runs/" + name;
    BigramModel model(2, 8, 16);
    model.before[7 * perStep] = [&] {
      removed ? void(fs::remove_all(folder))
              : fs::rename(folder, dir / "elsewhere");
    };
    EXPECT_EQ(messageOf(train(model, named(name))),
              "the run directory '" + folder.string() +
                  "' was removed or renamed while the run wrote into it");
    EXPECT_FALSE(fs::exists(folder));
  }
}

} // namespace
