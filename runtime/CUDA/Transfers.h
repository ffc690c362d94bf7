//===- Transfers.h - what moves before and after an entry -------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_TRANSFERS_H
#define NSA_RUNTIME_CUDA_TRANSFERS_H

#include "runtime/CUDA/DeviceMemory.h"

#include <vector>

namespace nsa::cuda {

/// Slices of a segment that one copy moves, with what lies between them.
struct Block {
  uint32_t segment;
  uint64_t offset, bytes;
  std::vector<artifact::Slice> parts;
  /// Where it lies in pinned memory.
  uint64_t staged = 0;

  artifact::Slice slice() const { return {segment, offset, bytes}; }
};

/// Joins slices that are at most `gap` bytes apart. Empty slices are dropped.
std::vector<Block> joinSlices(std::vector<artifact::Slice> slices,
                              uint64_t gap);

/// The copies of one entry's inputs and outputs. Both pass through pinned
/// memory, so that neither the host waits for a copy nor a copy for the host;
/// arrays that are too large for it are copied from where they lie. Outputs of
/// more than a few rows go to the host's copy at once, which is pinned for it.
class Transfers {
public:
  /// Arrays of more bytes are not pinned.
  static constexpr uint64_t mostPinned = 16u << 20;
  /// Outputs of more bytes are not copied once more on the host, if their
  /// segment is not larger than what is pinned of one.
  static constexpr uint64_t mostStaged = 1u << 20;
  static constexpr uint64_t mostPinnedSegment = 64u << 20;
  /// Outputs are copied together with at most so many bytes between them.
  static constexpr uint64_t outputGap = 64u << 10;

  /// Of named tensors, which the host's copy holds.
  Status prepare(const GPU &gpu, DeviceMemory &memory,
                 const std::vector<artifact::Slice> &inputs,
                 const std::vector<artifact::Slice> &outputs);

  /// Puts copies of the inputs, as they are now, on the stream.
  Status send();
  /// Puts copies of the outputs on the stream.
  Status fetch();
  /// Once the stream has been waited for: the outputs reach the host's copy.
  void deliver();
  /// Once the stream has been waited for: pinned memory is free again.
  void recycle() { used = 0; }

private:
  const GPU *gpu = nullptr;
  const DeviceMemory *memory = nullptr;
  /// Copied through pinned memory, and from or to where they lie.
  std::vector<Block> inputs, largeInputs, outputs, largeOutputs;
  uint64_t inputBytes = 0;
  /// One for every start that has not been waited for.
  std::vector<PinnedMemory> sent;
  size_t used = 0;
  PinnedMemory results;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_TRANSFERS_H
