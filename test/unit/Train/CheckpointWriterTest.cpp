//===- CheckpointWriterTest.cpp - saves beside steps ----------------------===//

#include "runtime/Train/CheckpointWriter.h"
#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <csignal>
#include <future>
#include <sys/resource.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

/// Steps have three calls of accumulate.
constexpr int64_t perStep = 3;

class CheckpointWriterTest : public TrainerFixture {
protected:
  void SetUp() override {
    TrainerFixture::SetUp();
    config.train.saveAsync = true;
  }

  /// A run that nobody stops.
  void trainStraight() {
    BigramModel model(2, 8, 16);
    ASSERT_TRUE(train(model, named("straight")).ok());
  }

  std::string folder(const std::string &step) {
    return dir / "runs/a/checkpoints/" + step;
  }
};

TEST_F(CheckpointWriterTest, StepsThatFollow_AreNotInTheSnapshot) {
  for (bool isLive : {false, true}) {
    BigramModel model(2, 8, 16);
    model.isLive = isLive;
    ASSERT_TRUE(model.run("init"));
    std::vector<float> before = model.weights(), saved;
    std::promise<void> goOn;
    CheckpointWriter writer;
    EXPECT_FALSE(writer.wait()) << "nothing is in progress";
    Status begun = writer.start(model, [&](const TensorSet &from) {
      goOn.get_future().wait();
      for (const TensorView &tensor : from.tensors())
        if (tensor.name == "w")
          saved.assign(tensor.as<float>(),
                       tensor.as<float>() + tensor.elements());
      return SaveResult();
    });
    ASSERT_TRUE(begun) << begun.message();
    EXPECT_TRUE(writer.isBusy());
    EXPECT_FALSE(writer.isDone());
    model.set("w", 3, 7.0f);
    ASSERT_TRUE(model.run("eval"));
    goOn.set_value();
    std::optional<SaveResult> result = writer.wait();
    ASSERT_TRUE(result);
    EXPECT_FALSE(writer.isBusy());
    EXPECT_EQ(saved, before) << isLive;
    EXPECT_NE(model.weights(), before);
  }
}

TEST_F(CheckpointWriterTest, Snapshot_HoldsWhatCheckpointsHold) {
  BigramModel model(2, 8, 16);
  PageMemory memory;
  std::unique_ptr<Snapshot> snapshot = take(Snapshot::take(model, memory));
  std::vector<std::string> names;
  for (const TensorView &tensor : snapshot->tensors())
    names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"w", "m.w", "v.w", "loss_sum",
                                             "target_fraction_sum"}));
}

TEST_F(CheckpointWriterTest, SavesBesideSteps_AreThoseOfWaitingSteps) {
  config.train.saveAsync = false;
  ASSERT_NO_FATAL_FAILURE(trainStraight());
  config.train.saveAsync = true;
  for (bool isLive : {false, true}) {
    std::string name = isLive ? "live" : "copied";
    BigramModel model(2, 8, 16);
    model.isLive = isLive;
    ASSERT_TRUE(succeeds(train(model, named(name))));
    EXPECT_EQ(losses(name), losses("straight"));
    for (const char *step : {"00000005", "00000010", "00000015", "00000020"})
      EXPECT_EQ(tensors(name, step), tensors("straight", step)) << step;
    std::string log = dir.read("runs/" + name + "/train.log");
    for (const char *step : {"05\n", "10\n", "15\n", "20\n"})
      EXPECT_TRUE(contains(log, "saved " + dir / "runs/" + name +
                                    "/checkpoints/step-000000" + step));
  }
}

TEST_F(CheckpointWriterTest, DiskIsFullForAWhile_TrainingGoesOn) {
  ASSERT_NO_FATAL_FAILURE(trainStraight());
  struct rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, SIG_IGN);
  auto limit = [&](rlim_t bytes) {
    struct rlimit now = {bytes, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  };
  config.train.saveEvery = 10;
  BigramModel model(2, 8, 16);
  model.before[9 * perStep] = [&] { limit(600); };
  // Until the save after that step has failed and removed what it began.
  model.before[19 * perStep] = [&] {
    for (int times = 0; times < 2; ++times)
      do
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      while (!fs::exists(folder("")) || !fs::is_empty(folder("")));
    limit(old.rlim_cur);
  };
  Result<TrainEnd> end = train(model, named("a"));
  limit(old.rlim_cur);
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::Finished);
  EXPECT_TRUE(
      contains(logOf("a"), "step 10: no checkpoint was saved: cannot write '"));
  EXPECT_FALSE(fs::exists(folder("step-00000010")));
  EXPECT_TRUE(fs::exists(folder("step-00000020")));
  EXPECT_EQ(tensors("a", "00000020"), tensors("straight", "00000020"));
}

TEST_F(CheckpointWriterTest, FolderIsNone_IsAnErrorAfterTheStep) {
  BigramModel model(2, 8, 16);
  model.before[7 * perStep] = [&] {
    // The last file of the save after step 5.
    while (!fs::exists(folder("latest")))
      std::this_thread::yield();
    fs::remove_all(dir / "runs/a/checkpoints");
    dir.write("runs/a/checkpoints", "a file");
  };
  EXPECT_TRUE(failsWith(train(model, named("a")),
                        "no checkpoint was saved: cannot create"));
}

} // namespace
