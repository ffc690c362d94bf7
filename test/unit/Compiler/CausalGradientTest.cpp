//===- CausalGradientTest.cpp - causality through the gradient ------------===//
//
// A loss at position t alone has gradients that are 0, bit for bit, for every
// later token, and that do not depend on what the later tokens are.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"
#include "test/unit/Compiler/SmallModel.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

using namespace nsa;
using namespace nsa::test;

namespace {

constexpr int64_t kLength = 70;

/// Gives every token an id of its own, the target of one position per sequence
/// and no other, and runs forward and backward.
void runWithLossAt(SmallModel &model, int64_t first, int64_t second) {
  model.run("init");
  auto *tokens = model.tensor("tokens").as<int32_t>();
  auto *targets = model.tensor("targets").as<int32_t>();
  for (int32_t i = 0; i < 2 * kLength; ++i)
    tokens[i] = i;
  std::fill_n(targets, 2 * kLength, -1);
  targets[first] = 17;
  targets[kLength + second] = 230;
  model.run("accumulate");
}

/// The bytes of every gradient.
std::map<std::string, std::string> gradients(const SmallModel &model) {
  std::map<std::string, std::string> result;
  for (const TensorView &view : model.program->tensors())
    if (view.role == TensorRole::Gradient)
      result[view.name].assign(static_cast<const char *>(view.data),
                               view.bytes);
  return result;
}

const char *const kEmbedding = "grad.embedding.weight";

void checkCausality(const std::vector<std::string> &overrides,
                    const std::string &precision) {
  SmallModel model(overrides, precision, testSeed());
  ASSERT_TRUE(model.program);
  const int64_t positions[][2] = {{0, 69}, {6, 7}, {15, 16}, {33, 40}, {68, 1}};
  for (const auto &position : positions) {
    runWithLossAt(model, position[0], position[1]);
    const TensorView &embedding = model.tensor(kEmbedding);
    auto width = static_cast<int64_t>(embedding.shape[1]);
    for (int64_t i = 0; i < 2 * kLength; ++i) {
      int64_t t = i % kLength, lossAt = position[i / kLength];
      // Which earlier tokens are reached depends on the selection.
      if (t < lossAt)
        continue;
      const float *row = embedding.as<float>() + i * width;
      bool zero = std::all_of(row, row + width, [](float x) { return x == 0; });
      EXPECT_EQ(zero, t > lossAt) << "token " << t << ", loss at " << lossAt;
    }
  }
}

} // namespace

TEST(CausalGradient, LaterTokensOfTheSparseModel_GetNone) {
  checkCausality({}, "fp32");
}

TEST(CausalGradient, LaterTokensOfTheBf16Model_GetNone) {
  checkCausality({}, "bf16");
}

TEST(CausalGradient, LaterTokensWithLinearCompression_GetNone) {
  checkCausality(linearModel(), "fp32");
}

TEST(CausalGradient, EarlierTokens_DoReceiveAGradient) {
  SmallModel model({}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  runWithLossAt(model, 60, 60);
  const TensorView &embedding = model.tensor(kEmbedding);
  const auto *data = embedding.as<float>();
  unsigned reached = 0;
  for (int64_t i = 0; i <= 60; ++i)
    reached += data[i * int64_t(embedding.shape[1])] != 0.0f;
  // The window is 12 tokens, so the sparse branches reach most of them.
  EXPECT_GT(reached, 50u);
}

TEST(CausalGradient, LaterTokens_ChangeNoBitOfAnyGradient) {
  SmallModel model({}, "fp32", testSeed());
  ASSERT_TRUE(model.program);
  for (int64_t t : {5, 16, 31, 50}) {
    runWithLossAt(model, t, t);
    std::map<std::string, std::string> before = gradients(model);
    ASSERT_GT(before.size(), 10u);
    // The same again, with other tokens after t.
    model.run("init");
    auto *tokens = model.tensor("tokens").as<int32_t>();
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = t + 1; i < kLength; ++i)
        tokens[b * kLength + i] = 140 + int32_t(model.random() % 100);
    model.run("accumulate");
    std::map<std::string, std::string> after = gradients(model);
    for (const auto &[name, bytes] : before)
      EXPECT_EQ(bytes, after[name]) << name << ", loss at " << t;
  }
}
