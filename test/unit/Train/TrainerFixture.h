//===- TrainerFixture.h - the trainer on a small model ----------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_TRAIN_TRAINERFIXTURE_H
#define NSA_TEST_UNIT_TRAIN_TRAINERFIXTURE_H

#include "runtime/Train/Trainer.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"
#include "test/unit/Train/SmallRun.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace nsa {

/// Runs of 20 steps below `runs`, with a checkpoint every 5.
class TrainerFixture : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(makeSmallRun(dir, 6, config));
    Result<Dataset> opened = Dataset::open(dir / "data");
    ASSERT_TRUE(opened.ok());
    data = std::move(*opened);
    config.train.keepCheckpoints = 0;
    null = std::fopen("/dev/null", "w");
  }
  void TearDown() override { std::fclose(null); }

  Result<TrainEnd> train(BigramModel &model, const TrainOptions &options) {
    Console console(null, false);
    Ranks alone;
    Trainer trainer(model, data, config, options, console, alone);
    Result<TrainEnd> end = trainer.run();
    run = trainer.runDirectory();
    return end;
  }
  TrainOptions named(const std::string &name) {
    TrainOptions options;
    options.configPath = "configs/test.yaml";
    options.runName = name;
    return options;
  }

  /// training.csv without its last column, which is a speed.
  std::string losses(const std::string &name) {
    std::istringstream lines(dir.read("runs/" + name + "/training.csv"));
    std::string line, text;
    while (std::getline(lines, line))
      text += line.substr(0, line.rfind(',')) + "\n";
    return text;
  }
  std::string logOf(const std::string &name) {
    return dir.read("runs/" + name + "/train.log");
  }
  nlohmann::json metricsOf(const std::string &name) {
    return nlohmann::json::parse(dir.read("runs/" + name + "/metrics.json"));
  }
  std::string tensors(const std::string &name, const std::string &step) {
    std::string folder = "runs/" + name + "/checkpoints/step-" + step + "/";
    return dir.read(folder + "model.safetensors") +
           dir.read(folder + "optimizer.safetensors");
  }

  TempDir dir;
  Dataset data;
  RunConfig config;
  std::string run;
  std::FILE *null = nullptr;
};

} // namespace nsa

#endif // NSA_TEST_UNIT_TRAIN_TRAINERFIXTURE_H
