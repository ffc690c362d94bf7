//===- EmulatedTrainingTest.cpp - training steps of a GPU's kernels -------===//
//
// Whole training steps of a small model, compiled for a GPU and run on the
// emulator, against the same steps of the CPU target.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"
#include "test/unit/Compiler/SmallModel.h"
#include "test/unit/Emulator/EmulatedModule.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

/// How far two lists of numbers are apart.
struct Distance {
  double dot = 0.0, x = 0.0, y = 0.0, gap = 0.0, top = 0.0;

  void add(const TensorView &one, const TensorView &other) {
    for (size_t i = 0; i < one.elements(); ++i) {
      double a = one.as<float>()[i], b = other.as<float>()[i];
      dot += a * b;
      x += a * a;
      y += b * b;
      // A NaN must not pass.
      gap = std::fabs(a - b) <= gap ? gap : std::fabs(a - b);
      top = std::max(top, std::fabs(a));
    }
  }
  double cosine() const { return dot / std::sqrt(x * y); }
};

/// A model on both targets, with equal parameters and tokens, in documents of
/// several lengths where these are isolated. `selectedForm` is that of the GPU.
class Pair {
public:
  Pair(const std::vector<std::string> &overrides, const std::string &precision,
       const std::string &target, const std::string &selectedForm = "auto") {
    std::string text = modelText(overrides);
    CompilerOptions options;
    options.precision = precision;
    auto compileForGPU = [&](const std::string &source,
                             const CompilerOptions &given) {
      CompilerOptions changed = given;
      changed.target = target;
      changed.selectedForm = selectedForm;
      return emulator::compileForEmulator(source, changed);
    };
    RuntimeOptions runtime = CompiledModule::poisoned();
    runtime.seed = testSeed();
    for (const Compile &compile : {Compile(), Compile(compileForGPU)}) {
      auto loaded = CompiledModule::load(text, options, runtime, compile);
      if (!loaded.ok()) {
        ADD_FAILURE() << loaded.message();
        return;
      }
      models.push_back(std::move(*loaded));
    }
    run("init");
    std::mt19937_64 random(testSeed());
    const float hyper[8] = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.0f, 1.0f, 1.0f};
    for (const char *name : {"tokens", "targets"})
      for (size_t i = 0; i < view(0, name).elements(); ++i)
        view(0, name).as<int32_t>()[i] = static_cast<int32_t>(random() % 256);
    for (size_t i : {0, 1}) {
      std::memcpy(view(i, "hyper").data, hyper, sizeof hyper);
      for (const char *name : {"tokens", "targets"})
        std::memcpy(view(i, name).data, view(0, name).data,
                    view(0, name).bytes);
      isolate(i);
    }
  }

  /// Documents at multiples of blocks and elsewhere.
  void isolate(size_t model) {
    const TensorView *start = models[model].getProgram().findTensor("start");
    if (!start)
      return;
    int32_t *next = start->as<int32_t>(), begin = 0;
    for (int32_t length : {32, 1, 9, 28}) {
      next = std::fill_n(next, length, begin);
      begin += length;
    }
  }

  void run(const std::string &entry) {
    for (CompiledModule &model : models)
      model.run(entry);
  }

  const TensorView &view(size_t i, const std::string &name) {
    return *models[i].getProgram().findTensor(name);
  }

  /// Over all tensors of a role.
  Distance compare(TensorRole role) {
    Distance distance;
    for (const TensorView &one : models[0].getProgram().tensors())
      if (one.role == role)
        distance.add(one, view(1, one.name));
    return distance;
  }

  std::vector<CompiledModule> models;
};

void checkSteps(const std::vector<std::string> &overrides,
                const std::string &target,
                const std::string &selectedForm = "auto") {
  Pair pair(overrides, "fp32", target, selectedForm);
  ASSERT_EQ(pair.models.size(), 2u);
  for (int step = 0; step < 2; ++step) {
    pair.run("accumulate");
    EXPECT_NEAR(*pair.view(0, "loss").as<float>(),
                *pair.view(1, "loss").as<float>(), 1e-4);
    Distance gradients = pair.compare(TensorRole::Gradient);
    EXPECT_GT(gradients.top, 0.0);
    EXPECT_LE(gradients.gap, 1e-4 * gradients.top);
    pair.run("update");
    if (testing::Test::HasFailure())
      return;
    // Adam divides what is left of a gradient near 0 by its own size.
    EXPECT_GT(pair.compare(TensorRole::Parameter).cosine(), 0.9999);
    // The second step starts from one and the same model.
    for (const TensorView &one : pair.models[0].getProgram().tensors())
      if (one.role != TensorRole::Input && one.role != TensorRole::Output)
        if (const TensorView *other =
                pair.models[1].getProgram().findTensor(one.name))
          std::memcpy(other->data, one.data, one.bytes);
  }
}

} // namespace

TEST(EmulatedTraining, Steps_AgreeWithTheCPU) { checkSteps({}, "sm_90a"); }

TEST(EmulatedTraining, StepsWithLinearCompression_AgreeWithTheCPU) {
  checkSteps({"nsa.phi=linear", "nsa.gate=softmax", "model.mlp=swiglu",
              "model.d_v=12"},
             "sm_80");
}

TEST(EmulatedTraining, StepsOfKeysOfTheModel_AgreeWithTheCPU) {
  checkSteps({"model.mlp=gelu", "model.qk_norm=true",
              "model.tied_embeddings=true", "model.logit_softcap=2",
              "nsa.shared_kv=true"},
             "sm_90a");
  checkSteps({"model.mlp=geglu", "model.qkv_bias=true",
              "model.norm_plus_one=true", "model.norms=both",
              "model.embedding_scale=3", "model.n_layers=1"},
             "sm_90a");
}

TEST(EmulatedTraining, StepsOfIsolatedDocuments_AgreeWithTheCPU) {
  const std::vector<std::string> forms = {"lists", "masks"};
  for (const std::string &form : sampleOf(forms, 1, testSeed())) {
    SCOPED_TRACE(form);
    checkSteps({"data.isolate_documents=true", "model.n_layers=1",
                "train.batch_size=1", "train.micro_batch=1",
                form == "lists" ? "nsa.phi=linear" : "nsa.phi=mean"},
               "sm_90a", form);
  }
}

TEST(EmulatedTraining, MixedPrecision_PointsTheSameWay) {
  std::vector<std::pair<const char *, const char *>> list = {{"bf16", "sm_90a"},
                                                             {"fp16", "sm_86"},
                                                             {"fp16", "sm_90a"},
                                                             {"bf16", "sm_80"}};
  // The sample has every precision and every kind of tensor cores once.
  list.resize(std::min(list.size(), sweepCount(list.size(), 2)));
  for (auto [precision, target] : list) {
    SCOPED_TRACE(std::string(precision) + " for " + target);
    // Wide enough for tensor cores.
    Pair pair({"model.d_k=16", "model.d_v=16"}, precision, target);
    ASSERT_EQ(pair.models.size(), 2u);
    pair.run("accumulate");
    EXPECT_NEAR(*pair.view(0, "loss").as<float>(),
                *pair.view(1, "loss").as<float>(), 0.05);
    EXPECT_GT(pair.compare(TensorRole::Gradient).cosine(), 0.99);
    pair.run("update");
    EXPECT_GT(pair.compare(TensorRole::Parameter).cosine(), 0.9999);
  }
}
