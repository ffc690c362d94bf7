//===- CheckpointSearchTest.cpp - bad checkpoints on the way --------------===//

#include "runtime/Train/Checkpoint.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"

using namespace nsa;
namespace fs = std::filesystem;

namespace {

class CheckpointSearch : public ::testing::Test {
protected:
  void save(const std::string &run, int64_t step, uint64_t artefact = 0xabc) {
    RunConfig config;
    config.train.batchSize = config.train.microBatch = 4;
    TrainState state;
    state.step = step;
    state.samples = uint64_t(step) * 4;
    state.seed = 1;
    state.artefactHash = artefact;
    ASSERT_TRUE(succeeds(saveCheckpoint(dir / run, model, state, config, 0)));
  }

  std::string name(const std::string &run, int64_t step) {
    return run + "/checkpoints/step-0000000" + std::to_string(step);
  }
  /// Damages weights, which takes a look at more than state.json to see.
  void damage(const std::string &run, int64_t step) {
    std::string file = name(run, step) + "/model.safetensors";
    std::string bytes = dir.read(file);
    bytes.back() ^= 1;
    dir.write(file, bytes);
  }
  void makeOlder(const std::string &run) {
    fs::last_write_time(dir / run + "/checkpoints/latest",
                        fs::file_time_type::clock::now() -
                            std::chrono::hours(1));
  }
  Result<FoundCheckpoint> findNewest(int64_t most = 0) {
    return findNewestCheckpoint(
        dir.str(),
        [](const std::string &, const TrainState &state) {
          return Result<bool>(state.artefactHash == 0xabc &&
                              state.dataDigest == 0);
        },
        most);
  }

  TempDir dir;
  BigramModel model{1, 2, 4};
};

TEST_F(CheckpointSearch, NewestIsBad_TheOneBeforeIsTaken) {
  for (int64_t step : {1, 2, 3})
    save("a", step);
  damage("a", 3);
  fs::remove_all(dir / name("a", 2));
  Result<FoundCheckpoint> found = findCheckpoint(dir / "a");
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->path, dir / name("a", 1));
  ASSERT_EQ(found->warnings.size(), 1u);
  EXPECT_EQ(found->warnings[0].find("skipped a bad checkpoint: '" +
                                    dir / name("a", 3) +
                                    "/model.safetensors' is damaged: its hash "
                                    "is "),
            0u)
      << found->warnings[0];
  // What `latest` names is named if it is gone, too.
  fs::remove_all(dir / name("a", 3));
  found = findCheckpoint(dir / "a");
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->path, dir / name("a", 1));
  EXPECT_EQ(found->warnings.size(), 1u);
}

// Later ones were left by a way back that broke off.
TEST_F(CheckpointSearch, LaterThanLatest_AreNotInForce) {
  for (int64_t step : {2, 3, 1})
    save("a", step);
  EXPECT_EQ(findCheckpoint(dir / "a")->path, dir / name("a", 1));
  damage("a", 1);
  EXPECT_FALSE(findCheckpoint(dir / "a").ok());
}

TEST_F(CheckpointSearch, ManyAreBad_OnlySoManyAreSkipped) {
  for (int64_t step : {1, 2, 3, 4})
    save("a", step);
  for (int64_t step : {2, 3, 4})
    damage("a", step);
  EXPECT_EQ(findCheckpoint(dir / "a", 3)->path, dir / name("a", 1));
  EXPECT_EQ(findCheckpoint(dir / "a", 0)->path, dir / name("a", 1));
  Result<FoundCheckpoint> found = findCheckpoint(dir / "a", 2);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.message().find("no good checkpoint in '" +
                                 dir / "a/checkpoints': '" +
                                 dir / name("a", 4)),
            0u)
      << found.message();
}

// It once was the start of a new run, on top of the old one's checkpoints.
TEST_F(CheckpointSearch, LatestIsMissing_NewestGoodOneIsTaken) {
  for (int64_t step : {1, 2})
    save("a", step);
  fs::remove(dir / "a/checkpoints/latest");
  for (const Result<FoundCheckpoint> &found :
       {findCheckpoint(dir / "a"), findNewest()}) {
    ASSERT_TRUE(found.ok()) << found.message();
    EXPECT_EQ(found->path, dir / name("a", 2));
    ASSERT_EQ(found->warnings.size(), 1u);
    EXPECT_EQ(found->warnings[0], "'" + (dir / "a/checkpoints/latest") +
                                      "' is missing, the newest good "
                                      "checkpoint beside it is taken");
  }
  damage("a", 2);
  EXPECT_EQ(findCheckpoint(dir / "a", 1)->path, dir / name("a", 1));
  fs::remove_all(dir / "a/checkpoints");
  EXPECT_FALSE(findCheckpoint(dir / "a").ok());
}

TEST_F(CheckpointSearch, LatestNamesNothing_NoneBefore_IsAnErrorThatNamesIt) {
  save("a", 3);
  dir.write("a/checkpoints/latest", "step-0000\n");
  EXPECT_EQ(messageOf(findCheckpoint(dir / "a")),
            "'" + (dir / "a/checkpoints/latest") +
                "' names 'step-0000', which is missing, and "
                "there is none before it");
}

TEST_F(CheckpointSearch, NamedOneHasNoState_IsAnErrorThatNamesTheFile) {
  save("a", 3);
  fs::remove(dir / name("a", 3) + "/state.json");
  EXPECT_EQ(messageOf(findCheckpoint(dir / name("a", 3))),
            "'" + (dir / name("a", 3)) +
                "' is no checkpoint, it has no state.json");
}

TEST_F(CheckpointSearch, CheckpointIsNamed_IsTakenAsItIs) {
  for (int64_t step : {1, 2})
    save("a", step);
  damage("a", 2);
  EXPECT_EQ(findCheckpoint(dir / name("a", 2))->path, dir / name("a", 2));
  EXPECT_FALSE(Checkpoint::open(dir / name("a", 2)).ok());
}

// A damaged neighbour once stopped the resume of a healthy run.
TEST_F(CheckpointSearch, NeighbourIsBad_IsPassedOver) {
  save("good", 1);
  makeOlder("good");
  save("weights", 2);
  damage("weights", 2);
  save("state", 3);
  dir.write(name("state", 3) + "/state.json", "{}");
  save("latest", 4);
  dir.write("latest/checkpoints/latest", "nonsense\n");
  save("other", 5, 0xdef);
  damage("other", 5);
  Result<FoundCheckpoint> found = findNewest();
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(found->path, dir / name("good", 1));
  EXPECT_EQ(found->others, 1u);
  ASSERT_EQ(found->warnings.size(), 3u);
  std::string all;
  for (const std::string &text : found->warnings) {
    EXPECT_EQ(text.find("passed over a run: "), 0u) << text;
    all += text + "\n";
  }
  for (const char *run : {"weights", "state", "latest"})
    EXPECT_TRUE(contains(all, dir / run));
  // Without a good one, none of these is taken for a reason to begin anew.
  fs::remove_all(dir / "good");
  found = findNewest();
  EXPECT_TRUE(failsWith(found, "cannot be continued, and no other run can: "));
}

TEST_F(CheckpointSearch, NewestOfARunIsBad_TheRunIsStillTheNewest) {
  save("old", 5);
  makeOlder("old");
  save("new", 1);
  save("new", 2);
  damage("new", 2);
  FoundCheckpoint found = take(findNewest(2));
  EXPECT_EQ(found.path, dir / name("new", 1));
  EXPECT_EQ(found.warnings.size(), 1u);
}

} // namespace
