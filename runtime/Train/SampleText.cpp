//===- SampleText.cpp - texts that the model writes in training -----------===//

#include "runtime/Train/SampleText.h"
#include "lib/Support/Philox.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cmath>

namespace nsa {

//===----------------------------------------------------------------------===//
// What is asked for
//===----------------------------------------------------------------------===//

static std::string getPrompt(const TrainConfig &train) {
  return train.samplePrompt.empty() ? "\n" : train.samplePrompt;
}

SampleOptions makeSampleOptions(const TrainConfig &train, int64_t step) {
  SampleOptions sample;
  sample.count = train.sampleBytes;
  sample.prompt = getPrompt(train);
  sample.sampling.temperature = train.sampleTemperature;
  sample.sampling.topK = train.sampleTopK;
  sample.seed = uint64_t(train.seed) + uint64_t(step);
  return sample;
}

int64_t getSampleContext(const TrainConfig &train) {
  if (train.sampleBytes == 0)
    return 0;
  return std::max(train.seqLen,
                  int64_t(getPrompt(train).size()) + train.sampleBytes);
}

Result<std::string> checkSample(const TrainBinding &binding,
                                const SampleOptions &options) {
  std::string advice =
      ": nsa-compile --sample-context=" +
      std::to_string(int64_t(options.prompt.size()) + options.count) +
      " makes an artefact ";
  if (!binding.samples())
    return Error{"train.sample_bytes is " + std::to_string(options.count) +
                 ", the artefact has no entry that generates" + advice +
                 "that does"};
  if (!binding.decodes())
    return "each token of a sample takes the time of a whole sequence" +
           advice + "that decodes it";
  int64_t tokens = int64_t(options.tokens.size()), most = binding.sampleContext;
  std::string limit = std::to_string(most) + " tokens" + advice;
  if (tokens > most)
    return Error{"train.sample_prompt has " + std::to_string(tokens) +
                 " tokens, the artefact's samples have at most " + limit +
                 "that takes it"};
  // No token has less than a byte.
  if (tokens + options.count > most)
    return "samples end after " + limit + "whose samples are complete";
  return std::string();
}

//===----------------------------------------------------------------------===//
// Logits
//===----------------------------------------------------------------------===//

namespace {
/// What the model says of the token after those of a text that grows.
class NextLogits {
public:
  NextLogits(Model &model, const TrainBinding &binding)
      : model(model), binding(binding) {}

  /// Fills `logits`, of which all must be finite.
  Status read(const std::vector<int32_t> &tokens, std::vector<float> &logits);

private:
  Status decode(const std::vector<int32_t> &tokens);
  Status runWhole(const std::vector<int32_t> &tokens);

  Model &model;
  const TrainBinding &binding;
  /// Tokens that the caches have.
  size_t known = 0;
  /// The row of the logits.
  size_t row = 0;
};
} // namespace

/// The tokens that are new, one at a time.
Status NextLogits::decode(const std::vector<int32_t> &tokens) {
  if (known == 0 && model.hasEntry(training::prepareEntry))
    NSA_RETURN_IF_ERROR(model.run(training::prepareEntry));
  for (; known < tokens.size(); ++known) {
    *binding.sampleToken = tokens[known];
    *binding.samplePosition = int32_t(known);
    NSA_RETURN_IF_ERROR(model.run(training::decodeEntry));
  }
  return {};
}

/// The last tokens as a sequence.
Status NextLogits::runWhole(const std::vector<int32_t> &tokens) {
  const size_t length = size_t(binding.seqLen);
  const size_t all = size_t(binding.forwardBatch) * length;
  size_t context = std::min(tokens.size(), length);
  std::fill_n(binding.forwardTokens, all, 0);
  std::copy(tokens.end() - std::ptrdiff_t(context), tokens.end(),
            binding.forwardTokens);
  // A sample is one document.
  if (binding.forwardStarts)
    std::fill_n(binding.forwardStarts, all, 0);
  row = context - 1;
  return model.run(training::forwardEntry);
}

Status NextLogits::read(const std::vector<int32_t> &tokens,
                        std::vector<float> &logits) {
  NSA_RETURN_IF_ERROR(binding.decodes() ? decode(tokens) : runWhole(tokens));
  for (size_t token = 0; token < logits.size(); ++token) {
    logits[token] =
        elementAt(binding.logits, row * size_t(binding.vocab) + token);
    if (!std::isfinite(logits[token]))
      return Error{"the logits of a sample are not finite"};
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

Result<SampleText> generate(Model &model, const TrainBinding &binding,
                            const Tokenizer &tokenizer,
                            const SampleOptions &options,
                            const std::function<bool()> &keepGoing) {
  if (options.tokens.empty())
    return Error{"a sample needs a prompt of at least one byte"};
  if (binding.vocab < tokenizer.size())
    return Error{"samples have " + std::to_string(tokenizer.size()) +
                 " tokens, the model has " + std::to_string(binding.vocab)};
  std::vector<int32_t> tokens = options.tokens;
  NextLogits next(model, binding);
  TokenSampler sampler(options.sampling, tokenizer.size(),
                       tokenizer.silentTokens(tokenizer.size(), options.end));
  PhiloxStream random(options.seed);
  std::vector<float> logits(size_t(tokenizer.size()));
  SampleText sample{options.prompt};
  const size_t wanted = sample.text.size() + size_t(options.count);
  while (sample.text.size() < wanted && keepGoing()) {
    sample.isFull =
        binding.decodes() && int64_t(tokens.size()) > binding.sampleContext;
    if (sample.isFull)
      break;
    NSA_RETURN_IF_ERROR(next.read(tokens, logits));
    int32_t token = sampler.choose(logits.data(), random.uniform());
    if (token == options.end)
      break;
    tokens.push_back(token);
    sample.text += tokenizer.bytesOf(token);
  }
  return sample;
}

} // namespace nsa
