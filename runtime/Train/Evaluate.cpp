//===- Evaluate.cpp - validation loss -------------------------------------===//

#include "runtime/Train/Evaluate.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nsa {

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
                        uint64_t count, PositionRange positions, int rank) {
  const uint64_t length = uint64_t(binding.seqLen);
  std::vector<int32_t> tokens(uint64_t(binding.microBatch) * length),
      starts = tokens, targets(tokens.size(), -1);
  for (uint64_t row = 0; row < count; ++row) {
    NSA_RETURN_IF_ERROR(
        data.read(windows[first + row], tokens.data() + row * length,
                  targets.data() + row * length,
                  binding.starts ? starts.data() + row * length : nullptr));
    keepPositions(targets.data() + row * length, binding.seqLen, positions);
  }
  binding.load(tokens.data(), targets.data(), starts.data(), rank);
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

/// Losses of micro-batches group, group + groups, ... from the bytes of each
/// rank; those of a group have parts of the same ones.
static Result<std::vector<BatchLoss>>
interleave(const std::vector<std::string> &shares, size_t batches,
           size_t ranksOfGroup) {
  std::vector<BatchLoss> losses(batches * ranksOfGroup);
  for (size_t i = 0; i < losses.size(); ++i) {
    size_t rank = i % shares.size();
    size_t at = i / shares.size() * sizeof(BatchLoss);
    if (shares[rank].size() < at + sizeof(BatchLoss))
      return Error{"rank " + std::to_string(rank) + " evaluated " +
                   std::to_string(shares[rank].size() / sizeof(BatchLoss)) +
                   " micro-batches, too few of " + std::to_string(batches)};
    std::memcpy(&losses[i], shares[rank].data() + at, sizeof(BatchLoss));
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
  const uint64_t ranksOfGroup = uint64_t(binding.sequenceRanks);
  const uint64_t groups = uint64_t(ranks.size()) / ranksOfGroup;
  NSA_RETURN_IF_ERROR(model.gatherWeights());
  // Where `eval` gathers weights, ranks run as often as any of them.
  const bool together = model.hasEntry(training::scatterEntry) &&
                        !model.hasEntry(training::gatherEntry);
  const uint64_t end =
      together ? (batches + groups - 1) / groups * groups : batches;
  for (uint64_t number = uint64_t(ranks.rank()) / ranksOfGroup; number < end;
       number += groups) {
    const bool isPadding = number >= batches;
    if (loaded && !isPadding)
      loaded = loadBatch(binding, data, windows, number * batch, rowsOf(number),
                         positions, ranks.rank());
    // Ranks that share the sequences wait for this one's chunks.
    if (!loaded && ranksOfGroup == 1 && !together)
      break;
    NSA_RETURN_IF_ERROR(model.run(training::evalEntry));
    if (isPadding)
      continue;
    const int32_t *targets = binding.targets;
    int64_t count = std::count_if(targets, targets + binding.ownTokens(),
                                  [](int32_t target) { return target >= 0; });
    BatchLoss batchLoss = {count ? *binding.evalLoss : 0, uint32_t(count)};
    own.append(reinterpret_cast<const char *>(&batchLoss), sizeof batchLoss);
  }
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> shares,
      ranks.exchange(name,
                     loaded ? readMark + own : unreadMark + loaded.message()));
  if (Status status = takeMarks(shares); !status) {
    if (unreadable)
      *unreadable = true;
    return Error{status.message()};
  }
  NSA_ASSIGN_OR_RETURN(std::vector<BatchLoss> losses,
                       interleave(shares, batches, ranksOfGroup));
  EvalResult result;
  for (const BatchLoss &own : losses) {
    result.loss += double(own.loss) * double(own.targets);
    result.tokens += own.targets;
  }
  // Of no target there is no mean: NaN.
  result.loss /= double(result.tokens);
  return result;
}

Result<TextSize> measureText(const ValidationWindows &data,
                             const std::vector<uint64_t> &windows,
                             int64_t seqLen, const Tokenizer &tokenizer,
                             int64_t endOfText) {
  std::vector<int32_t> tokens(static_cast<size_t>(seqLen)), targets = tokens,
                                                            starts = tokens;
  TextSize size;
  for (uint64_t window : windows) {
    NSA_RETURN_IF_ERROR(
        data.read(window, tokens.data(), targets.data(), starts.data()));
    for (size_t i = 0; i < targets.size(); ++i) {
      size.targets += targets[i] >= 0;
      if (targets[i] < 0 || targets[i] >= tokenizer.size())
        continue;
      std::string_view bytes = tokenizer.bytesOf(targets[i]);
      bool isBlankAdded = tokenizer.addsBlank() && tokens[i] == endOfText &&
                          bytes.substr(0, 1) == " ";
      size.bytes += bytes.size() - isBlankAdded;
    }
  }
  return size;
}

} // namespace nsa
