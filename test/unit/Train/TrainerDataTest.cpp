//===- TrainerDataTest.cpp - data that is damaged or goes away ------------===//

#include "test/unit/Train/TrainerFixture.h"

#include <atomic>
#include <csignal>
#include <thread>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

class TrainerDataTest : public TrainerFixture {
protected:
  void reopen() {
    Result<Dataset> opened = Dataset::open(dir / "data");
    ASSERT_TRUE(opened.ok()) << opened.message();
    data = std::move(*opened);
  }

  /// Changes a token to another one of the vocabulary.
  void damage(const std::string &file) {
    std::string bytes = dir.read("data/" + file);
    bytes[1024 + 100] ^= 1;
    dir.write("data/" + file, bytes);
    reopen();
  }

  /// Whether a run has said that its checkpoint waits for the verification.
  bool waits(const std::string &name) {
    return dir.read("runs/" + name + "/train.log")
               .find("the checkpoint waits until all shards are verified") !=
           std::string::npos;
  }

  std::string checkpoints(const std::string &name) {
    return dir / ("runs/" + name + "/checkpoints");
  }
};

// A mapped file that shrank once killed the trainer by a signal. Three passes
// are a step.
TEST_F(TrainerDataTest, Shard_ShrinksWhileTraining_LastStepIsSaved) {
  for (auto [file, name] : {std::pair("train_000000.bin", "train"),
                            std::pair("val_000000.bin", "val")}) {
    SCOPED_TRACE(name);
    std::string path = dir / ("data/" + std::string(file));
    std::string whole = dir.read("data/" + std::string(file));
    BigramModel model(2, 8, 16);
    model.onAccumulate = [&, path = path](int64_t pass) {
      if (pass == 3 * 7)
        fs::resize_file(path, 1024);
    };
    Result<TrainEnd> end = train(model, named(name));
    ASSERT_FALSE(end.ok());
    EXPECT_NE(end.message().find("'" + path + "' has shrunk: it ends before"),
              std::string::npos)
        << end.message();
    EXPECT_NE(end.message().find("the run ends after step 8, which is saved"),
              std::string::npos)
        << end.message();
    EXPECT_EQ(dir.read(std::string("runs/") + name + "/checkpoints/latest"),
              "step-00000008\n");
    dir.write("data/" + std::string(file), whole);
    reopen();
  }
}

TEST_F(TrainerDataTest, Shard_IsDamaged_NoRunBegins) {
  damage("val_000000.bin");
  DataVerifier verifier(data);
  verifier.start(2);
  TrainOptions options = named("a");
  options.verifier = &verifier;
  options.verifySeconds = 60;
  BigramModel model(2, 8, 16);
  Result<TrainEnd> end = train(model, options);
  ASSERT_FALSE(end.ok());
  EXPECT_NE(end.message().find("val_000000.bin' has hash "), std::string::npos)
      << end.message();
  EXPECT_NE(end.message().find(", its manifest says "), std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "runs"));
}

// It may have been trained on: nothing of the run may look good afterwards.
TEST_F(TrainerDataTest, Shard_FoundDamagedWhileTraining_NothingIsSaved) {
  damage("train_000000.bin");
  DataVerifier verifier(data);
  TrainOptions options = named("a");
  options.verifier = &verifier;
  options.verifySeconds = 0;
  BigramModel model(2, 8, 16);
  model.onAccumulate = [&](int64_t pass) {
    if (pass != 3 * 2)
      return;
    verifier.start(1);
    (void)verifier.wait();
  };
  Result<TrainEnd> end = train(model, options);
  ASSERT_FALSE(end.ok());
  EXPECT_NE(end.message().find("train_000000.bin' has hash "),
            std::string::npos)
      << end.message();
  EXPECT_NE(end.message().find("the steps from 1 to 3 may have read it and are "
                               "not saved; the newest checkpoint from before "
                               "them: none"),
            std::string::npos)
      << end.message();
  EXPECT_FALSE(fs::exists(checkpoints("a")));
}

TEST_F(TrainerDataTest, Shard_NotVerifiedYet_CheckpointWaits) {
  BigramModel first(2, 8, 16), second(2, 8, 16);
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(train(first, options).ok());

  damage("train_000000.bin");
  DataVerifier verifier(data);
  options = {};
  options.resume = dir / "runs/a";
  options.verifier = &verifier;
  options.verifySeconds = 0;
  // Verification begins once the checkpoint waits for it. A trainer that does
  // not wait ends well.
  std::atomic<bool> ended = false;
  std::thread later([&] {
    while (!ended && !waits("a"))
      std::this_thread::yield();
    verifier.start(1);
  });
  Result<TrainEnd> end = train(second, options);
  ended = true;
  later.join();
  ASSERT_FALSE(end.ok());
  EXPECT_NE(end.message().find("the steps from 6 to 10 may have read it and "
                               "are not saved; the newest checkpoint from "
                               "before them: " +
                               checkpoints("a") + "/step-00000005"),
            std::string::npos)
      << end.message();
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000005\n");
  EXPECT_FALSE(fs::exists(checkpoints("a") + "/step-00000010"));
}

// The verification never begins here, so that only the signal ends the wait.
TEST_F(TrainerDataTest, Stop_WhileCheckpointWaits_RunEndsUnsaved) {
  DataVerifier verifier(data);
  BigramModel model(2, 8, 16);
  TrainOptions options = named("a");
  options.verifier = &verifier;
  options.verifySeconds = 0;
  options.stopSeconds = 0;
  std::atomic<bool> ended = false;
  std::thread stopper([&] {
    while (!ended && !waits("a"))
      std::this_thread::yield();
    if (!ended)
      kill(getpid(), SIGTERM);
  });
  Result<TrainEnd> end = train(model, options);
  ended = true;
  stopper.join();
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::Interrupted);
  EXPECT_NE(dir.read("runs/a/train.log")
                .find("step 5: stopped before all shards were verified: the "
                      "steps from 1 to 5 are not saved; the newest checkpoint "
                      "from before them: none"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(checkpoints("a")));
}

} // namespace
