//===- EmulatedDecodeTest.cpp - tokens one at a time on a GPU's kernels ---===//
//
// Decoding and prefill of small models, compiled for a GPU and run on the
// emulator, against those of the CPU target, which are compared with whole
// sequences elsewhere. Two sequences of different lengths pass every position
// around l = 8, d = 4, l' = 16, w = 12, n l' = 48 and their sums.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"
#include "test/unit/Compiler/SmallModel.h"
#include "test/unit/Emulator/EmulatedModule.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

/// A model that generates on both targets, with equal parameters.
class DecodePair {
public:
  DecodePair(const std::vector<std::string> &overrides,
             const std::string &precision, const std::string &target,
             int64_t context, int64_t sampleContext = 0) {
    CompilerOptions options;
    options.precision = precision;
    options.context = context;
    options.sampleContext = sampleContext;
    options.allowSlowPaths = {"all"};
    auto compileForGPU = [&](const std::string &source,
                             const CompilerOptions &given) {
      CompilerOptions changed = given;
      changed.target = target;
      return emulator::compileForEmulator(source, changed);
    };
    RuntimeOptions runtime = CompiledModule::poisoned();
    runtime.seed = 7;
    for (const Compile &compile : {Compile(), Compile(compileForGPU)}) {
      auto loaded =
          CompiledModule::load(modelText(overrides), options, runtime, compile);
      if (!loaded.ok()) {
        ADD_FAILURE() << loaded.message();
        return;
      }
      models.push_back(std::move(*loaded));
    }
    run("init");
    prepare();
  }

  void prepare() {
    if (models[0].getProgram().findEntry("prepare"))
      run("prepare");
  }

  void run(const std::string &entry) {
    for (CompiledModule &model : models)
      model.run(entry);
  }

  /// Sets an i32 input of both.
  void set(const std::string &name, const std::vector<int32_t> &values) {
    for (CompiledModule &model : models) {
      const TensorView &view = *model.getProgram().findTensor(name);
      ASSERT_EQ(view.elements(), values.size()) << name;
      std::memcpy(view.data, values.data(), view.bytes);
    }
  }

  /// Adds what the logits of a sequence are apart.
  void compare(size_t sequence) {
    const TensorView &one = *models[0].getProgram().findTensor("next_logits");
    const TensorView &other = *models[1].getProgram().findTensor("next_logits");
    size_t count = one.elements() / one.shape[0];
    for (size_t i = sequence * count; i < (sequence + 1) * count; ++i) {
      double x = one.as<float>()[i], y = other.as<float>()[i];
      dot += x * y;
      xx += x * x;
      yy += y * y;
      // A NaN must not pass.
      gap = std::fabs(x - y) <= gap ? gap : std::fabs(x - y);
      top = std::max(top, std::fabs(x));
    }
  }
  double cosine() const { return dot / std::sqrt(xx * yy); }

  std::vector<CompiledModule> models;
  double gap = 0, top = 0, dot = 0, xx = 0, yy = 0;
};

/// Appends a token to both sequences, of which the second begins later.
void step(DecodePair &pair, int32_t position, int32_t late) {
  int32_t second = position >= late ? position - late : -1;
  pair.set("token", {position * 37 % 256, position * 11 % 256});
  pair.set("positions", {position, second});
  pair.run("decode");
  pair.compare(0);
  if (second >= 0)
    pair.compare(1);
}

} // namespace

/// Compares every position up to `positions`.
static void checkPositions(const std::vector<std::string> &overrides,
                           const char *target, int32_t positions) {
  SCOPED_TRACE(target + (overrides.empty() ? "" : " " + overrides.back()));
  DecodePair pair(overrides, "fp32", target, /*context=*/80);
  ASSERT_EQ(pair.models.size(), 2u);
  for (int32_t position = 0; position < positions; ++position) {
    step(pair, position, /*late=*/9);
    ASSERT_LE(pair.gap, 1e-4 * pair.top) << "position " << position;
  }
}

TEST(EmulatedDecode, EveryPosition_AgreesWithTheCPU) {
  checkPositions({"model.n_layers=1"}, "sm_90a", 72);
}

TEST(EmulatedDecode, OtherModels_AgreeWithTheCPU) {
  std::vector<std::string> linear = linearModel(), mlp = mlpModel();
  for (auto *list : {&linear, &mlp})
    list->push_back("model.n_layers=1");
  linear.push_back("nsa.phi_pos=true");
  std::vector<std::pair<std::vector<std::string>, const char *>> list = {
      {linear, "sm_80"},
      {mlp, "sm_90a"},
      {{"model.n_kv_groups=4", "model.layers=dense, window:20"}, "sm_90a"},
      {{"model.qkv_bias=true", "model.norm_plus_one=true", "model.norms=both",
        "model.mlp=geglu", "model.layers=dense/nope, window:20"},
       "sm_90a"},
      {{"nsa.shared_kv=true", "model.n_layers=1"}, "sm_80"}};
  for (const auto &[overrides, target] : sampleOf(list, 2, testSeed()))
    checkPositions(overrides, target, sweepCount(72, 26));
}

TEST(EmulatedDecode, PrefillOfTwoLengths_GoesOnAsOnTheCPU) {
  DecodePair pair({}, "fp32", "sm_90a", /*context=*/96);
  ASSERT_EQ(pair.models.size(), 2u);
  std::vector<int32_t> tokens(140);
  for (int32_t i = 0; i < 140; ++i)
    tokens[size_t(i)] = i * 53 % 256;
  for (int32_t longest : {70, 33}) {
    pair.set("tokens", tokens);
    pair.set("positions", {longest - 1, longest - 18});
    pair.run("prefill");
    pair.compare(0);
    pair.compare(1);
    for (int32_t i = 0; i < 4; ++i)
      step(pair, longest + i, /*late=*/17);
    ASSERT_GT(pair.top, 0);
    ASSERT_LE(pair.gap, 1e-4 * pair.top) << longest << " tokens";
  }
}

TEST(EmulatedDecode, MixedPrecision_PointsTheSameWay) {
  // Heads wide enough for tensor cores, and as many in a group as an M-tile has
  // rows.
  DecodePair pair({"model.d_k=16", "model.d_v=16", "model.n_heads=16",
                   "model.n_kv_groups=1", "model.n_layers=1"},
                  "bf16", "sm_90a", /*context=*/80);
  ASSERT_EQ(pair.models.size(), 2u);
  for (int32_t position = 0; position < 40; ++position)
    step(pair, position, /*late=*/9);
  EXPECT_GT(pair.cosine(), 0.995);
}

// The entry of samples, of parameters that the same program trains: what is
// prepared of them follows.
TEST(EmulatedDecode, SamplesBesideTraining_AgreeWithTheCPU) {
  DecodePair pair({"model.n_layers=1"}, "fp32", "sm_90a", /*context=*/0,
                  /*sampleContext=*/80);
  ASSERT_EQ(pair.models.size(), 2u);
  EXPECT_FALSE(pair.models[0].getProgram().findEntry("forward"));
  std::vector<int32_t> tokens(140), targets(140);
  for (int32_t i = 0; i < 140; ++i) {
    tokens[size_t(i)] = i * 53 % 256;
    targets[size_t(i)] = (i * 53 + 53) % 256;
  }
  for (int32_t position = 0; position < 60; ++position) {
    if (position % 30 == 0) {
      pair.set("tokens", tokens);
      pair.set("targets", targets);
      for (CompiledModule &model : pair.models) {
        const float hyper[8] = {1e-2f, 0.9f, 0.95f, 1e-8f,
                                0.1f,  1.0f, 1.0f,  float(position / 30 + 1)};
        std::memcpy(model.getProgram().findTensor("hyper")->data, hyper,
                    sizeof hyper);
      }
      pair.run("accumulate");
      pair.run("update");
      pair.prepare();
    }
    // The second sample begins anew.
    pair.set("token", {position * 37 % 256});
    pair.set("positions", {position % 30});
    pair.run("decode");
    pair.compare(0);
    ASSERT_LE(pair.gap, 1e-3 * pair.top) << "position " << position;
  }
}
