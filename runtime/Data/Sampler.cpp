//===- Sampler.cpp - which tokens a training step sees --------------------===//

#include "runtime/Data/Sampler.h"
#include "lib/Support/Philox.h"
#include "lib/Support/Text.h"

#include <algorithm>

namespace nsa {

// Streams of the seed's Philox generator. Each epoch has its own sub-stream.
static constexpr uint64_t orderStream = uint64_t(1) << 56;
static constexpr uint64_t phaseStream = uint64_t(2) << 56;
static constexpr uint64_t mixtureStream = uint64_t(7) << 56;

/// Samples in which a mixture has its weights.
static constexpr uint64_t blockSamples = 10000;

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
                          const char *split, const char *hint = "") {
  assert(seqLen >= 1 && "empty windows");
  if (stream.size() > uint64_t(seqLen))
    return {};
  return Error{std::string("the ") + split + " split holds " +
               std::to_string(stream.size()) + " tokens, a window of " +
               std::to_string(seqLen) + " needs " + std::to_string(seqLen + 1) +
               hint};
}

namespace {
/// Where a window is written.
struct WindowRef {
  int32_t *tokens, *targets;
  /// Null where documents see each other.
  int32_t *starts;
};
} // namespace

/// Writes the starts of documents, the first of which begins with the window,
/// and takes away the targets that begin one.
static void isolateDocuments(const std::vector<char> &begins,
                             const WindowRef &out) {
  int32_t start = 0;
  for (size_t t = 0; t + 1 < begins.size(); ++t) {
    if (begins[t])
      start = int32_t(t);
    out.starts[t] = start;
    if (begins[t + 1])
      out.targets[t] = -1;
  }
}

/// Splits seqLen + 1 tokens into inputs and targets, of which the marked ones
/// count. After those before `end` come those from `begin` on.
static Status readWindow(const TokenStream &stream, uint64_t position,
                         uint64_t end, uint64_t begin, int64_t seqLen,
                         const Documents *documents, const TargetMarks *marks,
                         const WindowRef &out) {
  std::vector<int32_t> window(size_t(seqLen) + 1);
  uint64_t count = std::min<uint64_t>(window.size(), end - position);
  NSA_RETURN_IF_ERROR(stream.read(position, count, window.data()));
  if (count < window.size())
    NSA_RETURN_IF_ERROR(
        stream.read(begin, window.size() - count, window.data() + count));
  std::copy(window.begin(), window.end() - 1, out.tokens);
  std::copy(window.begin() + 1, window.end(), out.targets);
  if (marks) {
    marks->apply(position + 1, out.targets, count - 1);
    marks->apply(begin, out.targets + count - 1, window.size() - count);
  }
  if (!documents)
    return {};
  std::vector<char> begins(window.size());
  documents->mark(position, window.data(), count, begins.data());
  if (count < window.size())
    documents->mark(begin, window.data() + count, window.size() - count,
                    begins.data() + count);
  isolateDocuments(begins, out);
  return {};
}

Result<TrainSampler> TrainSampler::create(const TokenStream &stream,
                                          int64_t seqLen, uint64_t seed) {
  NSA_RETURN_IF_ERROR(checkLength(stream, seqLen, "training"));
  Source whole;
  whole.tokens = stream.size();
  return create(stream, seqLen, seed, {whole});
}

Result<TrainSampler> TrainSampler::create(const TokenStream &stream,
                                          int64_t seqLen, uint64_t seed,
                                          std::vector<Source> sources) {
  TrainSampler sampler;
  sampler.stream = &stream;
  sampler.seqLen = seqLen;
  sampler.seed = seed;
  for (Source &source : sources) {
    if (source.tokens <= uint64_t(seqLen))
      return Error{"'" + source.name + "' holds " +
                   std::to_string(source.tokens) +
                   " training tokens, a window of " + std::to_string(seqLen) +
                   " needs " + std::to_string(seqLen + 1)};
    source.windows = source.tokens / uint64_t(seqLen);
  }
  sampler.sources = std::move(sources);
  return sampler;
}

/// How many of the samples of a block each source has, which sum to all:
/// weights rounded down, then up where most was cut off.
static std::vector<uint64_t>
shareBlock(const std::vector<DataSource> &sources) {
  double sum = 0;
  for (const DataSource &source : sources)
    sum += source.weight;
  std::vector<uint64_t> quotas;
  std::vector<std::pair<double, size_t>> rest;
  uint64_t left = blockSamples;
  for (size_t i = 0; i < sources.size(); ++i) {
    double exact = sources[i].weight / sum * double(blockSamples);
    quotas.push_back(std::min(uint64_t(exact), left));
    left -= quotas.back();
    rest.emplace_back(double(quotas.back()) - exact, i);
  }
  std::sort(rest.begin(), rest.end());
  for (size_t i = 0; left > 0; i = (i + 1) % rest.size(), --left)
    ++quotas[rest[i].second];
  return quotas;
}

Result<TrainSampler> TrainSampler::create(const Dataset &data, int64_t seqLen,
                                          uint64_t seed) {
  if (data.sources.empty())
    return create(data.train, seqLen, seed);
  std::vector<uint64_t> quotas = shareBlock(data.sources);
  std::vector<Source> sources;
  uint64_t slots = 0;
  for (size_t i = 0; i < quotas.size(); ++i) {
    const DataSource &source = data.sources[i];
    if (quotas[i] == 0)
      return Error{"the weight of '" + source.name + "', " +
                   shortest(source.weight) + ", gives it less than one of " +
                   std::to_string(blockSamples) + " samples"};
    sources.push_back(
        {source.name, source.begin, source.tokens, 0, quotas[i], slots});
    slots += quotas[i];
  }
  return create(data.train, seqLen, seed, std::move(sources));
}

TrainSampler::Place TrainSampler::place(uint64_t sample) const {
  if (sources.size() == 1)
    return {0, sample};
  uint64_t block = sample / blockSamples;
  uint64_t slot = Permutation(blockSamples, seed,
                              mixtureStream | block)(sample % blockSamples);
  size_t index = sources.size() - 1;
  while (sources[index].firstSlot > slot)
    --index;
  const Source &source = sources[index];
  return {index, block * source.quota + slot - source.firstSlot};
}

double TrainSampler::epochs(uint64_t sample, size_t index) const {
  const Source &source = sources[index];
  double share =
      sources.size() == 1 ? 1.0 : double(source.quota) / double(blockSamples);
  return double(sample) * share / double(source.windows);
}

Status TrainSampler::beginAt(const Documents &documents) {
  for (Source &source : sources) {
    NSA_ASSIGN_OR_RETURN(source.starts,
                         documents.findWindows(*stream, source.begin,
                                               source.begin + source.tokens,
                                               uint64_t(seqLen)));
    source.windows = source.starts.size();
  }
  return {};
}

uint64_t TrainSampler::position(uint64_t sample) const {
  return position(place(sample));
}

uint64_t TrainSampler::position(const Place &place) const {
  auto [index, number] = place;
  const Source &source = sources[index];
  uint64_t round = number / source.windows, of = uint64_t(index) << 40;
  Permutation order(source.windows, seed, orderStream | of | round);
  if (!source.starts.empty())
    return source.starts[size_t(order(number % source.windows))];
  uint64_t phase =
      PhiloxStream(seed, phaseStream | of | round).below(source.tokens);
  return source.begin +
         (phase + order(number % source.windows) * uint64_t(seqLen)) %
             source.tokens;
}

Status TrainSampler::read(uint64_t sample, int32_t *tokens, int32_t *targets,
                          int32_t *starts) const {
  Place own = place(sample);
  const Source &source = sources[own.source];
  return readWindow(*stream, position(own), source.begin + source.tokens,
                    source.begin, seqLen, starts ? borders : nullptr, marks,
                    {tokens, targets, starts});
}

Result<ValidationWindows> ValidationWindows::create(const TokenStream &stream,
                                                    int64_t seqLen) {
  NSA_RETURN_IF_ERROR(
      checkLength(stream, seqLen, "validation",
                  " (packing with a larger --val-fraction holds out more)"));
  ValidationWindows result;
  result.stream = &stream;
  result.seqLen = seqLen;
  result.windows = (stream.size() - 1) / uint64_t(seqLen);
  return result;
}

Status ValidationWindows::beginAt(const Documents &documents) {
  NSA_ASSIGN_OR_RETURN(starts, documents.findWindows(*stream, 0, stream->size(),
                                                     uint64_t(seqLen)));
  while (starts.back() + uint64_t(seqLen) > stream->size())
    starts.pop_back();
  windows = starts.size();
  return {};
}

std::vector<uint64_t> ValidationWindows::choose(uint64_t count) const {
  count = std::min(count, windows);
  std::vector<uint64_t> chosen(count);
  for (uint64_t i = 0; i < count; ++i)
    chosen[i] = uint64_t(static_cast<unsigned __int128>(i) * windows / count);
  return chosen;
}

Status ValidationWindows::read(uint64_t window, int32_t *tokens,
                               int32_t *targets, int32_t *starts) const {
  assert(window < windows && "window outside the split");
  return readWindow(*stream, position(window), stream->size(), 0, seqLen,
                    starts ? borders : nullptr, marks,
                    {tokens, targets, starts});
}

} // namespace nsa
