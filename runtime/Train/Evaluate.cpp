//===- Evaluate.cpp - validation loss and generated text ------------------===//

#include "runtime/Train/Evaluate.h"
#include "lib/Support/Philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nsa {

static constexpr uint64_t generateStream = uint64_t(6) << 56;

Result<EvalResult> evaluate(Model &model, const TrainBinding &binding,
                            const ValidationWindows &data,
                            const std::vector<uint64_t> &windows) {
  EvalResult result;
  const uint64_t batch = uint64_t(binding.microBatch);
  const uint64_t length = uint64_t(binding.seqLen);
  for (uint64_t first = 0; first < windows.size(); first += batch) {
    uint64_t count = std::min<uint64_t>(batch, windows.size() - first);
    for (uint64_t row = 0; row < count; ++row)
      if (Status status =
              data.read(windows[first + row], binding.tokens + row * length,
                        binding.targets + row * length);
          !status)
        return Error{status.message()};
    std::fill(binding.tokens + count * length, binding.tokens + batch * length,
              0);
    std::fill(binding.targets + count * length,
              binding.targets + batch * length, -1);
    if (Status status = model.run("eval"); !status)
      return Error{status.message()};
    result.loss += double(*binding.evalLoss) * double(count * length);
    result.tokens += count * length;
  }
  if (result.tokens == 0)
    return Error{"no validation windows to evaluate"};
  result.loss /= double(result.tokens);
  return result;
}

int32_t chooseToken(const std::vector<float> &logits,
                    const SampleOptions &options, double uniform) {
  std::vector<int32_t> order;
  for (int32_t token = 0; token < int32_t(logits.size()); ++token)
    if (token != options.forbidden)
      order.push_back(token);
  auto better = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] > logits[size_t(b)] ||
           (logits[size_t(a)] == logits[size_t(b)] && a < b);
  };
  size_t kept = options.temperature == 0 ? 1
                : options.topK > 0       ? size_t(options.topK)
                                         : order.size();
  kept = std::min(kept, order.size());
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(kept),
                    order.end(), better);
  if (kept == 1)
    return order[0];
  std::vector<double> weights(kept);
  double largest = logits[size_t(order[0])], sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((double(logits[size_t(order[i])]) - largest) /
                          options.temperature);
    sum += weights[i];
  }
  double target = uniform * sum;
  for (size_t i = 0; i < kept; ++i) {
    target -= weights[i];
    if (target < 0)
      return order[i];
  }
  return order[kept - 1];
}

Result<std::string> generate(Model &model, const TrainBinding &binding,
                             const SampleOptions &options,
                             const std::function<bool()> &keepGoing) {
  if (options.prompt.empty())
    return Error{"a sample needs a prompt of at least one byte"};
  if (binding.vocab < 256)
    return Error{"samples are bytes, the model has " +
                 std::to_string(binding.vocab) + " tokens"};
  const size_t length = size_t(binding.seqLen), vocab = size_t(binding.vocab);
  PhiloxStream random(options.seed, generateStream | options.stream);
  std::string text = options.prompt;
  std::vector<float> logits(256);
  for (int64_t made = 0; made < options.count && keepGoing(); ++made) {
    size_t context = std::min(text.size(), length);
    std::fill(binding.forwardTokens,
              binding.forwardTokens + size_t(binding.forwardBatch) * length, 0);
    for (size_t i = 0; i < context; ++i)
      binding.forwardTokens[i] =
          static_cast<unsigned char>(text[text.size() - context + i]);
    if (Status status = model.run("forward"); !status)
      return Error{status.message()};
    for (size_t token = 0; token < logits.size(); ++token) {
      logits[token] = elementAt(binding.logits, (context - 1) * vocab + token);
      if (!std::isfinite(logits[token]))
        return Error{"the logits of a sample are not finite"};
    }
    text += char(chooseToken(logits, options, random.uniform()));
  }
  return text;
}

} // namespace nsa
