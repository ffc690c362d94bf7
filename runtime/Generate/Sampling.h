//===- Sampling.h - a token from its logits ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_GENERATE_SAMPLING_H
#define NSA_RUNTIME_GENERATE_SAMPLING_H

#include "nsa/Support/Result.h"

#include <cstdint>
#include <vector>

namespace nsa {

/// From which tokens one is drawn. Restrictions apply in this order.
struct SamplingOptions {
  /// What logits are divided by; 0 takes the most likely token.
  double temperature = 1.0;
  /// The most likely tokens, so many; 0 for all.
  int64_t topK = 0;
  /// Of these, the fewest most likely ones that have this part of the
  /// probability together; 1 for all.
  double topP = 1.0;

  /// Names the option that is out of its range, with the value.
  Status check() const;
};

/// The first of the most likely tokens of `vocab`; the logits are no NaNs.
int32_t findMostLikely(const float *logits, int64_t vocab);

/// Draws tokens. Has the memory for it: drawing allocates none.
class TokenSampler {
public:
  TokenSampler(const SamplingOptions &options, int64_t vocab);

  /// A token, by a number `uniform` in [0, 1), which is looked up among the
  /// probabilities: of all tokens in their order, or, with top-k or top-p, of
  /// those that are left, the most likely ones first. `logits` has one number
  /// for each token, one of them finite; equal ones rank by token. A token
  /// whose logit is -infinity is never drawn.
  int32_t choose(const float *logits, double uniform);

private:
  double weigh(int32_t token, const float *logits, float largest);
  void rank(const float *logits, size_t count);
  int32_t chooseRanked(const float *logits, float largest, double uniform);

  SamplingOptions options;
  int64_t vocab;
  /// Probabilities by token, without a common factor.
  std::vector<double> weights;
  /// Tokens, the most likely ones first as far as they are ranked.
  std::vector<int32_t> ranked;
};

} // namespace nsa

#endif // NSA_RUNTIME_GENERATE_SAMPLING_H
