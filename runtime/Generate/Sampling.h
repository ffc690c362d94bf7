//===- Sampling.h - a token from its logits ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_GENERATE_SAMPLING_H
#define NSA_RUNTIME_GENERATE_SAMPLING_H

#include "nsa/Runtime/Scheduler.h"
#include "runtime/CPU/ThreadPool.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace nsa {

/// The first of the most likely tokens of `vocab`; the logits are no NaNs.
int32_t findMostLikely(const float *logits, int64_t vocab);

/// The log-probability of `token`, by logits alone, and after it those of the
/// `most` most likely ones, the first of equal ones first.
std::vector<TokenLogprob> findLogprobs(const float *logits, int64_t vocab,
                                       int32_t token, int64_t most);

/// Draws tokens. Has the memory for it: drawing allocates none.
class TokenSampler {
public:
  /// The tokens `excluded` are never drawn.
  TokenSampler(const SamplingOptions &options, int64_t vocab,
               std::vector<int32_t> excluded = {});

  /// A token, by a number `uniform` in [0, 1), which is looked up among the
  /// probabilities: of all tokens in their order, or, with top-k or top-p, of
  /// those that are left, the most likely ones first. `logits` has one number
  /// for each token, one of them finite; equal ones rank by token. A token
  /// whose logit is -infinity is never drawn.
  int32_t choose(const float *logits, double uniform);

private:
  double weigh(int32_t token, const float *logits, float largest);
  int32_t chooseRanked(const float *logits, float largest, double uniform);

  SamplingOptions options;
  int64_t vocab;
  std::vector<int32_t> excluded;
  /// Those that `choose` was given, but for the excluded ones.
  std::vector<float> allowed;
  /// Probabilities by token, without a common factor.
  std::vector<double> weights;
  /// Tokens, the most likely ones first as far as they are ranked.
  std::vector<int32_t> ranked;
};

/// Threads on which tokens of several sequences are drawn, where that is worth
/// it.
class SamplingThreads {
public:
  static Result<SamplingThreads> create(int64_t sequences, int64_t vocab);
  SamplingThreads(SamplingThreads &&) = default;
  SamplingThreads &operator=(SamplingThreads &&) = default;
  ~SamplingThreads();

  /// Calls `body` for each of `sequences`.
  void forEach(int64_t sequences, CallableRef<int64_t> body);

private:
  SamplingThreads() = default;

  std::unique_ptr<ThreadPool> pool;
};

} // namespace nsa

#endif // NSA_RUNTIME_GENERATE_SAMPLING_H
