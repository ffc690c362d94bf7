//===- Sampler.cpp - which tokens a training step sees --------------------===//

#include "runtime/Data/Sampler.h"
#include "lib/Support/Philox.h"

#include <algorithm>

namespace nsa {

// Streams of the seed's Philox generator. Each epoch has its own sub-stream.
static constexpr uint64_t orderStream = uint64_t(1) << 56;
static constexpr uint64_t phaseStream = uint64_t(2) << 56;

Permutation::Permutation(uint64_t size, uint64_t key, uint64_t stream)
    : size(size), key(key), stream(stream) {
  assert(size >= 1 && "a permutation of nothing");
  while (halfBits < 32 && (uint64_t(1) << (2 * halfBits)) < size)
    ++halfBits;
}

uint64_t Permutation::operator()(uint64_t index) const {
  assert(index < size && "index outside the permutation");
  const uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      uint64_t mixed = philox(key, right | round << 40, stream)[0] & mask;
      uint64_t swapped = left ^ mixed;
      left = right;
      right = swapped;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

static Status checkLength(const TokenStream &stream, int64_t seqLen,
                          const char *split) {
  assert(seqLen >= 1 && "empty windows");
  if (stream.size() > uint64_t(seqLen))
    return {};
  return Error{std::string("the ") + split + " split holds " +
               std::to_string(stream.size()) + " tokens, a window of " +
               std::to_string(seqLen) + " needs " + std::to_string(seqLen + 1)};
}

/// Splits seqLen + 1 tokens into inputs and targets.
static Status readWindow(const TokenStream &stream, uint64_t position,
                         int64_t seqLen, int32_t *tokens, int32_t *targets) {
  std::vector<int32_t> window(size_t(seqLen) + 1);
  if (Status status = stream.read(position, window.size(), window.data());
      !status)
    return status;
  std::copy(window.begin(), window.end() - 1, tokens);
  std::copy(window.begin() + 1, window.end(), targets);
  return {};
}

Result<TrainSampler> TrainSampler::create(const TokenStream &stream,
                                          int64_t seqLen, uint64_t seed) {
  if (Status status = checkLength(stream, seqLen, "training"); !status)
    return Error{status.message()};
  TrainSampler sampler;
  sampler.stream = &stream;
  sampler.seqLen = seqLen;
  sampler.seed = seed;
  sampler.perEpoch = stream.size() / uint64_t(seqLen);
  return sampler;
}

uint64_t TrainSampler::position(uint64_t sample) const {
  uint64_t round = epoch(sample);
  Permutation order(perEpoch, seed, orderStream | round);
  uint64_t phase =
      PhiloxStream(seed, phaseStream | round).below(stream->size());
  return (phase + order(sample % perEpoch) * uint64_t(seqLen)) % stream->size();
}

Status TrainSampler::read(uint64_t sample, int32_t *tokens,
                          int32_t *targets) const {
  return readWindow(*stream, position(sample), seqLen, tokens, targets);
}

Result<ValidationWindows> ValidationWindows::create(const TokenStream &stream,
                                                    int64_t seqLen) {
  if (Status status = checkLength(stream, seqLen, "validation"); !status)
    return Error{status.message()};
  ValidationWindows result;
  result.stream = &stream;
  result.seqLen = seqLen;
  result.windows = (stream.size() - 1) / uint64_t(seqLen);
  return result;
}

std::vector<uint64_t> ValidationWindows::choose(uint64_t count) const {
  count = std::min(count, windows);
  std::vector<uint64_t> chosen(count);
  for (uint64_t i = 0; i < count; ++i)
    chosen[i] = uint64_t(static_cast<unsigned __int128>(i) * windows / count);
  return chosen;
}

Status ValidationWindows::read(uint64_t window, int32_t *tokens,
                               int32_t *targets) const {
  assert(window < windows && "window outside the split");
  return readWindow(*stream, window * uint64_t(seqLen), seqLen, tokens,
                    targets);
}

} // namespace nsa
