//===- SamplingTest.cpp - a token from its logits -------------------------===//

#include "runtime/Generate/Sampling.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

using namespace nsa;

namespace {

/// Probabilities 0.5, 0.125, 0.25 and 0.125.
const float logits[] = {1.38629436f, 0.0f, 0.693147181f, 0.0f};

int32_t choose(const SamplingOptions &options, double uniform) {
  return TokenSampler(options, 4).choose(logits, uniform);
}

TEST(TokenSampler, AllTokens_HaveTheirPartOfTheInterval) {
  SamplingOptions options;
  EXPECT_EQ(choose(options, 0.0), 0);
  EXPECT_EQ(choose(options, 0.49), 0);
  EXPECT_EQ(choose(options, 0.51), 1);
  EXPECT_EQ(choose(options, 0.62), 1);
  EXPECT_EQ(choose(options, 0.63), 2);
  EXPECT_EQ(choose(options, 0.87), 2);
  EXPECT_EQ(choose(options, 0.88), 3);
  EXPECT_EQ(choose(options, 0.99999), 3);
}

TEST(TokenSampler, ExcludedTokens_AreNeverDrawn) {
  SamplingOptions options;
  TokenSampler sampler(options, 4, {0, 2});
  EXPECT_EQ(sampler.choose(logits, 0.49), 1);
  EXPECT_EQ(sampler.choose(logits, 0.51), 3);
  options.temperature = 0;
  EXPECT_EQ(TokenSampler(options, 4, {0}).choose(logits, 0), 2);
}

TEST(FindLogprobs, MostLikely_FollowTheTokenInTheirOrder) {
  std::vector<TokenLogprob> found = findLogprobs(logits, 4, 3, 3);
  const int32_t tokens[] = {3, 0, 2, 1};
  const double probabilities[] = {0.125, 0.5, 0.25, 0.125};
  ASSERT_EQ(found.size(), 4u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].token, tokens[i]);
    EXPECT_NEAR(std::exp(found[i].logprob), probabilities[i], 1e-8);
  }
  EXPECT_EQ(findLogprobs(logits, 4, 0, 0).size(), 1u);
  EXPECT_EQ(findLogprobs(logits, 4, 0, 9).size(), 5u);
}

TEST(TokenSampler, TopPOfManyTokens_IsThatOfAllRanked) {
  // 1,000 equal tokens: half of them, the first ones, have half of it.
  std::vector<float> equal(1000, 1.0f);
  SamplingOptions options;
  options.topP = 0.5;
  TokenSampler sampler(options, 1000);
  EXPECT_EQ(sampler.choose(equal.data(), 0.0), 0);
  EXPECT_EQ(sampler.choose(equal.data(), 0.9999), 499);
  equal[700] = 2.0f;
  EXPECT_EQ(sampler.choose(equal.data(), 0.0), 0);
  EXPECT_EQ(sampler.choose(equal.data(), 0.9999), 700);
}

TEST(TokenSampler, TemperatureZero_TakesTheFirstOfTheMostLikely) {
  const float equal[] = {1.0f, 3.0f, 3.0f, 2.0f};
  SamplingOptions options;
  options.temperature = 0;
  EXPECT_EQ(TokenSampler(options, 4).choose(equal, 0.99), 1);
}

TEST(TokenSampler, MostLikely_IsTheFirstOfTheLargest) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float below[] = {-3.0f, -infinity, -2.0f, -2.0f};
  EXPECT_EQ(findMostLikely(below, 4), 2);
  const float zeros[] = {-1.0f, -0.0f, 0.0f};
  EXPECT_EQ(findMostLikely(zeros, 3), 1);
  const float none[] = {-infinity, -infinity};
  EXPECT_EQ(findMostLikely(none, 2), 0);
}

TEST(TokenSampler, TemperatureTwo_FlattensTheDistribution) {
  SamplingOptions options;
  options.temperature = 2;
  // 2, 1, sqrt(2), 1 of 5.41.
  EXPECT_EQ(choose(options, 0.36), 0);
  EXPECT_EQ(choose(options, 0.38), 1);
}

TEST(TokenSampler, TopK_LeavesTheMostLikelyTokens) {
  SamplingOptions options;
  options.topK = 2;
  EXPECT_EQ(choose(options, 0.66), 0);
  EXPECT_EQ(choose(options, 0.67), 2);
  EXPECT_EQ(choose(options, 0.99), 2);
  options.topK = 100;
  EXPECT_EQ(choose(options, 0.99), 3);
}

TEST(TokenSampler, TopP_LeavesTheFewestTokensThatHaveIt) {
  SamplingOptions options;
  options.topP = 0.5;
  EXPECT_EQ(choose(options, 0.99), 0);
  options.topP = 0.51;
  EXPECT_EQ(choose(options, 0.66), 0);
  EXPECT_EQ(choose(options, 0.99), 2);
  // Of the two that top-k leaves, the first has two thirds.
  options.topK = 2;
  options.topP = 0.66;
  EXPECT_EQ(choose(options, 0.99), 0);
}

TEST(TokenSampler, MinusInfinity_IsNeverDrawn) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float some[] = {-infinity, 0.0f, -infinity, 0.0f};
  TokenSampler sampler({}, 4);
  EXPECT_EQ(sampler.choose(some, 0.0), 1);
  EXPECT_EQ(sampler.choose(some, 0.99999), 3);
}

TEST(SamplingOptions, OutOfRange_NamesOptionAndValue) {
  SamplingOptions options;
  EXPECT_TRUE(options.check());
  options.temperature = -1;
  EXPECT_EQ(options.check().message(), "temperature is -1, expected 0 or more");
  options = {};
  options.topP = 0;
  EXPECT_EQ(options.check().message(),
            "top-p is 0, expected more than 0 and at most 1");
  options = {};
  options.topK = -3;
  EXPECT_EQ(options.check().message(), "top-k is -3, expected 0 or more");
}

} // namespace
