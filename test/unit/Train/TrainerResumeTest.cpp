//===- TrainerResumeTest.cpp - continuing a run ---------------------------===//

#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

using TrainerResumeTest = TrainerFixture;

// Resuming once restored the weights alone and swallowed errors.
TEST_F(TrainerResumeTest, Resumed_IsBitwiseTheStraightRun) {
  BigramModel straight(2, 8, 16), first(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(straight, named("a")).ok());
  TrainOptions options = named("b");
  options.stopAfter = 10;
  EXPECT_EQ(take(train(first, options)), TrainEnd::Halted);
  TrainOptions resume;
  resume.resume = dir / "runs/b";
  EXPECT_EQ(take(train(second, resume)), TrainEnd::Finished);
  EXPECT_EQ(run, dir / "runs/b");
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(dir.read("runs/a/val.csv"), dir.read("runs/b/val.csv"));
  EXPECT_EQ(tensors("a", "00000020"), tensors("b", "00000020"));
  EXPECT_FALSE(tensors("a", "00000020").empty());
}

// A crash before the next save once undid the way back, with tables cut.
TEST_F(TrainerResumeTest, GoingBack_HoldsFromItsFirstMoment) {
  config.train.keepCheckpoints = 4;
  BigramModel straight(2, 8, 16), first(2, 8, 16), back(2, 8, 16);
  BigramModel last(2, 8, 16);
  ASSERT_TRUE(train(straight, named("a")).ok());
  ASSERT_TRUE(train(first, named("b")).ok());
  TrainOptions resume;
  resume.resume = dir / "runs/b/checkpoints/step-00000005";
  pid_t child = fork();
  if (child == 0) {
    // Dies in step 8, before it saves anything.
    back.dieAt = 3 * 2;
    (void)train(back, resume);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(dir.read("runs/b/checkpoints/latest"), "step-00000005\n");
  fs::last_write_time(dir / "runs/a/checkpoints/latest",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  resume.resume = "auto";
  config.train.keepCheckpoints = 2;
  ASSERT_TRUE(succeeds(train(last, resume)));
  EXPECT_EQ(run, dir / "runs/b");
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(tensors("a", "00000020"), tensors("b", "00000020"));
  EXPECT_EQ(dir.read("runs/b/checkpoints/latest"), "step-00000020\n");
  for (const char *step : {"10", "15", "20"})
    EXPECT_TRUE(fs::exists(
        dir / (std::string("runs/b/checkpoints/abandoned-step-000000") + step)))
        << step;
  EXPECT_TRUE(contains(logOf("b"), "later than that, set aside: "));
}

// The folder two above a copied checkpoint was once taken for the run, and its
// files were overwritten.
TEST_F(TrainerResumeTest, CopiedCheckpoint_IsRefused) {
  BigramModel first(2, 8, 16), second(2, 8, 16);
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(train(first, options).ok());
  dir.write("project/config.yaml", "mine");
  fs::create_directories(dir / "project/backup");
  fs::create_directories(dir / "project/checkpoints");
  TrainOptions resume;
  for (const char *folder :
       {"backup/step-00000005", "backup/copy", "checkpoints/step-00000005"}) {
    std::string copy = dir / "project/" + folder;
    fs::copy(dir / "runs/a/checkpoints/step-00000005", copy,
             fs::copy_options::recursive);
    resume.resume = copy;
    EXPECT_TRUE(failsWith(train(second, resume), "a run continues only from "
                                                 "<run>/checkpoints/step-N"));
  }
  EXPECT_EQ(dir.read("project/config.yaml"), "mine");
  EXPECT_FALSE(fs::exists(dir / "project/train.log"));
}

// Two processes that continued the same run once wrote into each other's files.
TEST_F(TrainerResumeTest, SecondProcessOfARun_IsRefused) {
  BigramModel first(2, 8, 16), second(2, 8, 16), third(2, 8, 16);
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(train(first, options).ok());
  std::string before = logOf("a");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    Result<FileLock> lock = RunDirectory::lock(dir / "runs/a");
    (void)!write(ready[1], lock.ok() && lock->isHeld() ? "y" : "n", 1);
    pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  TrainOptions resume;
  resume.resume = dir / "runs/a";
  EXPECT_EQ(messageOf(train(second, resume)), "the run '" + (dir / "runs/a") +
                                                  "' is in use by process " +
                                                  std::to_string(child));
  EXPECT_EQ(logOf("a"), before);
  // The lock goes with its process.
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Result<TrainEnd> end = train(third, resume);
  EXPECT_TRUE(end.ok()) << end.message();
}

TEST_F(TrainerResumeTest, AutoResume_TakesTheNewestOrStartsAnew) {
  BigramModel first(2, 8, 16), second(2, 8, 16), third(2, 8, 16);
  TrainOptions options = named("a");
  options.resume = "auto";
  options.stopAfter = 7;
  ASSERT_TRUE(train(first, options).ok());
  EXPECT_TRUE(contains(logOf("a"), "resume auto: no checkpoint"));
  options.runName = "ignored";
  options.stopAfter = 0;
  ASSERT_TRUE(train(second, options).ok());
  EXPECT_EQ(run, dir / "runs/a");
  EXPECT_TRUE(contains(logOf("a"), "at step 7"));
  // Finished: nothing is left to resume, and that is said; by name it is an
  // error.
  std::string log = logOf("a");
  EXPECT_EQ(take(train(third, options)), TrainEnd::Finished);
  EXPECT_EQ(logOf("a"), log);
  EXPECT_TRUE(fs::exists(dir / "runs/a/metrics.json"));
  options.resume = dir / "runs/a";
  EXPECT_TRUE(
      failsWith(train(third, options), "is at step 20, train.steps is 20"));
}

// A run killed in its final evaluation could never be finished.
TEST_F(TrainerResumeTest, KilledAfterTheLastStep_IsFinished) {
  BigramModel first(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(first, named("a")).ok());
  nlohmann::json before = metricsOf("a");
  std::string losses = this->losses("a"), val = dir.read("runs/a/val.csv");
  fs::remove(dir / "runs/a/metrics.json");
  TrainOptions resume;
  resume.resume = "auto";
  Result<TrainEnd> end = train(second, resume);
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::Finished);
  EXPECT_EQ(run, dir / "runs/a");
  EXPECT_EQ(this->losses("a"), losses);
  EXPECT_EQ(dir.read("runs/a/val.csv"), val);
  nlohmann::json after = metricsOf("a");
  for (const char *key : {"end", "step", "tokens", "train_loss", "val_loss",
                          "ngram_order1", "checkpoint"})
    EXPECT_EQ(after[key], before[key]) << key;
}

TEST_F(TrainerResumeTest, Resume_OtherSeedOrNowhere_IsRefused) {
  BigramModel first(2, 8, 16), third(2, 8, 16);
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(train(first, options).ok());
  TrainOptions resume;
  resume.resume = dir / "runs/a";
  config.train.seed = 7;
  EXPECT_FALSE(train(third, resume).ok());
  resume.resume = dir / "nowhere";
  EXPECT_FALSE(train(third, resume).ok());
}

} // namespace
