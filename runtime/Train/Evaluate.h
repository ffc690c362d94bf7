//===- Evaluate.h - validation loss and generated text ----------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_EVALUATE_H
#define NSA_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/Data/Sampler.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Train/Model.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nsa {

/// A mean loss over `tokens` targets.
struct EvalResult {
  double loss = 0;
  uint64_t tokens = 0;
};

/// Mean loss in nats per token over the given windows. The last micro-batch is
/// filled with ignored targets. Ranks share the micro-batches; the result is
/// the same for any number of them. `name` is this evaluation's alone in the
/// run. A window that some rank cannot read is an error on all of them, and
/// `unreadable` is set.
Result<EvalResult> evaluate(Model &model, const TrainBinding &binding,
                            const ValidationWindows &data,
                            const std::vector<uint64_t> &windows, Ranks &ranks,
                            const std::string &name,
                            bool *unreadable = nullptr);

struct SampleOptions {
  /// Bytes to generate; tokens from 256 on are never chosen.
  int64_t count = 0;
  /// Start of the text; at least one byte.
  std::string prompt;
  /// 0 takes the most likely token.
  double temperature = 1.0;
  /// The most likely tokens to choose from; 0 takes all.
  int64_t topK = 0;
  uint64_t seed = 0;
  /// Separates samples of one seed.
  uint64_t stream = 0;
  /// A token that is never chosen, or -1.
  int64_t forbidden = -1;
};

/// Continues a prompt byte by byte: each byte is a pass of `forward` over the
/// last seq_len tokens. Returns prompt and continuation. `keepGoing` is asked
/// before every byte.
Result<std::string> generate(Model &model, const TrainBinding &binding,
                             const SampleOptions &options,
                             const std::function<bool()> &keepGoing);

/// Draws a token from `logits` with a number `uniform` in [0, 1). Equal logits
/// rank by token.
int32_t chooseToken(const std::vector<float> &logits,
                    const SampleOptions &options, double uniform);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_EVALUATE_H
