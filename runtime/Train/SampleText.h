//===- SampleText.h - texts that the model writes in training ---*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SAMPLETEXT_H
#define NSA_RUNTIME_TRAIN_SAMPLETEXT_H

#include "lib/Support/Config.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Generate/Sampling.h"
#include "runtime/Train/Model.h"

#include <cstdint>
#include <functional>
#include <string>

namespace nsa {

struct SampleOptions {
  /// Bytes to generate, at least; the last token may have more.
  int64_t count = 0;
  /// Start of the text; at least one byte.
  std::string prompt;
  /// The same as tokens.
  std::vector<int32_t> tokens;
  SamplingOptions sampling;
  /// The text is that of nsa-generate with this seed.
  uint64_t seed = 0;
  /// A token that ends the text, or -1.
  int64_t end = -1;
};

/// The sample that a configuration asks for after a step.
SampleOptions makeSampleOptions(const TrainConfig &train, int64_t step);

/// Tokens that a model's samples have at most: as many as its sequences, or
/// as prompt and text have bytes. 0 if the configuration asks for none.
int64_t getSampleContext(const TrainConfig &train);

/// Why the program cannot generate this sample, or only a part of it; empty if
/// it can. An error where it cannot even take the prompt.
Result<std::string> checkSample(const TrainBinding &binding,
                                const SampleOptions &options);

struct SampleText {
  /// Prompt and continuation.
  std::string text;
  /// Whether it ends because the program takes no more tokens.
  bool isFull = false;
};

/// Continues a prompt token by token: by the entry `decode`, or, where the
/// program has none, by passes of `forward` over the last seq_len tokens.
/// Tokens that stand for no bytes are never chosen, but for the one that ends
/// the text. `keepGoing` is asked before every token.
Result<SampleText> generate(Model &model, const TrainBinding &binding,
                            const Tokenizer &tokenizer,
                            const SampleOptions &options,
                            const std::function<bool()> &keepGoing);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SAMPLETEXT_H
