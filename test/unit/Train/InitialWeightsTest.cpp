//===- InitialWeightsTest.cpp - runs that begin with weights --------------===//

#include "runtime/Train/InitialWeights.h"
#include "lib/Support/Safetensors.h"
#include "test/unit/Expect.h"
#include "test/unit/Train/TrainerFixture.h"

#include <nlohmann/json.hpp>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

using InitialWeightsTest = TrainerFixture;

// Weights only: the length is another, the step is 0, the moments are new.
TEST_F(InitialWeightsTest, InitFrom_OtherLength_BeginsWithTheWeights) {
  BigramModel first(2, 8, 16), second(2, 4, 16), third(2, 4, 16);
  ASSERT_TRUE(train(first, named("a")).ok());
  config.train.seqLen = 4;
  // The first step changes nothing, so that its validation is that of the
  // weights.
  config.train.steps = 1;
  config.train.warmupSteps = 0;
  config.train.lr = config.train.lrMin = 0;
  config.train.weightDecay = 0;
  std::string file = dir / "runs/a/checkpoints/step-00000020/model.safetensors";
  for (const std::string &from : {dir / "runs/a", file}) {
    TrainOptions options = named(from == file ? "c" : "b");
    options.initFrom = from;
    BigramModel &model = from == file ? third : second;
    ASSERT_TRUE(succeeds(train(model, options)));
    EXPECT_EQ(model.weights(), first.weights());
    EXPECT_EQ(model.find("m.w")->elements(), 256u);
    nlohmann::json state = nlohmann::json::parse(dir.read(
        "runs/" + options.runName + "/checkpoints/step-00000001/state.json"));
    EXPECT_EQ(state["init_from"]["path"], file);
    EXPECT_EQ(state["step"], 1);
    nlohmann::json env = nlohmann::json::parse(
        dir.read("runs/" + options.runName + "/env.json"));
    EXPECT_EQ(env["init_from"], file);
    EXPECT_EQ(env["init_hash"], state["init_from"]["xxh3"]);
    EXPECT_TRUE(contains(dir.read("runs/" + options.runName + "/train.log"),
                         "initial weights from " + file + " "));
  }
  EXPECT_EQ(dir.read("runs/b/val.csv"), dir.read("runs/c/val.csv"));
}

TEST_F(InitialWeightsTest, InitFrom_OtherParameters_NamesThem) {
  std::vector<float> values(256, 0.25f);
  auto write = [&](const std::string &name,
                   const std::vector<SafeTensor> &tensors) {
    EXPECT_TRUE(writeSafetensors(dir / name, tensors, {}));
    return dir / name;
  };
  SafeTensor w = {"w", "F32", {16, 16}, values.data(), 1024};
  SafeTensor extra = {"bias", "F32", {4}, values.data(), 16};
  SafeTensor wide = {"w", "F32", {8, 32}, values.data(), 1024};
  SafeTensor half = {"w", "BF16", {16, 16}, values.data(), 512};
  struct Case {
    std::string file;
    const char *strict, *partial;
  };
  for (const Case &wrong :
       {Case{write("extra", {w, extra}),
             "the artefact has no 'bias' (--init-partial takes what both have, "
             "and leaves the rest)",
             nullptr},
        Case{write("none", {extra}),
             "it lacks 'w'; the artefact has no 'bias' (--init-partial takes "
             "what both have, and leaves the rest)",
             "it has none of the 1 parameters of the artefact"},
        Case{write("wide", {wide}),
             "'w' is F32[8x32], the artefact's is F32[16x16]",
             "'w' is F32[8x32], the artefact's is F32[16x16]"},
        Case{write("half", {half}),
             "'w' is BF16[16x16], the artefact's is F32[16x16]",
             "'w' is BF16[16x16], the artefact's is F32[16x16]"}})
    for (bool partial : {false, true}) {
      BigramModel model(2, 8, 16);
      Result<InitialWeights> weights =
          loadInitialWeights(wrong.file, model, config, partial);
      const char *expected = partial ? wrong.partial : wrong.strict;
      ASSERT_EQ(weights.ok(), expected == nullptr) << wrong.file;
      if (expected)
        EXPECT_EQ(weights.message(), "cannot begin with the weights of '" +
                                         wrong.file + "': " + expected);
      else
        EXPECT_EQ(weights->notes.at(1), "'bias' of the initial weights is not "
                                        "used: the artefact has none");
    }
}

TEST_F(InitialWeightsTest, InitFrom_DamagedOrNotFinite_IsRefused) {
  std::vector<float> values(256, 0.25f);
  values[7] = std::numeric_limits<float>::infinity();
  BigramModel model(2, 8, 16), first(2, 8, 16);
  ASSERT_TRUE(writeSafetensors(
      dir / "w", {{"w", "F32", {16, 16}, values.data(), 1024}}, {}));
  Result<InitialWeights> weights =
      loadInitialWeights(dir / "w", model, config, false);
  EXPECT_TRUE(failsWith(weights, "not finite: 'w'[7] is inf"));
  ASSERT_TRUE(train(first, named("a")).ok());
  std::string name = "runs/a/checkpoints/step-00000020/model.safetensors";
  std::string good = dir.read(name);
  good.back() = char(good.back() ^ 1);
  dir.write(name, good);
  weights = loadInitialWeights(dir / "runs/a/checkpoints/step-00000020", model,
                               config, false);
  EXPECT_TRUE(failsWith(weights, "is damaged: its hash is"));
  EXPECT_FALSE(loadInitialWeights(dir / "none", model, config, false).ok());
  // Nothing is left of a run that could not begin.
  TrainOptions options = named("b");
  options.initFrom = dir / "w";
  EXPECT_FALSE(train(model, options).ok());
  EXPECT_FALSE(fs::exists(dir / "runs/b"));
}

// Shapes do not tell of these.
TEST_F(InitialWeightsTest, InitFrom_OtherKeysOfTheModel_AreSaid) {
  BigramModel first(2, 8, 16), second(2, 8, 16);
  ASSERT_TRUE(train(first, named("a")).ok());
  config.model.ropeBase = 500000;
  TrainOptions options = named("b");
  options.initFrom = dir / "runs/a";
  ASSERT_TRUE(train(second, options).ok());
  EXPECT_TRUE(contains(logOf("b"),
                       "warning: the initial weights were trained with "
                       "model.rope_base 10000.0, it is now 500000.0"));
}

} // namespace
