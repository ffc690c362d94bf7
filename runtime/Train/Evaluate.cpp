//===- Evaluate.cpp - validation loss and generated text ------------------===//

#include "runtime/Train/Evaluate.h"
#include "lib/Support/Philox.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Generate/Sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace nsa {

static constexpr uint64_t generateStream = uint64_t(6) << 56;

std::vector<PositionRange> positionRanges(int64_t seqLen) {
  std::vector<PositionRange> ranges;
  for (int64_t first = 0, last = 64; first < seqLen; first = last, last *= 2)
    ranges.push_back({first, std::min(last, seqLen)});
  return ranges;
}

/// Ignores the targets of a window outside the range.
static void keepPositions(int32_t *targets, int64_t length,
                          PositionRange positions) {
  std::fill(targets, targets + std::min(positions.first, length), -1);
  std::fill(targets + std::min(positions.last, length), targets + length, -1);
}

/// Fills the inputs with the micro-batch that begins with window number
/// `first`.
static Status loadBatch(const TrainBinding &binding,
                        const ValidationWindows &data,
                        const std::vector<uint64_t> &windows, uint64_t first,
                        uint64_t count, PositionRange positions) {
  const uint64_t batch = uint64_t(binding.microBatch);
  const uint64_t length = uint64_t(binding.seqLen);
  for (uint64_t row = 0; row < count; ++row) {
    if (Status status =
            data.read(windows[first + row], binding.tokens + row * length,
                      binding.targets + row * length,
                      binding.starts ? binding.starts + row * length : nullptr);
        !status)
      return status;
    keepPositions(binding.targets + row * length, binding.seqLen, positions);
  }
  std::fill(binding.tokens + count * length, binding.tokens + batch * length,
            0);
  std::fill(binding.targets + count * length, binding.targets + batch * length,
            -1);
  if (binding.starts)
    std::fill(binding.starts + count * length, binding.starts + batch * length,
              0);
  return {};
}

/// The mean of a micro-batch and over how many targets.
struct BatchLoss {
  float loss;
  uint32_t targets;
};

// What begins the share of a rank: whether losses follow, or why there are
// none.
static constexpr char readMark = '+', unreadMark = '-';

/// Takes them away; the first rank that could not read is an error.
static Status takeMarks(std::vector<std::string> &shares) {
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    if (shares[rank].empty() || shares[rank][0] != readMark)
      return Error{
          (shares.size() > 1 ? "rank " + std::to_string(rank) + ": " : "") +
          shares[rank].substr(std::min<size_t>(1, shares[rank].size()))};
    shares[rank].erase(0, 1);
  }
  return {};
}

/// Losses of micro-batches rank, rank + size, ... from the bytes of each rank.
static Result<std::vector<BatchLoss>>
interleave(const std::vector<std::string> &shares, size_t batches) {
  std::vector<BatchLoss> losses(batches);
  for (size_t i = 0; i < batches; ++i) {
    const std::string &share = shares[i % shares.size()];
    size_t at = i / shares.size() * sizeof(BatchLoss);
    if (share.size() < at + sizeof(BatchLoss))
      return Error{"rank " + std::to_string(i % shares.size()) + " evaluated " +
                   std::to_string(share.size() / sizeof(BatchLoss)) +
                   " micro-batches, too few of " + std::to_string(batches)};
    std::memcpy(&losses[i], share.data() + at, sizeof(BatchLoss));
  }
  return losses;
}

Result<EvalResult> evaluate(Model &model, const TrainBinding &binding,
                            const ValidationWindows &data,
                            const std::vector<uint64_t> &windows, Ranks &ranks,
                            const std::string &name, bool *unreadable,
                            PositionRange positions) {
  const uint64_t batch = uint64_t(binding.microBatch);
  const uint64_t batches = (windows.size() + batch - 1) / batch;
  if (windows.empty())
    return Error{"no validation windows to evaluate"};
  auto rowsOf = [&](uint64_t number) {
    return std::min<uint64_t>(batch, windows.size() - number * batch);
  };
  std::string own;
  Status loaded;
  for (uint64_t number = uint64_t(ranks.rank()); number < batches && loaded;
       number += uint64_t(ranks.size())) {
    loaded = loadBatch(binding, data, windows, number * batch, rowsOf(number),
                       positions);
    if (!loaded)
      break;
    if (Status status = model.run(training::evalEntry); !status)
      return Error{status.message()};
    const int32_t *targets = binding.targets;
    int64_t count =
        std::count_if(targets, targets + binding.microBatch * binding.seqLen,
                      [](int32_t target) { return target >= 0; });
    // Of no target there is no mean.
    BatchLoss batchLoss = {count ? *binding.evalLoss : 0, uint32_t(count)};
    own.append(reinterpret_cast<const char *>(&batchLoss), sizeof batchLoss);
  }
  Result<std::vector<std::string>> shares = ranks.exchange(
      name, loaded ? readMark + own : unreadMark + loaded.message());
  if (!shares)
    return shares.takeError();
  if (Status status = takeMarks(*shares); !status) {
    if (unreadable)
      *unreadable = true;
    return Error{status.message()};
  }
  Result<std::vector<BatchLoss>> losses = interleave(*shares, batches);
  if (!losses)
    return losses.takeError();
  EvalResult result;
  for (const BatchLoss &own : *losses) {
    result.loss += double(own.loss) * double(own.targets);
    result.tokens += own.targets;
  }
  result.loss /= double(std::max<uint64_t>(result.tokens, 1));
  return result;
}

int32_t chooseToken(const std::vector<float> &logits,
                    const SampleOptions &options, double uniform) {
  std::vector<float> allowed = logits;
  if (options.forbidden >= 0 && options.forbidden < int64_t(allowed.size()))
    allowed[size_t(options.forbidden)] =
        -std::numeric_limits<float>::infinity();
  SamplingOptions sampling;
  sampling.temperature = options.temperature;
  sampling.topK = options.topK;
  return TokenSampler(sampling, int64_t(allowed.size()))
      .choose(allowed.data(), uniform);
}

Result<TextSize> measureText(const ValidationWindows &data,
                             const std::vector<uint64_t> &windows,
                             int64_t seqLen, const Tokenizer &tokenizer) {
  std::vector<int32_t> tokens(static_cast<size_t>(seqLen)), targets = tokens,
                                                            starts = tokens;
  TextSize size;
  for (uint64_t window : windows) {
    if (Status status =
            data.read(window, tokens.data(), targets.data(), starts.data());
        !status)
      return Error{status.message()};
    for (int32_t target : targets) {
      size.targets += target >= 0;
      if (target >= 0 && target < tokenizer.size())
        size.bytes += tokenizer.bytesOf(target).size();
    }
  }
  return size;
}

/// Runs `forward` on the last of `tokens` and copies the logits of the next
/// one. Those of tokens that stand for nothing are -infinity.
static Status nextLogits(Model &model, const TrainBinding &binding,
                         const Tokenizer &tokenizer,
                         const std::vector<int32_t> &tokens,
                         std::vector<float> &logits) {
  const size_t length = size_t(binding.seqLen), vocab = size_t(binding.vocab);
  size_t context = std::min(tokens.size(), length);
  std::fill(binding.forwardTokens,
            binding.forwardTokens + size_t(binding.forwardBatch) * length, 0);
  std::copy(tokens.end() - std::ptrdiff_t(context), tokens.end(),
            binding.forwardTokens);
  // A sample is one document.
  if (binding.forwardStarts)
    std::fill(binding.forwardStarts,
              binding.forwardStarts + size_t(binding.forwardBatch) * length, 0);
  if (Status status = model.run(training::forwardEntry); !status)
    return status;
  for (size_t token = 0; token < logits.size(); ++token) {
    logits[token] = elementAt(binding.logits, (context - 1) * vocab + token);
    if (!std::isfinite(logits[token]))
      return Error{"the logits of a sample are not finite"};
    if (tokenizer.bytesOf(int32_t(token)).empty())
      logits[token] = -std::numeric_limits<float>::infinity();
  }
  return {};
}

Result<std::string> generate(Model &model, const TrainBinding &binding,
                             const Tokenizer &tokenizer,
                             const SampleOptions &options,
                             const std::function<bool()> &keepGoing) {
  if (options.prompt.empty())
    return Error{"a sample needs a prompt of at least one byte"};
  if (binding.vocab < tokenizer.size())
    return Error{"samples have " + std::to_string(tokenizer.size()) +
                 " tokens, the model has " + std::to_string(binding.vocab)};
  Result<std::vector<int32_t>> tokens = tokenizer.encode(options.prompt);
  if (!tokens)
    return tokens.takeError();
  PhiloxStream random(options.seed, generateStream | options.stream);
  std::string text = options.prompt;
  std::vector<float> logits(size_t(tokenizer.size()));
  const size_t wanted = text.size() + size_t(options.count);
  while (text.size() < wanted && keepGoing()) {
    if (Status status = nextLogits(model, binding, tokenizer, *tokens, logits);
        !status)
      return Error{status.message()};
    int32_t token = chooseToken(logits, options, random.uniform());
    tokens->push_back(token);
    text += tokenizer.bytesOf(token);
  }
  return text;
}

} // namespace nsa
