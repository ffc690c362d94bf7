//===- TrainingStepTest.cpp - the training step as a whole ----------------===//
//
// What steps keep and what they skip. test/judge/test_models.py judges the
// gradients.
//
//===----------------------------------------------------------------------===//

#include "dialects/NN/NNAttributes.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/Compiler/SmallModel.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

/// The numbers of a first step.
void setHyper(SmallModel &model) {
  const float values[8] = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 1.0f, 1.0f};
  std::memcpy(model.tensor("hyper").data, values, sizeof values);
}

/// The bytes of what an update changes.
std::vector<std::string> snapshot(const SmallModel &model) {
  std::vector<std::string> bytes;
  for (const TensorView &view : model.program->tensors())
    if (view.role == TensorRole::Parameter || !view.state.empty())
      bytes.emplace_back(static_cast<const char *>(view.data), view.bytes);
  return bytes;
}

} // namespace

// The first gradients are those of the projections that start at 0, and of what
// is behind them.
TEST(TrainingStep, ZeroInitOutput_ProjectionsStartAtZeroAndLearn) {
  SmallModel model({"model.zero_init_output=true"}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  model.run("accumulate");
  for (const char *name :
       {"layers.0.attention.output.weight", "layers.1.mlp.down.weight"}) {
    const TensorView &weight = model.tensor(name);
    const TensorView &gradient = model.tensor(std::string("grad.") + name);
    double top = 0.0;
    for (size_t i = 0; i < weight.elements(); ++i) {
      EXPECT_EQ(weight.as<float>()[i], 0.0f) << name;
      top = std::max<double>(top, std::fabs(gradient.as<float>()[i]));
    }
    EXPECT_GT(top, 1e-8) << name;
  }
}

// Lesson 9: gates never learned, because their projection started at zero.
TEST(TrainingStep, GateGradients_AreNotZeroAtTheFirstStep) {
  SmallModel model({}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  model.run("accumulate");
  unsigned gates = 0;
  for (const TensorView &view : model.program->tensors()) {
    if (view.role != TensorRole::Gradient ||
        view.name.find("gate") == std::string::npos)
      continue;
    ++gates;
    double top = 0.0;
    for (size_t i = 0; i < view.elements(); ++i)
      top = std::max<double>(top, std::fabs(view.as<float>()[i]));
    EXPECT_GT(top, 1e-8) << view.name;
  }
  EXPECT_EQ(gates, 4u);
}

// Lesson 10: non-finite losses and gradients update nothing.
TEST(TrainingStep, NonFiniteGradient_UpdatesNothing) {
  SmallModel model({}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  setHyper(model);
  model.run("accumulate");
  for (const TensorView &view : model.program->tensors())
    if (view.role == TensorRole::Gradient) {
      view.as<float>()[0] = std::nanf("");
      break;
    }
  std::vector<std::string> before = snapshot(model);
  ASSERT_FALSE(before.empty());
  model.run("update");
  EXPECT_EQ(before, snapshot(model));

  // The gradients were cleared: the next step is sound again.
  model.run("accumulate");
  model.run("update");
  EXPECT_NE(before, snapshot(model));
}

// Lesson 22: the mean of the means of two micro-batches, one of which has a
// single target, was taken for the mean of all.
TEST(TrainingStep, UnevenMicroBatches_AddUpToTheMeanOverTargets) {
  uint64_t seed = testSeed();
  SmallModel model({}, "fp32", seed);
  ASSERT_TRUE(model.program);
  setHyper(model);
  const TensorView &targets = model.tensor("targets");
  const std::vector<int32_t> whole(targets.as<int32_t>(),
                                   targets.as<int32_t>() + targets.elements());
  // Each micro-batch has the targets from one number to the next: all but one,
  // one, and none.
  size_t all = whole.size(), cuts[] = {0, all - 1, all, all};
  double sum = 0.0;
  std::vector<double> gradients;
  for (int part = 0; part < 3; ++part) {
    for (size_t i = 0; i < all; ++i)
      targets.as<int32_t>()[i] =
          i >= cuts[part] && i < cuts[part + 1] ? whole[i] : -1;
    model.run("eval");
    double count = double(cuts[part + 1] - cuts[part]);
    sum += *model.tensor("loss").as<float>() * count;
    model.run("accumulate");
  }
  for (const TensorView &view : model.program->tensors())
    if (view.role == TensorRole::Gradient)
      gradients.insert(gradients.end(), view.as<float>(),
                       view.as<float>() + view.elements());
  EXPECT_NEAR(*model.tensor("target_fraction_sum").as<float>(), 1, 1e-6);
  EXPECT_NEAR(*model.tensor("loss_sum").as<float>(), sum / double(all), 1e-5);

  // The same targets in one micro-batch.
  SmallModel one({}, "fp32", seed);
  ASSERT_TRUE(one.program);
  setHyper(one);
  one.run("accumulate");
  size_t at = 0;
  double top = 0.0;
  for (double gradient : gradients)
    top = std::max(top, std::fabs(gradient));
  for (const TensorView &view : one.program->tensors())
    if (view.role == TensorRole::Gradient)
      for (size_t i = 0; i < view.elements(); ++i)
        ASSERT_NEAR(view.as<float>()[i], gradients[at++], 1e-5 * top)
            << view.name;
  model.run("update");
  one.run("update");
  EXPECT_NEAR(*model.tensor("grad_norm").as<float>(),
              *one.tensor("grad_norm").as<float>(),
              1e-5 * *one.tensor("grad_norm").as<float>());
}

TEST(TrainingStep, StepWithoutTargets_UpdatesNothing) {
  SmallModel model({}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  setHyper(model);
  const TensorView &targets = model.tensor("targets");
  std::fill_n(targets.as<int32_t>(), targets.elements(), -1);
  std::vector<std::string> before = snapshot(model);
  model.run("step");
  EXPECT_EQ(before, snapshot(model));
  EXPECT_EQ(*model.tensor("target_fraction_sum_out").as<float>(), 0.0f);
  EXPECT_EQ(*model.tensor("grad_norm").as<float>(), 0.0f);
}

TEST(TrainingStep, Step_EqualsAccumulateThenUpdateBitwise) {
  uint64_t seed = testSeed();
  SmallModel one({}, "fp32", seed), two({}, "fp32", seed);
  ASSERT_TRUE(one.program && two.program);
  for (SmallModel *model : {&one, &two})
    setHyper(*model);
  one.run("step");
  two.run("accumulate");
  two.run("update");
  for (const TensorView &view : one.program->tensors()) {
    if (view.role != TensorRole::Parameter)
      continue;
    const TensorView *other = two.program->findTensor(view.name);
    EXPECT_EQ(std::memcmp(view.data, other->data, view.bytes), 0) << view.name;
  }
}

// One product for all projections of a value, or one for each: the parameters
// start from the same values, and gradients differ by the order of sums.
TEST(TrainingStep, FusedGradients_AreThoseOfSeparateOperations) {
  uint64_t seed = testSeed();
  for (const std::vector<std::string> &overrides :
       {std::vector<std::string>{}, linearModel()}) {
    SmallModel fused(overrides, "fp32", seed);
    SmallModel apart(overrides, "fp32", seed, /*fuse=*/false);
    ASSERT_TRUE(fused.program && apart.program);
    fused.run("accumulate");
    apart.run("accumulate");
    EXPECT_NEAR(*fused.program->findTensor("loss")->as<float>(),
                *apart.program->findTensor("loss")->as<float>(), 1e-5);
    for (const TensorView &view : fused.program->tensors()) {
      const TensorView *other = apart.program->findTensor(view.name);
      ASSERT_NE(other, nullptr) << view.name;
      if (view.role == TensorRole::Parameter) {
        EXPECT_EQ(std::memcmp(view.data, other->data, view.bytes), 0)
            << view.name;
      }
      if (view.role != TensorRole::Gradient)
        continue;
      const float *x = view.as<float>(), *y = other->as<float>();
      double top = 0.0, difference = 0.0;
      for (size_t i = 0; i < view.elements(); ++i) {
        top = std::max<double>(top, std::fabs(y[i]));
        difference = std::max<double>(difference, std::fabs(x[i] - y[i]));
      }
      EXPECT_LE(difference, 1e-4 * top) << view.name;
    }
  }
}
