//===- DeviceMemory.h - the segments of a program on a GPU ------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_DEVICEMEMORY_H
#define NSA_RUNTIME_CUDA_DEVICEMEMORY_H

#include "nsa/Artifact/Artifact.h"
#include "runtime/CPU/Memory.h"
#include "runtime/CUDA/GPU.h"

#include <vector>

namespace nsa::cuda {

/// The segments of a program. Those that hold named tensors have a copy on the
/// host, whose pages exist once they are touched.
class DeviceMemory {
public:
  explicit DeviceMemory(const GPU &gpu) : gpu(gpu) {}
  ~DeviceMemory();

  /// All segments, filled with zeros on the stream.
  Status allocate(const artifact::Artifact &root);

  /// None of them: they lie in memory of callers.
  void leaveToCallers(const artifact::Artifact &root) {
    segments.resize(root.segments()->size());
  }

  DevicePtr address(const artifact::Slice &slice) const {
    return segments[slice.segment()].address + slice.offset();
  }
  /// The slice's offset in the copy on the host.
  char *mirror(const artifact::Slice &slice) const {
    return mirror(slice.segment()) + slice.offset();
  }
  char *mirror(unsigned segment) const {
    return segments[segment].mirror.data();
  }

  /// What `empty` gives, if extents of a call can make tensors empty.
  Status allocateEmpty(const artifact::Artifact &root);
  /// A few zeros, which stand for a tensor without elements: what kernels mask,
  /// they may still read.
  DevicePtr empty() const { return zeros; }

  /// Bytes of all segments, and of one.
  uint64_t bytes() const;
  uint64_t bytes(unsigned segment) const { return segments[segment].bytes; }

  /// Pins the host's copies of persistent segments, if they are not: copies
  /// then run at the speed of the bus.
  Status pin(const artifact::Artifact &root);
  /// The same for one segment.
  Status pin(unsigned segment);

  /// Copies a slice from the host's copy or into it, and waits. Nothing to do
  /// for what lies on the host alone.
  Status upload(const artifact::Slice &slice) const;
  Status download(const artifact::Slice &slice) const;

private:
  struct Segment {
    DevicePtr address = 0;
    uint64_t bytes = 0;
    PageMemory mirror;
    bool isPinned = false;
  };

  Status allocateZeros(DevicePtr &address, uint64_t bytes) const;

  const GPU &gpu;
  std::vector<Segment> segments;
  DevicePtr zeros = 0;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_DEVICEMEMORY_H
