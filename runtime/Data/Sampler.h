//===- Sampler.h - which tokens a training step sees ------------*- C++ -*-===//
//
// Training draws sample i of one global order, a pure function of (seed, i):
// the order does not depend on ranks, micro-batches or restarts, and resuming
// needs only the counter. An epoch visits floor(N / S) windows of S + 1 tokens
// in a permuted order; the windows of an epoch tile the stream from a random
// phase, so borders move from epoch to epoch and every token is used.
//
// Of a mixture, each block of 10,000 samples has windows of every source by its
// weight, in a permuted order; each source has its own epochs.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_SAMPLER_H
#define NSA_RUNTIME_DATA_SAMPLER_H

#include "runtime/Data/Documents.h"
#include "runtime/Data/TargetMarks.h"

#include <cstdint>
#include <vector>

namespace nsa {

/// A keyed bijection of [0, size) that needs no memory: a Feistel network over
/// the next even number of bits, walked until it lands inside.
class Permutation {
public:
  Permutation(uint64_t size, uint64_t key, uint64_t stream);

  /// The image of `index`, which is below the size.
  uint64_t operator()(uint64_t index) const;

private:
  uint64_t size;
  uint64_t key;
  uint64_t stream;
  unsigned halfBits = 1;
};

/// Random access to the endless training order.
class TrainSampler {
public:
  /// `stream` must outlive the sampler. Fewer than seqLen + 1 tokens are an
  /// error naming both numbers.
  static Result<TrainSampler> create(const TokenStream &stream, int64_t seqLen,
                                     uint64_t seed);

  /// The same of a mixture, whose stream is data.train. A source whose weight
  /// gives it no window of a block is an error.
  static Result<TrainSampler> create(const Dataset &data, int64_t seqLen,
                                     uint64_t seed);

  /// Windows of an epoch, and the epoch of a sample, of the only source.
  uint64_t samplesPerEpoch() const { return sources[0].windows; }
  uint64_t epoch(uint64_t sample) const { return sample / samplesPerEpoch(); }

  /// How often all windows of source `index` were taken before a sample, the
  /// last time in part.
  double epochs(uint64_t sample, size_t index = 0) const;

  /// Position in the stream of the first token of a sample.
  uint64_t position(uint64_t sample) const;

  /// From now on windows begin at documents, which Documents::findWindows
  /// finds; an epoch visits each of them.
  Status beginAt(const Documents &documents);

  /// From now on documents do not see each other. `documents`, of the stream,
  /// must outlive the sampler.
  void isolate(const Documents &documents) { borders = &documents; }

  /// From now on targets that are not marked are -1. `chosen`, of the stream,
  /// must outlive the sampler.
  void countMarked(const TargetMarks &chosen) { marks = &chosen; }

  /// Writes seqLen tokens and the seqLen tokens that follow each of them. Where
  /// documents are isolated, -1 in place of one that begins a document, and for
  /// each token the index in the window of the first one of its document.
  Status read(uint64_t sample, int32_t *tokens, int32_t *targets,
              int32_t *starts = nullptr) const;

private:
  struct Source {
    std::string name;
    /// Its tokens in the stream, and the windows of an epoch.
    uint64_t begin = 0, tokens = 0, windows = 0;
    /// Its samples in a block, and the first of them before they are permuted.
    uint64_t quota = 1, firstSlot = 0;
    /// Where windows begin, if that is at documents.
    std::vector<uint64_t> starts = {};
  };
  /// A sample as one of a source.
  struct Place {
    size_t source;
    uint64_t sample;
  };

  static Result<TrainSampler> create(const TokenStream &stream, int64_t seqLen,
                                     uint64_t seed,
                                     std::vector<Source> sources);
  Place place(uint64_t sample) const;
  uint64_t position(const Place &place) const;

  const TokenStream *stream = nullptr;
  int64_t seqLen = 0;
  uint64_t seed = 0;
  std::vector<Source> sources;
  const Documents *borders = nullptr;
  const TargetMarks *marks = nullptr;
};

/// The fixed windows of a validation split: window i starts at token i * S, or
/// at a document.
class ValidationWindows {
public:
  /// `stream` must outlive the object. Fewer than seqLen + 1 tokens are an
  /// error naming both numbers.
  static Result<ValidationWindows> create(const TokenStream &stream,
                                          int64_t seqLen);

  /// Windows in the split.
  uint64_t size() const { return windows; }

  /// `count` windows spread evenly over the split, in ascending order, the
  /// same at every call; all of them if there are fewer.
  std::vector<uint64_t> choose(uint64_t count) const;

  /// The first token of a window.
  uint64_t position(uint64_t window) const {
    return starts.empty() ? window * uint64_t(seqLen) : starts[size_t(window)];
  }

  /// As those of a TrainSampler. A window that does not end in the split is
  /// left out.
  Status beginAt(const Documents &documents);

  /// As those of a TrainSampler.
  void isolate(const Documents &documents) { borders = &documents; }
  void countMarked(const TargetMarks &chosen) { marks = &chosen; }
  Status read(uint64_t window, int32_t *tokens, int32_t *targets,
              int32_t *starts = nullptr) const;

private:
  const TokenStream *stream = nullptr;
  int64_t seqLen = 0;
  uint64_t windows = 0;
  std::vector<uint64_t> starts;
  const Documents *borders = nullptr;
  const TargetMarks *marks = nullptr;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_SAMPLER_H
