//===- TrainerTest.cpp - the training loop on a small model ---------------===//

#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

using TrainerTest = TrainerFixture;

TEST_F(TrainerTest, ShortRun_LearnsAndLeavesItsRecords) {
  config.train.steps = 300;
  config.train.saveEvery = 0;
  BigramModel model(2, 8, 16);
  Result<TrainEnd> end = train(model, named("a"));
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::Finished);
  nlohmann::json metrics = metricsOf("a");
  double entropy = *data.manifest.fact("entropy");
  EXPECT_GT(metrics["val_loss"], entropy - 0.1);
  EXPECT_LT(metrics["val_loss"], entropy + 0.2);
  EXPECT_EQ(metrics["end"], "finished");
  EXPECT_EQ(metrics["loss_unit"], "nats/token");
  EXPECT_EQ(metrics["tokens"], 300 * 6 * 8);
  EXPECT_TRUE(metrics.contains("ngram_order1"));
  for (const char *name :
       {"env.json", "config.yaml", "config.json", "dtypes_report.txt",
        "train.log", "heartbeat_rank0.jsonl", "val.csv"})
    EXPECT_FALSE(dir.read(std::string("runs/a/") + name).empty()) << name;
  std::string log = logOf("a");
  EXPECT_TRUE(contains(log, configHash(config)));
  EXPECT_LT(log.find(configHash(config)), log.find('\n'));
  EXPECT_TRUE(contains(log, "48 tokens per step"));
  EXPECT_TRUE(contains(log, "epoch 2 begins after step"));
  EXPECT_TRUE(contains(log, ": the training split was used once\n"));
  EXPECT_TRUE(contains(log, ": the training split was used 2 times\n"));
  EXPECT_TRUE(contains(log, "validation loss"));
}

// Runs once seemed to hang because only some steps showed a sign of life.
TEST_F(TrainerTest, EveryStep_WritesAHeartbeat) {
  config.train.logEvery = 7;
  BigramModel model(2, 8, 16);
  ASSERT_TRUE(train(model, named("a")).ok());
  std::istringstream lines(dir.read("runs/a/heartbeat_rank0.jsonl"));
  std::string line;
  int64_t step = 0;
  while (std::getline(lines, line)) {
    nlohmann::json entry = nlohmann::json::parse(line);
    if (entry["msg"] != "step")
      continue;
    EXPECT_EQ(entry["step"], ++step);
  }
  EXPECT_EQ(step, config.train.steps);
}

TEST_F(TrainerTest, SameSeed_GivesTheSameBits) {
  BigramModel a(2, 8, 16), b(2, 8, 16), c(2, 8, 16);
  ASSERT_TRUE(train(a, named("a")).ok());
  ASSERT_TRUE(train(b, named("b")).ok());
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(a.weights(), b.weights());
  config.train.seed = 2;
  ASSERT_TRUE(train(c, named("c")).ok());
  EXPECT_NE(losses("a"), losses("c"));
}

TEST_F(TrainerTest, Step_EqualsAccumulateAndUpdate) {
  // The last of three passes.
  BigramModel fused(2, 8, 16), separate(2, 8, 16);
  ASSERT_TRUE(train(fused, named("a")).ok());
  TrainOptions options = named("b");
  options.separateUpdate = true;
  ASSERT_TRUE(train(separate, options).ok());
  EXPECT_EQ(losses("a"), losses("b"));
  EXPECT_EQ(fused.weights(), separate.weights());
  auto ran = [](const BigramModel &model, const char *entry) {
    return std::count(model.calls.begin(), model.calls.end(), entry);
  };
  EXPECT_EQ(ran(fused, "accumulate"), 40);
  EXPECT_EQ(ran(fused, "step"), 20);
  EXPECT_EQ(ran(fused, "update"), 0);
  EXPECT_EQ(ran(separate, "accumulate"), 60);
  EXPECT_EQ(ran(separate, "step"), 0);
  EXPECT_EQ(ran(separate, "update"), 20);
}

TEST_F(TrainerTest, MicroBatches_ChangeOnlyTheRounding) {
  BigramModel small(2, 8, 16), large(6, 8, 16);
  ASSERT_TRUE(train(small, named("a")).ok());
  config.train.microBatch = 6;
  ASSERT_TRUE(train(large, named("b")).ok());
  for (size_t i = 0; i < small.weights().size(); ++i)
    ASSERT_NEAR(small.weights()[i], large.weights()[i], 1e-4);
}

// Micro-batches with unequal numbers of targets once were averaged as equals.
TEST_F(TrainerTest, UnevenTargets_AnyMicroBatchGivesTheSameLosses) {
  isolateDocuments(data, config);
  config.train.batchSize = 12;
  config.train.gradClip = 0.5;
  std::vector<std::vector<float>> tables;
  std::vector<float> weights;
  for (int64_t size : {1, 2, 6, 12}) {
    BigramModel model(uint64_t(size), 8, 16);
    model.addStarts();
    config.train.microBatch = size;
    config.train.evalBatches = int64_t(24 / size);
    std::string name = std::to_string(size);
    ASSERT_TRUE(train(model, named(name)).ok());
    std::vector<float> &numbers = tables.emplace_back();
    for (const char *file : {"training.csv", "val.csv"}) {
      std::istringstream lines(dir.read("runs/" + name + "/" + file));
      std::string line;
      std::getline(lines, line);
      while (std::getline(lines, line)) {
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream columns(line);
        float number;
        // The last column of training.csv is a speed.
        for (int i = 0; i < 4 && columns >> number; ++i)
          numbers.push_back(number);
      }
    }
    if (size == 1)
      weights = model.weights();
    ASSERT_EQ(numbers.size(), 20 * 4 + 3 * 3);
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(numbers[i], tables[0][i], 1e-5 * tables[0][i]) << i;
    for (size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(model.weights()[i], weights[i], 1e-5);
  }
}

TEST_F(TrainerTest, StepWithoutTargets_UpdatesNothingAndIsSaid) {
  isolateDocuments(data, config);
  // Half of the windows have documents of one token alone.
  DocumentSource &source = data.trainDocuments.front();
  source.starts.clear();
  for (uint64_t at = 0; at < source.tokens;
       at += at < source.tokens / 2 ? 1 : 40)
    source.starts.push_back(at);
  config.train.batchSize = config.train.microBatch = 1;
  config.train.evalBatches = 8;
  BigramModel model(1, 8, 16);
  model.addStarts();
  ASSERT_TRUE(train(model, named("a")).ok());
  std::string log = logOf("a");
  size_t line = log.find(": no token of its sequences has a target, no update");
  ASSERT_NE(line, std::string::npos) << log;
  EXPECT_TRUE(
      contains(dir.read("runs/a/heartbeat_rank0.jsonl"), "\"no_targets\""));
  EXPECT_TRUE(contains(losses("a"), ",nan,"));
  EXPECT_FALSE(
      contains(dir.read("runs/a/metrics.json"), "\"train_loss_mean\":null"));
  for (float weight : model.weights())
    ASSERT_TRUE(std::isfinite(weight));
}

TEST_F(TrainerTest, SplitWithoutTargets_IsRefused) {
  for (auto [sources, split] : {std::pair(&data.trainDocuments, "training"),
                                std::pair(&data.valDocuments, "validation")}) {
    Dataset opened = take(Dataset::open(dir / "data"));
    data = std::move(opened);
    isolateDocuments(data, config);
    DocumentSource &source = sources->front();
    source.starts.resize(source.tokens);
    std::iota(source.starts.begin(), source.starts.end(), 0);
    BigramModel model(2, 8, 16);
    model.addStarts();
    Result<TrainEnd> end = train(model, named(split));
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.message().find("the " + std::string(split) +
                                 " split has no target"),
              0u)
        << end.message();
    EXPECT_FALSE(contains(end.message(), "\n"));
  }
}

// Non-finite numbers once reached the weights, and the run exited with 0.
TEST_F(TrainerTest, NonFiniteGradients_StopTheRun) {
  BigramModel model(2, 8, 16);
  model.poisonAt = 3 * 12 + 1;
  Result<TrainEnd> end = train(model, named("a"));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, TrainEnd::NonFinite);
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "nan_loss\n");
  std::string log = logOf("a");
  EXPECT_TRUE(
      contains(log, "first tensor that is not finite: grad.w[5] in pass 1"));
  EXPECT_TRUE(contains(log, "step-00000010"));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000010\n");
  EXPECT_EQ(metricsOf("a")["end"], "nan_loss");
  for (float weight : model.weights())
    EXPECT_TRUE(std::isfinite(weight));
  // The last good checkpoint continues as if nothing had happened.
  BigramModel straight(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(straight, named("b")).ok());
  TrainOptions resume;
  resume.resume = dir / "runs/a";
  ASSERT_TRUE(train(second, resume).ok());
  EXPECT_EQ(losses("a"), losses("b"));
}

// The gradient that was named was once the first in the order of the program,
// into which the NaN had only spread.
TEST_F(TrainerTest, FirstNonFiniteGradient_IsNamed) {
  BigramModel model(2, 8, 16);
  float *spread = model.addGradient("grad.embedding", 9);
  float *source = model.addGradient("grad.norm", 3);
  float *fine = model.addGradient("grad.output", 1);
  spread[0] = source[2] = NAN;
  fine[0] = 1;
  std::string found = take(firstNonFiniteGradient(model));
  EXPECT_EQ(found, "grad.norm[2]");
}

TEST_F(TrainerTest, NoGoodStep_HasNoLoss) {
  BigramModel model(2, 8, 16);
  model.poisonAt = 0;
  ASSERT_TRUE(train(model, named("a")).ok());
  EXPECT_TRUE(metricsOf("a")["train_loss"].is_null());
}

// What --check-finite found once ended the run as an error of the program.
TEST_F(TrainerTest, CommandWritesNaN_EndsTheRunAsNonFinite) {
  BigramModel model(2, 8, 16);
  model.stopAt = 3 * 12;
  Result<TrainEnd> end = train(model, named("a"));
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_EQ(*end, TrainEnd::NonFinite);
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "nan_loss\n");
  EXPECT_EQ(metricsOf("a")["end"], "nan_loss");
  EXPECT_TRUE(contains(logOf("a"), "step 13: command 7 wrote nan"));
}

// fp16: gradients that do not fit at a scale of the loss are no reason to stop,
// but what happens is said (errors of a scaler were once swallowed).
TEST_F(TrainerTest, Overflow_SkipsOneUpdateAndIsSaid) {
  BigramModel model(2, 8, 16);
  model.addLossScale(1024);
  model.poisonAt = 3 * 4;
  model.poisonEnd = 3 * 6;
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::Finished);
  std::string log = logOf("a");
  EXPECT_TRUE(contains(log,
                       "step 5: gradients beyond fp16 at loss scale 1024, no "
                       "update; now 512"));
  EXPECT_TRUE(contains(log, "step 6: gradients beyond fp16 at loss scale 512"));
  EXPECT_FALSE(contains(log, "step 7: gradients"));
  std::istringstream heartbeats(dir.read("runs/a/heartbeat_rank0.jsonl"));
  std::vector<int> overflows;
  for (std::string line; std::getline(heartbeats, line);) {
    nlohmann::json entry = nlohmann::json::parse(line);
    if (entry["msg"] == "overflow")
      overflows.push_back(entry["step"]);
    if (entry["msg"] == "step") {
      EXPECT_EQ(entry["loss_scale"], entry["step"] < 5 ? 1024 : 256);
    }
  }
  EXPECT_EQ(overflows, (std::vector<int>{5, 6}));
  EXPECT_EQ(metricsOf("a")["skipped_updates"], 2);
  EXPECT_FALSE(fs::exists(dir / "runs/a/.anomaly_type"));
}

TEST_F(TrainerTest, NoScaleBelowOne_HidesNonFiniteGradients) {
  BigramModel model(2, 8, 16);
  model.addLossScale(4);
  model.poisonAt = 3 * 12;
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::NonFinite);
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "nan_loss\n");
  // 4, 2 and 1 are tried in steps 13 to 15.
  EXPECT_EQ(metricsOf("a")["step"], 15 - 1);
}

// Watchdogs read one word from .anomaly_type.
TEST_F(TrainerTest, Anomalies_AreReportedAndTheRunGoesOn) {
  BigramModel zero(2, 8, 16), collapsed(2, 8, 16);
  zero.zeroGradients = true;
  EXPECT_EQ(take(train(zero, named("zero"))), TrainEnd::Finished);
  EXPECT_EQ(dir.read("runs/zero/.anomaly_type"), "zero_grad\n");
  EXPECT_TRUE(contains(logOf("zero"),
                       "anomaly zero_grad at step 1: the gradient norm"));
  EXPECT_TRUE(
      contains(dir.read("runs/zero/heartbeat_rank0.jsonl"), "zero_grad"));

  collapsed.addAttention({0.0f, 0.001f, 0.9f, 0.01f}, {3, 1, 4});
  ASSERT_TRUE(train(collapsed, named("gates")).ok());
  EXPECT_EQ(dir.read("runs/gates/.anomaly_type"), "gate_collapse\n");

  BigramModel fine(2, 8, 16);
  ASSERT_TRUE(train(fine, named("fine")).ok());
  EXPECT_FALSE(fs::exists(dir / "runs/fine/.anomaly_type"));
}

TEST_F(TrainerTest, StepThatHangs_IsReportedWhileItHangs) {
  BigramModel model(2, 8, 16);
  model.slow[3 * 4] = 1.0;
  TrainOptions options = named("a");
  options.stallSeconds = 0.1;
  // The file is there before the step ends, which is when the log says so.
  bool seen = false;
  std::thread reader([&] {
    for (int i = 0; i < 300 && !seen; ++i) {
      seen = fs::exists(dir / "runs/a/.anomaly_type") &&
             logOf("a").find("anomaly") == std::string::npos;
      usleep(10000);
    }
  });
  Result<TrainEnd> end = train(model, options);
  reader.join();
  ASSERT_TRUE(end.ok()) << end.message();
  EXPECT_TRUE(seen);
  EXPECT_EQ(dir.read("runs/a/.anomaly_type"), "heartbeat_stall\n");
  EXPECT_TRUE(contains(logOf("a"),
                       "anomaly heartbeat_stall at step 5: a step took more "
                       "than 0.1 seconds"));
}

// Gates were once uniform for a whole run, and nothing showed it.
TEST_F(TrainerTest, Gates_AreLogged) {
  config.train.logEvery = 10;
  BigramModel model(2, 8, 16), plain(2, 8, 16);
  model.addAttention({0.25f, 0.5f, 0.125f, 1.0f}, {3.5f, 1.5f, 4.0f});
  ASSERT_TRUE(train(model, named("a")).ok());
  std::istringstream lines(dir.read("runs/a/heartbeat_rank0.jsonl"));
  std::string line;
  std::vector<int64_t> logged;
  while (std::getline(lines, line)) {
    nlohmann::json entry = nlohmann::json::parse(line);
    if (!entry.contains("gate_entropy"))
      continue;
    logged.push_back(entry["step"]);
    EXPECT_EQ(entry["gate_compressed"], 0.25);
    EXPECT_EQ(entry["gate_selected"], 0.5);
    EXPECT_EQ(entry["gate_window"], 0.125);
    EXPECT_EQ(entry["gate_entropy_min"], 1.0);
    EXPECT_EQ(entry["sel_k_mean"], 3.5);
    EXPECT_EQ(entry["sel_k_distance"], 1.5);
    EXPECT_EQ(entry["sel_k_distinct"], 4.0);
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{1, 10, 20}));
  // The statistics change no bit of the training.
  ASSERT_TRUE(train(plain, named("b")).ok());
  EXPECT_EQ(losses("a"), losses("b"));
}

// Training data was once replaced by random tokens, in silence.
TEST_F(TrainerTest, MissingData_IsAnError) {
  BigramModel model(2, 8, 16);
  Dataset empty;
  empty.manifest = data.manifest;
  Console console(null, false);
  Ranks alone;
  Trainer trainer(model, empty, config, named("a"), console, alone);
  Result<TrainEnd> end = trainer.run();
  EXPECT_TRUE(failsWith(end, "holds 0 tokens"));

  fs::remove(dir / "data/val_000000.bin");
  EXPECT_FALSE(Dataset::open(dir / "data").ok());
  BigramModel narrow(2, 8, 8);
  EXPECT_TRUE(failsWith(train(narrow, named("b")),
                        "vocabulary of 16 tokens, the model one of 8"));
}

TEST_F(TrainerTest, HaltFiles_StopTheRun) {
  BigramModel model(2, 8, 16);
  fs::create_directories(dir / "runs");
  config.train.steps = 1000000;
  // Written by another process as soon as the run exists.
  pid_t child = fork();
  if (child == 0) {
    while (!fs::exists(dir / "runs/a/training.csv"))
      usleep(1000);
    usleep(20000);
    dir.write("runs/a/.HALT", "");
    _exit(0);
  }
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::Halted);
  EXPECT_FALSE(fs::exists(dir / "runs/a/.HALT"));
  EXPECT_TRUE(findCheckpoint(dir / "runs/a").ok());
}

TEST_F(TrainerTest, Signals_StopAndDump) {
  BigramModel model(2, 8, 16);
  model.slowToHost = 0.3;
  config.train.steps = 1000000;
  config.train.saveEvery = 0;
  pid_t parent = getpid();
  pid_t child = fork();
  if (child == 0) {
    while (!fs::exists(dir / "runs/a/training.csv"))
      usleep(1000);
    kill(parent, SIGUSR1);
    usleep(50000);
    kill(parent, SIGTERM);
    // Again, as launchers do, while the checkpoint is being saved.
    usleep(100000);
    kill(parent, SIGTERM);
    _exit(0);
  }
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::Interrupted);
  EXPECT_TRUE(findCheckpoint(dir / "runs/a").ok());
  bool dumped = false;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(dir / "runs/a")) {
    std::string name = entry.path().filename();
    if (name.rfind("state_dump_", 0) != 0)
      continue;
    dumped = true;
    // Of the weights as they are, not as the host last saw them.
    nlohmann::json dump = nlohmann::json::parse(dir.read("runs/a/" + name));
    EXPECT_GT(dump["parameter_norms"]["w"], 0.0);
  }
  EXPECT_TRUE(dumped);
}

// What came while the program was loaded once killed the run, as did a closed
// terminal and a reader that left.
TEST_F(TrainerTest, SignalsBeforeTheRun_Count) {
  BigramModel model(2, 8, 16);
  SignalScope early;
  raise(SIGPIPE);
  raise(SIGUSR1);
  raise(SIGHUP);
  EXPECT_EQ(take(train(model, named("a"))), TrainEnd::Interrupted);
  EXPECT_TRUE(fs::exists(dir / "runs/a/state_dump_1.json"));
  EXPECT_EQ(dir.read("runs/a/checkpoints/latest"), "step-00000001\n");
}

TEST_F(TrainerTest, WrongPrograms_AreRefusedByName) {
  class NoHyper final : public Model {
  public:
    explicit NoHyper(BigramModel &inner) : inner(inner) {}
    Status run(std::string_view entry) override { return inner.run(entry); }
    bool hasEntry(std::string_view entry) const override {
      return entry != "update";
    }
    const std::vector<TensorView> &tensors() const override {
      return inner.tensors();
    }
    const TensorView *input(std::string_view e,
                            std::string_view n) const override {
      return inner.input(e, n);
    }
    const TensorView *output(std::string_view e,
                             std::string_view n) const override {
      return inner.output(e, n);
    }
    uint64_t hash() const override { return 0; }
    BigramModel &inner;
  };
  BigramModel inner(2, 8, 16);
  NoHyper model(inner);
  EXPECT_EQ(TrainBinding::create(model).message(),
            "the artefact cannot be trained: it has no entry 'update'");
}

} // namespace
