//===- Synth.h - sources of known entropy -----------------------*- C++ -*-===//
//
// Data whose best possible loss is known exactly, for comparison with that of a
// trained model.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_SYNTH_H
#define NSA_RUNTIME_DATA_SYNTH_H

#include "runtime/Data/Manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// A Markov chain of order k over V tokens: row c of the table is the
/// distribution after context c = ((x1 * V) + x2) * V + ... + xk, the softmax
/// of sharpness * z with independent normal z. Every probability is positive,
/// so the chain is ergodic.
class MarkovChain {
public:
  /// V^(order + 1) above 2^24 is an error, as is a sharpness outside of 0..20.
  static Result<MarkovChain> create(int64_t order, int64_t vocab,
                                    double sharpness, uint64_t seed);

  /// The entropy in nats of a token after 1, 2, ..., k known ones. The last is
  /// the entropy rate: sum_c pi(c) H(row c), with pi the stationary
  /// distribution of contexts to 1e-12.
  std::vector<double> entropies() const;
  double entropyRate() const { return entropies().back(); }

  /// Draws `count` tokens of stream `stream`, after a burn-in.
  std::vector<uint16_t> sample(uint64_t count, uint64_t stream) const;

  /// Mean -log P of `tokens` after the first `order`, nats.
  double loss(const std::vector<uint16_t> &tokens) const;

  /// P(token | context), context as above.
  double probability(uint64_t context, uint64_t token) const {
    return table[context * vocab + token];
  }

private:
  uint64_t order = 0, vocab = 0, contexts = 0, seed = 0;
  std::vector<double> table;
  std::vector<double> cumulative;
};

/// Associative recall: each document shows `pairs` (key, value) pairs, then
/// `distance` filler tokens, then `queries` of the keys, each followed by its
/// value, then end-of-text. Keys differ, values are uniform, queries are drawn
/// without replacement.
struct RecallTask {
  int64_t vocab = 64;
  int64_t pairs = 8;
  int64_t distance = 64;
  int64_t queries = 8;

  /// Token 0 is end-of-text, then keys, then values, then the filler.
  int64_t alphabet() const { return (vocab - 2) / 2; }
  int64_t documentTokens() const {
    return 2 * pairs + distance + 2 * queries + 1;
  }

  /// Errors name both numbers.
  Status validate() const;

  /// Nats per token of the best predictor that sees the whole document, and of
  /// the best one that cannot recall values.
  double lossWithRecall() const;
  double lossWithoutRecall() const;

  /// With recall, of the tokens after the first one of the document.
  double lossBehindFirst() const;

  /// Whether the token at a position of a document is a value that was shown
  /// before.
  bool isAnswer(int64_t position) const {
    int64_t past = position - 2 * pairs - distance;
    return past >= 0 && past < 2 * queries && past % 2 == 1;
  }

  /// Document `index` of the seed.
  std::vector<uint16_t> document(uint64_t seed, uint64_t index) const;
};

struct SynthOptions {
  /// markov or recall.
  std::string kind = "markov";
  std::string output;
  int64_t order = 1;
  int64_t vocab = 64;
  double sharpness = 2.0;
  int64_t pairs = 8, distance = 64, queries = 8;
  /// Tokens of both splits together.
  uint64_t tokens = 1000000;
  double valFraction = 0.05;
  uint64_t seed = 1;
  uint64_t shardTokens = 100000000;
  bool overwrite = false;
  std::string tool;
};

/// Writes shards and a manifest whose facts carry the known losses: `entropy`
/// (markov: the rate; recall: with recall), `entropy_after_N` of a token after
/// fewer known ones than the order, `entropy_without_recall`, both of marked
/// tokens alone, `entropy_isolated` of documents that do not see each other,
/// and `source_val_loss`, the loss of the true source on the validation split.
Result<Manifest> synthesize(const SynthOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_SYNTH_H
