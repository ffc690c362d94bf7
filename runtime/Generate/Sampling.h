//===- Sampling.h - a token from its logits ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_GENERATE_SAMPLING_H
#define NSA_RUNTIME_GENERATE_SAMPLING_H

#include "nsa/Artifact/TrainingContract.h"
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

/// What a program draws by, as `TokenSampler` does: all of it but the numbers
/// that are looked up.
struct DrawParameters {
  explicit DrawParameters(const SamplingOptions &options);

  /// 1 over the temperature; 0 takes the most likely token.
  float inverse;
  /// 0 leaves all tokens.
  int64_t topK;
  /// A fraction.
  uint64_t topP;
};

/// Fractions and probabilities have so many binary digits.
inline constexpr int kFractionBits =
    training::fractionDigits * training::fractionDigitBits;

/// A number from 0 to 1 as a fraction, rounded down.
inline uint64_t toFraction(double number) {
  return uint64_t(number * double(uint64_t(1) << kFractionBits));
}

/// Its digits, as programs read them.
inline void splitFraction(uint64_t fraction, int32_t *digits) {
  constexpr int bits = training::fractionDigitBits;
  for (int i = training::fractionDigits - 1; i > 0; --i, fraction >>= bits)
    digits[i] = int32_t(fraction % (1U << bits));
  digits[0] = int32_t(fraction);
}

/// Draws tokens. Has the memory for it: drawing allocates none.
class TokenSampler {
public:
  /// The tokens `excluded` are never drawn.
  TokenSampler(const SamplingOptions &options, int64_t vocab,
               std::vector<int32_t> excluded = {});

  /// A token, by a number `uniform` in [0, 1), which is looked up among the
  /// probabilities of the tokens that top-k and top-p leave, in their order.
  /// `logits` has one number for each token, one of them finite; equal ones
  /// rank by token. A token whose logit is -infinity is never drawn. Programs
  /// compute the same (nn.draw).
  int32_t choose(const float *logits, double uniform);

private:
  void restrict(const float *logits);

  DrawParameters parameters;
  int64_t vocab;
  std::vector<int32_t> excluded;
  /// Those that `choose` was given, but for the excluded ones.
  std::vector<float> allowed;
  /// Probabilities by token, without a common factor; 0 of those that are not
  /// left.
  std::vector<uint64_t> weights;
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
