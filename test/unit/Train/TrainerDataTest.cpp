//===- TrainerDataTest.cpp - data that is damaged or goes away ------------===//

#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

class TrainerDataTest : public TrainerFixture {
protected:
  void reopen() {
    Dataset opened = take(Dataset::open(dir / "data"));
    data = std::move(opened);
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
    EXPECT_TRUE(failsWith(end, "'" + path + "' has shrunk: it ends before"));
    EXPECT_TRUE(failsWith(end, "the run ends after step 8, which is saved"));
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
  EXPECT_TRUE(failsWith(end, "val_000000.bin' has hash "));
  EXPECT_TRUE(failsWith(end, ", its manifest says "));
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
  EXPECT_TRUE(failsWith(end, "train_000000.bin' has hash "));
  EXPECT_TRUE(failsWith(end, "the steps from 1 to 3 may have read it and are "
                             "not saved; the newest checkpoint from before "
                             "them: none"));
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
  EXPECT_TRUE(failsWith(end, "the steps from 6 to 10 may have read it and "
                             "are not saved; the newest checkpoint from "
                             "before them: " +
                                 checkpoints("a") + "/step-00000005"));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000005\n");
  EXPECT_FALSE(fs::exists(checkpoints("a") + "/step-00000010"));
}

/// Waits until a data set is verified.
void await(DataVerifier &verifier) {
  verifier.start(2);
  ASSERT_TRUE(succeeds(verifier.wait()));
}

TEST_F(TrainerDataTest, Shard_OverwrittenAfterItsCheck_NothingMoreIsSaved) {
  DataVerifier verifier(data);
  await(verifier);
  TrainOptions options = named("a");
  options.verifier = &verifier;
  std::string path = dir / "data/train_000000.bin";
  BigramModel model(2, 8, 16);
  model.onAccumulate = [&](int64_t pass) {
    std::string bytes = dir.read("data/train_000000.bin");
    if (pass == 3 * 3)
      // Equal content that was written again.
      fs::last_write_time(path, fs::last_write_time(path) + 1s);
    if (pass != 3 * 7)
      return;
    bytes[1024 + 100] ^= 1;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file << bytes;
    file.close();
    fs::last_write_time(path, fs::last_write_time(path) + 1s);
  };
  Result<TrainEnd> end = train(model, options);
  EXPECT_TRUE(failsWith(end, "'" + path + "' has hash "));
  EXPECT_TRUE(failsWith(end, "the steps from 6 to 10 may have read it"));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000005\n");
}

/// Data of another project, which no manifest gives hashes, and of which only
/// the ends tell it from others.
class ForeignDataTest : public TrainerDataTest {
protected:
  void SetUp() override {
    TrainerDataTest::SetUp();
    config.data.tokenizer = "shards";
    std::vector<int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 200000;
    bytes.assign(reinterpret_cast<char *>(header.data()), 1024);
    for (int32_t i = 0; i < header[2]; ++i)
      bytes += std::string{char(i % 251 % 15), '\0'};
    rewrite();
  }

  void rewrite() {
    dir.write("foreign/train.bin", bytes);
    Dataset opened = take(Dataset::open(dir / "foreign", 16));
    data = std::move(opened);
  }

  Result<TrainEnd> go(TrainOptions options, bool isVerified = true) {
    DataVerifier verifier(data);
    if (isVerified) {
      await(verifier);
      options.verifier = &verifier;
    }
    BigramModel model(2, 8, 16);
    return train(model, options);
  }

  std::string bytes;
};

TEST_F(ForeignDataTest, TokensChangeBetweenHalves_RunDoesNotGoOn) {
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(go(options).ok());
  uint64_t digest = data.digest();
  bytes[200000] ^= 1;
  rewrite();
  ASSERT_EQ(data.digest(), digest) << "the ends alone are in it";
  options = {};
  options.resume = dir / "runs/a";
  Result<TrainEnd> end = go(options);
  EXPECT_TRUE(failsWith(end, "'" + dir / "foreign/train.bin" +
                                 "' has changed: its hash is "));
  EXPECT_TRUE(failsWith(end, "/step-00000005' is of one with "));
  options.allowChangedData = true;
  end = go(options);
  EXPECT_TRUE(end.ok()) << end.message();
}

// A run that verifies nothing saves no hashes, as older versions did.
TEST_F(ForeignDataTest, CheckpointWithoutHashes_GoesOnWithOneWarning) {
  TrainOptions options = named("a");
  options.stopAfter = 5;
  ASSERT_TRUE(go(options, /*isVerified=*/false).ok());
  options = {};
  options.resume = dir / "runs/a";
  options.stopAfter = 5;
  ASSERT_TRUE(go(options).ok());
  std::string warning = "has no hashes of the files of its data",
              log = logOf("a");
  size_t at = log.find(warning);
  ASSERT_NE(at, std::string::npos) << log;
  dir.write("runs/a/train.log", "");
  ASSERT_TRUE(go(options).ok());
  EXPECT_FALSE(contains(logOf("a"), warning));
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
  EXPECT_TRUE(contains(logOf("a"),
                       "step 5: stopped before all shards were verified: the "
                       "steps from 1 to 5 are not saved; the newest checkpoint "
                       "from before them: none"));
  EXPECT_FALSE(fs::exists(checkpoints("a")));
}

} // namespace
