//===- Sampling.cpp - a token from its logits -----------------------------===//

#include "runtime/Generate/Sampling.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/CPUFeatures.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

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

/// Integers in the order of floats: vectors of them have a maximum, that of
/// floats asks which one is a NaN.
static int32_t orderOf(float logit) {
  int32_t bits = 0;
  logit += 0.0f; // -0 is as likely as 0.
  std::memcpy(&bits, &logit, sizeof bits);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

int32_t nsa::findMostLikely(const float *logits, int64_t vocab) {
  int32_t most = std::numeric_limits<int32_t>::min();
  for (int64_t token = 0; token < vocab; ++token)
    most = std::max(most, orderOf(logits[token]));
  int64_t token = 0;
  while (token < vocab - 1 && orderOf(logits[token]) != most)
    ++token;
  return int32_t(token);
}

/// Puts the `count` most likely tokens first, in their order.
static void rank(std::vector<int32_t> &ranked, const float *logits,
                 size_t count) {
  std::partial_sort(ranked.begin(), ranked.begin() + std::ptrdiff_t(count),
                    ranked.end(), [&](int32_t a, int32_t b) {
                      return logits[a] > logits[b] ||
                             (logits[a] == logits[b] && a < b);
                    });
}

std::vector<TokenLogprob> nsa::findLogprobs(const float *logits, int64_t vocab,
                                            int32_t token, int64_t most) {
  double largest = logits[findMostLikely(logits, vocab)], sum = 0;
  for (int64_t id = 0; id < vocab; ++id)
    sum += std::exp(double(logits[id]) - largest);
  double scale = largest + std::log(sum);
  std::vector<TokenLogprob> found = {{token, double(logits[token]) - scale}};
  std::vector<int32_t> ranked(static_cast<size_t>(most ? vocab : 0));
  std::iota(ranked.begin(), ranked.end(), 0);
  rank(ranked, logits, std::min(ranked.size(), size_t(most)));
  for (size_t i = 0; i < std::min(ranked.size(), size_t(most)); ++i)
    found.push_back({ranked[i], double(logits[ranked[i]]) - scale});
  return found;
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

DrawParameters::DrawParameters(const SamplingOptions &options)
    : inverse(options.temperature > 0
                  ? float(std::clamp(1 / options.temperature,
                                     double(std::numeric_limits<float>::min()),
                                     double(std::numeric_limits<float>::max())))
                  : 0),
      topK(options.topK),
      topP(std::max<uint64_t>(toFraction(options.topP), 1)) {}

/// exp((logit - largest) * inverse), by the operations of nn.draw
/// (passes/Kernels/NN/DrawNumbers.cpp), each of which is rounded.
static uint64_t weigh(float logit, float largest, float inverse) {
  float power = (logit - largest) * inverse;
  bool counts = power > -25.0f;
  power = counts ? power : 0.0f;
  constexpr double log2e = 1.44269504088896341, ln2 = 0.69314718055994531,
                   part = 11357.0 / 16384;
  auto n = int32_t(0.5f - power * float(log2e));
  float r = power + float(n) * float(part);
  r = r + float(n) * float(ln2 - part);
  constexpr float factors[] = {float(1.0 / 720),
                               float(1.0 / 120),
                               float(1.0 / 24),
                               float(1.0 / 6),
                               0.5f,
                               1.0f,
                               1.0f};
  float y = float(1.0 / 5040);
  for (float factor : factors)
    y = y * r + factor;
  // 2 ** (bits - n)
  uint32_t bits = uint32_t(127 + kFractionBits - n) << 23;
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  return counts ? uint64_t(int64_t(y * scale)) : 0;
}

/// A part of a sum, rounded down.
static uint64_t takeFraction(uint64_t sum, uint64_t fraction) {
  return uint64_t((static_cast<unsigned __int128>(sum) * fraction) >>
                  kFractionBits);
}

TokenSampler::TokenSampler(const SamplingOptions &options, int64_t vocab,
                           std::vector<int32_t> excluded)
    : parameters(options), vocab(vocab), excluded(std::move(excluded)),
      weights(size_t(vocab)) {
  ranked.reserve(size_t(vocab));
}

/// Leaves the weights of tokens that top-k, then top-p leaves. Few tokens have
/// nearly all of the probability, so that no more are ranked than top-p turns
/// out to need.
void TokenSampler::restrict(const float *logits) {
  ranked.clear();
  for (int64_t token = 0; token < vocab; ++token)
    if (logits[token] > -std::numeric_limits<float>::infinity())
      ranked.push_back(int32_t(token));
  size_t all = ranked.size(), kept = all, known = 0;
  auto weight = [&](size_t i) -> uint64_t & {
    return weights[size_t(ranked[i])];
  };
  if (parameters.topK > 0) {
    kept = known = std::min(all, size_t(parameters.topK));
    rank(ranked, logits, known);
  }
  if (parameters.topP < toFraction(1)) {
    uint64_t sum = 0;
    for (size_t i = 0; i < kept; ++i)
      sum += weight(i);
    uint64_t wanted = takeFraction(sum, parameters.topP);
    size_t most = kept;
    sum = 0;
    for (kept = 0; kept < most && sum < wanted; ++kept) {
      if (kept == known)
        rank(ranked, logits,
             known = std::min(all, std::max<size_t>(64, 8 * known)));
      sum += weight(kept);
    }
  }
  for (size_t i = kept; i < all; ++i)
    weight(i) = 0;
}

int32_t TokenSampler::choose(const float *logits, double uniform) {
  if (!excluded.empty()) {
    allowed.assign(logits, logits + vocab);
    for (int32_t token : excluded)
      allowed[size_t(token)] = -std::numeric_limits<float>::infinity();
    logits = allowed.data();
  }
  int32_t best = findMostLikely(logits, vocab);
  if (parameters.inverse == 0)
    return best;
  for (int64_t token = 0; token < vocab; ++token)
    weights[size_t(token)] =
        weigh(logits[token], logits[best], parameters.inverse);
  if (parameters.topK > 0 || parameters.topP < toFraction(1))
    restrict(logits);
  uint64_t sum = std::accumulate(weights.begin(), weights.end(), uint64_t(0));
  uint64_t target = takeFraction(sum, toFraction(uniform));
  int32_t token = 0;
  for (sum = weights[0]; sum <= target; sum += weights[size_t(token)])
    ++token;
  return token;
}

Result<SamplingThreads> SamplingThreads::create(int64_t sequences,
                                                int64_t vocab) {
  SamplingThreads created;
  // Waking a thread takes as long as drawing one of so many tokens.
  constexpr int64_t fewest = 1 << 14;
  int threads = int(std::min<int64_t>(sequences, availableProcessors()));
  if (threads > 1 && vocab >= fewest) {
    NSA_ASSIGN_OR_RETURN(created.pool, ThreadPool::create(threads));
  }
  return created;
}

SamplingThreads::~SamplingThreads() {
  if (pool && !pool->hasThreads()) {
    [[maybe_unused]] ThreadPool *lost = pool.release();
  }
}

void SamplingThreads::forEach(int64_t sequences, CallableRef<int64_t> body) {
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t sequence = begin; sequence < end; ++sequence)
      body(sequence);
  };
  if (pool && pool->hasThreads())
    pool->execute([&] { pool->parallelFor(sequences, range); });
  else
    range(0, sequences);
}
