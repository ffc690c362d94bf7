//===- TrainerRanksTest.cpp - ranks that train together -------------------===//

#include "runtime/Distributed/Socket.h"
#include "runtime/Train/Trainer.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"
#include "test/unit/Train/SmallRun.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#ifdef NSA_GLOO

using namespace nsa;

namespace {

/// Exit codes of a rank besides those of a TrainEnd.
constexpr int exitError = 20, exitWeights = 21, exitUnsaved = 22;

class TrainerRanksTest : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(makeSmallRun(dir, 12, config));
  }

  /// Trains as a rank, and returns an exit code.
  int trainRank(int rank, int size, uint16_t port, const std::string &name) {
    RankEnvironment environment;
    environment.rank = rank;
    environment.size = size;
    environment.port = port;
    RanksOptions options;
    options.plugin = NSA_GLOO;
    options.timeout = Milliseconds(20000);
    Result<std::unique_ptr<Ranks>> ranks = Ranks::join(environment, options);
    Result<Dataset> data =
        Dataset::open(dir / (rank == brokenRank ? "broken" : "data"));
    if (!ranks || !data)
      return exitError;
    BigramModel model(2, 8, 16);
    if (isIsolated) {
      isolateDocuments(*data, config);
      model.addStarts();
    }
    DataVerifier verifier(*data);
    if (!isShrinking)
      verifier.start(1);
    // Two ranks have three passes of a step each.
    model.onAccumulate = [&](int64_t pass) {
      if (pass != 3 * 2)
        return;
      if (isShrinking && rank == brokenRank)
        std::filesystem::resize_file(dir / "broken/train_000000.bin", 1024);
      (void)verifier.wait(isShrinking ? 0 : 60);
    };
    model.communicator = (*ranks)->communicator();
    if (rank == poisonedRank)
      model.poisonAt = poisonAt;
    if (rank == slowRank)
      model.slowFinish = slowStep;
    if (rank == stoppedRank)
      model.stopAt = stopAt;
    std::FILE *null = std::fopen("/dev/null", "w");
    Console console(null, false);
    TrainOptions train;
    train.configPath = "configs/test.yaml";
    train.runName = name;
    train.stopAfter = stopAfter;
    train.separateUpdate = rank == separateRank;
    if (brokenRank >= 0 && !isShrinking)
      train.verifier = &verifier;
    train.verifySeconds = 0;
    train.sameOnAllRanks = {
        {"--check-finite", rank == otherRank ? "on" : "off"}};
    model.slowToHost = slowSave;
    model.sharing = shares ? size : 0;
    if (rank == badMomentRank)
      model.before[badMomentAt] = [&] { model.set("v.w", 7, INFINITY); };
    Trainer trainer(model, *data, config, train, console, **ranks);
    Result<TrainEnd> end = trainer.run();
    std::fclose(null);
    for (float weight : model.weights())
      if (!std::isfinite(weight))
        return exitWeights;
    if (stopAfter > 0 && !std::filesystem::exists(dir / ("runs/" + name) +
                                                  "/checkpoints/latest"))
      return exitUnsaved;
    std::ofstream(weightsFile(name, rank), std::ios::binary)
        .write(reinterpret_cast<const char *>(model.weights().data()),
               std::streamsize(model.weights().size() * sizeof(float)));
    int code = end ? int(*end) : exitError;
    if ((*ranks)->stopReason().empty()) {
      (*ranks)->leave();
      return code;
    }
    // A reduction may be running.
    (*ranks)->fail("");
    ::_exit(code);
  }

  std::string weightsFile(const std::string &name, int rank) {
    return dir / (name + ".rank" + std::to_string(rank));
  }

  /// Every rank is a process of its own. Returns their codes.
  std::vector<int> train(int size, const std::string &name) {
    uint16_t port = *findFreePort();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      pids.push_back(::fork());
      if (pids.back() == 0)
        ::_exit(trainRank(rank, size, port, name));
    }
    std::vector<int> codes;
    for (pid_t pid : pids) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return codes;
  }

  /// A column of a table of a run.
  std::vector<double> column(const std::string &name, int number) {
    std::istringstream lines(dir.read("runs/" + name));
    std::string line;
    std::getline(lines, line);
    std::vector<double> values;
    while (std::getline(lines, line)) {
      for (int i = 0; i < number; ++i)
        line.erase(0, line.find(',') + 1);
      values.push_back(std::stod(line));
    }
    return values;
  }

  /// Losses and norms of training and losses of validation to 1e-5.
  void expectSameLosses(const std::string &name, const std::string &other) {
    for (auto [file, number] :
         {std::pair("/training.csv", 1), std::pair("/training.csv", 3),
          std::pair("/val.csv", 1)}) {
      std::vector<double> expected = column(other + file, number);
      std::vector<double> losses = column(name + file, number);
      ASSERT_EQ(losses.size(), expected.size());
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i])
            << file << " row " << i;
    }
  }

  /// A field of a rank's heartbeats, of the steps.
  std::vector<double> heartbeats(const std::string &name, int rank,
                                 const std::string &field) {
    std::istringstream lines(dir.read("runs/" + name + "/heartbeat_rank" +
                                      std::to_string(rank) + ".jsonl"));
    std::string key = "\"" + field + "\":";
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);)
      if (size_t at = line.find(key);
          line.find("\"msg\":\"step\"") != std::string::npos &&
          at != std::string::npos)
        values.push_back(std::stod(line.substr(at + key.size())));
    return values;
  }

  TempDir dir;
  RunConfig config;
  int slowRank = -1;
  double slowStep = 0;
  int poisonedRank = -1;
  int64_t poisonAt = 0;
  int64_t stopAfter = 0;
  int stoppedRank = -1;
  int64_t stopAt = 0;
  double slowSave = 0;
  bool shares = false;
  int badMomentRank = -1;
  int64_t badMomentAt = 0;
  int separateRank = -1, otherRank = -1;
  /// The rank with files of its own, which shrink in step 3, or else differ
  /// from their manifest.
  int brokenRank = -1;
  bool isShrinking = false;
  bool isIsolated = false;
};

// Two GPUs once ran at 100 % and 30 %, and nothing said so. A rank that is slow
// after the last reduction makes the steps of all longer, and is named.
TEST_F(TrainerRanksTest, DistanceBetweenRanks_IsLogged) {
  slowRank = 1;
  slowStep = 0.05;
  config.train.logEvery = 5;
  ASSERT_EQ(train(2, "a"), std::vector<int>(2, int(TrainEnd::Finished)));
  for (int rank : {0, 1}) {
    std::vector<double> own = heartbeats("a", rank, "own_seconds"),
                        speeds = heartbeats("a", rank, "toks_per_s");
    ASSERT_EQ(own.size(), 20u);
    ASSERT_EQ(speeds.size(), 20u);
    std::sort(own.begin(), own.end());
    EXPECT_EQ(own[10] >= slowStep, rank == slowRank) << own[10];
    // Also of the rank that waits, in steps that no evaluation follows.
    std::sort(speeds.begin(), speeds.end());
    EXPECT_LE(speeds[10], 96 / slowStep) << "rank " << rank;
  }
  std::string log = dir.read("runs/a/train.log");
  for (int step : {5, 10, 15, 20}) {
    std::string line = "step " + std::to_string(step) + ": ranks differ by ";
    size_t at = log.find(line);
    ASSERT_NE(at, std::string::npos) << log;
    // Lesson 8 allows 5 %.
    EXPECT_GT(std::stod(log.substr(at + line.size())), 5.0) << log;
  }
  EXPECT_TRUE(contains(log, " % of a step at most, rank 1 is the slowest"));
}

// The batch size once was global for one data set and per rank for another.
TEST_F(TrainerRanksTest, Ranks_ShareOneBatch) {
  ASSERT_EQ(train(1, "one"), std::vector<int>(1, int(TrainEnd::Finished)));
  for (int size : {2, 3}) {
    std::string name = "ranks" + std::to_string(size);
    ASSERT_EQ(train(size, name),
              std::vector<int>(size_t(size), int(TrainEnd::Finished)));
    expectSameLosses(name, "one");
    EXPECT_TRUE(contains(dir.read("runs/" + name + "/train.log"),
                         "96 tokens per step = " + std::to_string(size) +
                             " ranks x " + std::to_string(6 / size) + " x 2"));
  }
}

// Ranks with unequal numbers of targets once were averaged as equals.
TEST_F(TrainerRanksTest, UnevenTargets_AnyNumberOfRanksGivesTheSameLosses) {
  isIsolated = true;
  config.train.batchSize = 16;
  for (int size : {1, 2, 4}) {
    std::string name = "ranks" + std::to_string(size);
    ASSERT_EQ(train(size, name),
              std::vector<int>(size_t(size), int(TrainEnd::Finished)));
    expectSameLosses(name, "ranks1");
  }
}

TEST_F(TrainerRanksTest, EveryRank_WritesHeartbeatsAndTheFirstTheLog) {
  ASSERT_EQ(train(2, "a"), std::vector<int>(2, int(TrainEnd::Finished)));
  for (const char *rank : {"0", "1"}) {
    std::istringstream lines(
        dir.read(std::string("runs/a/heartbeat_rank") + rank + ".jsonl"));
    int steps = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(contains(line, std::string("\"rank\":") + rank));
      steps += line.find("\"msg\":\"step\"") != std::string::npos;
    }
    EXPECT_EQ(steps, 20);
  }
  EXPECT_EQ(column("a/training.csv", 0).size(), 20u);
}

// A rank's gradients are averaged with those of others: nobody updates, all
// stop, and the log says whose gradient it was.
TEST_F(TrainerRanksTest, OneRankNotFinite_StopsAll) {
  poisonedRank = 1;
  poisonAt = 3 * 12 + 1;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, int(TrainEnd::NonFinite)));
  std::string log = dir.read("runs/a/train.log");
  EXPECT_TRUE(
      contains(log, "first tensor that is not finite: grad.w[5] in pass 1 on "
                    "rank 1"));
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "nan_loss\n");
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000010\n");
}

// A rank that stops at a command once ended by itself after the time-out of the
// others, which took it for lost.
TEST_F(TrainerRanksTest, OneRankStopsAtACommand_StopsAll) {
  stopAfter = 3;
  ASSERT_EQ(train(3, "before"), std::vector<int>(3, int(TrainEnd::Halted)));
  stopAfter = 0;
  // Two passes of a rank are a step.
  stopAt = 3 * 2 + 1;
  for (int rank : {0, 2}) {
    stoppedRank = rank;
    std::string name = "stopped" + std::to_string(rank);
    auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(train(3, name), std::vector<int>(3, int(TrainEnd::NonFinite)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(10000));
    std::string what = "command 7 wrote nan on rank " + std::to_string(rank),
                log;
    log = dir.read("runs/" + name + "/train.log");
    EXPECT_TRUE(contains(log, "step 4: " + what));
    EXPECT_EQ(dir.read("runs/" + name + "/.anomaly_type"), "nan_loss\n");
    EXPECT_TRUE(contains(dir.read("runs/" + name + "/metrics.json"),
                         "\"end\": \"nan_loss\""));
    for (int other = 0; other < 3; ++other) {
      std::string heartbeats = dir.read("runs/" + name + "/heartbeat_rank" +
                                        std::to_string(other) + ".jsonl");
      EXPECT_TRUE(contains(heartbeats, "nan_loss: " + what));
      std::string weights = name + ".rank" + std::to_string(other);
      EXPECT_EQ(dir.read(weights), dir.read("before.rank0")) << weights;
    }
  }
}

// Reductions of different sizes once met in Gloo, which aborted.
TEST_F(TrainerRanksTest, RanksThatUpdateInOtherWays_AreRefused) {
  separateRank = 1;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, exitError));
}

TEST_F(TrainerRanksTest, RanksThatCheckOtherThings_AreRefused) {
  otherRank = 1;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, exitError));
}

// Ranks that had nothing to save once ended before rank 0 had saved, and what
// started them took that for a failure.
TEST_F(TrainerRanksTest, NoRank_LeavesBeforeTheFirstHasSaved) {
  stopAfter = 2;
  slowSave = 0.5;
  EXPECT_EQ(train(3, "a"), std::vector<int>(3, int(TrainEnd::Halted)));
}

// The ranks save together what only one of them cannot go on from.
TEST_F(TrainerRanksTest, Shard_OneRanksShrinks_AllSaveAndEnd) {
  std::filesystem::copy(dir / "data", dir / "broken");
  brokenRank = 1;
  isShrinking = true;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, exitError));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000003\n");
  for (const char *rank : {"0", "1"}) {
    std::string heartbeats =
        dir.read(std::string("runs/a/heartbeat_rank") + rank + ".jsonl");
    EXPECT_TRUE(contains(heartbeats, "train_000000.bin' has shrunk"));
  }
}

TEST_F(TrainerRanksTest, Shard_OneRanksIsDamaged_AllEndAndNoneSaves) {
  std::filesystem::copy(dir / "data", dir / "broken");
  std::string bytes = dir.read("broken/train_000000.bin");
  bytes[1024 + 100] ^= 1;
  dir.write("broken/train_000000.bin", bytes);
  brokenRank = 1;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, exitError));
  EXPECT_FALSE(std::filesystem::exists(dir / "runs/a/checkpoints"));
}

// Each rank alone sees its moments.
TEST_F(TrainerRanksTest, SharedMomentNotFinite_NoRankSaves) {
  shares = true;
  badMomentRank = 1;
  badMomentAt = 9 * 3;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, int(TrainEnd::NonFinite)));
  std::string log = dir.read("runs/a/train.log");
  EXPECT_TRUE(contains(log,
                       "step 10: no checkpoint was saved: state 'v.w'[7] is "
                       "inf on rank 1\n"));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000005\n");
  EXPECT_FALSE(
      std::filesystem::exists(dir / "runs/a/checkpoints/.tmp-step-00000010"));
}

TEST_F(TrainerRanksTest, SaveBesideSteps_AllRanksLearnHowItEnded) {
  config.train.saveAsync = true;
  config.train.keepCheckpoints = 0;
  EXPECT_EQ(train(2, "good"), std::vector<int>(2, int(TrainEnd::Finished)));
  for (const char *step : {"05", "10", "15", "20"})
    EXPECT_TRUE(Checkpoint::open(dir / "runs/good/checkpoints/step-000000" +
                                 std::string(step))
                    .ok())
        << step;
  badMomentRank = 0;
  badMomentAt = 9 * 3;
  EXPECT_EQ(train(2, "bad"), std::vector<int>(2, int(TrainEnd::NonFinite)));
  EXPECT_TRUE(contains(dir.read("runs/bad/train.log"),
                       "step 10: no checkpoint was saved: state 'v.w'[7] is "
                       "inf on rank 0\n"));
  EXPECT_EQ(dir.read("runs/bad/checkpoints/latest"), "step-00000005\n");
}

// Clocks of ranks differ; a save is something that all do at one step.
TEST_F(TrainerRanksTest, SaveMinutes_AllRanksSaveAtTheStepOfTheFirst) {
  shares = true;
  config.train.saveEvery = 0;
  config.train.saveMinutes = 0.03 / 60;
  config.train.keepCheckpoints = 0;
  slowRank = 1;
  slowStep = 0.01;
  EXPECT_EQ(train(2, "a"), std::vector<int>(2, int(TrainEnd::Finished)));
  std::string log = dir.read("runs/a/train.log");
  EXPECT_NE(log.find("\nsaved "), log.rfind("\nsaved ")) << log;
}

} // namespace

#endif
