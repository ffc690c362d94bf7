//===- Sampling.cpp - a token from its logits -----------------------------===//

#include "runtime/Generate/Sampling.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace nsa;

Status SamplingOptions::check() const {
  if (!(temperature >= 0) || !std::isfinite(temperature))
    return Error{"temperature is " + shortest(temperature) +
                 ", expected 0 or more"};
  if (topK < 0)
    return Error{"top-k is " + std::to_string(topK) + ", expected 0 or more"};
  if (!(topP > 0 && topP <= 1))
    return Error{"top-p is " + shortest(topP) +
                 ", expected more than 0 and at most 1"};
  return {};
}

TokenSampler::TokenSampler(const SamplingOptions &options, int64_t vocab)
    : options(options), vocab(vocab) {
  ranked.reserve(size_t(vocab));
  weights.reserve(size_t(vocab));
}

int32_t TokenSampler::choose(const float *logits, double uniform) {
  ranked.clear();
  for (int64_t token = 0; token < vocab; ++token)
    if (logits[token] > -std::numeric_limits<float>::infinity())
      ranked.emplace_back(logits[token], int32_t(token));
  auto isMoreLikely = [](const auto &a, const auto &b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  };
  size_t kept = options.temperature == 0 ? 1
                : options.topK > 0       ? size_t(options.topK)
                                         : ranked.size();
  kept = std::min(kept, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + std::ptrdiff_t(kept),
                    ranked.end(), isMoreLikely);
  if (kept <= 1)
    return ranked.empty() ? 0 : ranked[0].second;
  weights.clear();
  double largest = ranked[0].first, sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights.push_back(
        std::exp((double(ranked[i].first) - largest) / options.temperature));
    sum += weights[i];
  }
  if (options.topP < 1) {
    double wanted = options.topP * sum;
    sum = 0;
    for (kept = 0; kept < weights.size() && sum < wanted; ++kept)
      sum += weights[kept];
  }
  double target = uniform * sum;
  for (size_t i = 0; i < kept; ++i) {
    target -= weights[i];
    if (target < 0)
      return ranked[i].second;
  }
  return ranked[kept - 1].second;
}
