//===- Ngram.h - the baseline a language model must beat --------*- C++ -*-===//
//
// Interpolated Witten-Bell n-gram models over tokens, orders 1 and 2 (one and
// two preceding tokens). With c the counts of the training split, C(h) the
// occurrences of context h and T(h) the number of distinct tokens after it:
//
//   P0(x)   = (c(x) + T / V) / (N + T)
//   P1(x|b) = (c(b,x) + T(b) P0(x)) / (C(b) + T(b))
//   P2(x|ab) = (c(a,b,x) + T(a,b) P1(x|b)) / (C(a,b) + T(a,b))
//
// An unseen context falls back to the shorter one, so every token has a
// probability and nothing is tuned on the validation split.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_NGRAM_H
#define NSA_RUNTIME_DATA_NGRAM_H

#include "runtime/Data/TokenStream.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace nsa {

/// Mean losses in nats per token over `tokens` predictions.
struct NgramLoss {
  double order1 = 0.0;
  double order2 = 0.0;
  uint64_t tokens = 0;
};

class Ngram {
public:
  /// The largest vocabulary: counts are dense.
  static constexpr int64_t maxVocab = 256;

  /// Counts the first `maxTokens` tokens of `stream` (all if 0). An empty
  /// stream and a vocabulary above maxVocab are errors.
  static Result<Ngram> fit(const TokenStream &stream, uint64_t maxTokens = 0);

  /// Tokens that were counted.
  uint64_t fitted() const { return total; }

  /// The probability of `x` after `b`, and after `a` then `b`.
  double order1(int32_t b, int32_t x) const;
  double order2(int32_t a, int32_t b, int32_t x) const;

  /// Mean loss of predicting tokens [first + 1, first + count] of `stream` for
  /// every (first, count) in `ranges`, each from the tokens before it. The
  /// first token of the stream has no second one before it; there order 2 is
  /// order 1. No prediction at all is an error.
  Result<NgramLoss>
  evaluate(const TokenStream &stream,
           const std::vector<std::pair<uint64_t, uint64_t>> &ranges) const;

  /// The same over all of `stream`.
  Result<NgramLoss> evaluate(const TokenStream &stream) const;

private:
  explicit Ngram(int64_t vocab);

  double order0(int32_t x) const;
  void countTypes();

  uint64_t vocab;
  uint64_t total = 0;
  std::vector<uint64_t> unigrams;
  std::vector<uint64_t> bigrams;
  std::vector<uint32_t> trigrams;
  // Occurrences and distinct followers of each context.
  uint64_t types0 = 0;
  std::vector<uint64_t> context1;
  std::vector<uint64_t> context2;
  std::vector<uint32_t> types1;
  std::vector<uint32_t> types2;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_NGRAM_H
