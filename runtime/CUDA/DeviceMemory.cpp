//===- DeviceMemory.cpp - the segments of a program on a GPU --------------===//

#include "runtime/CUDA/DeviceMemory.h"

using namespace nsa;
using namespace nsa::cuda;
using artifact::SegmentKind;
using artifact::Slice;

/// What a vector, or the start of a tensor map, takes.
static constexpr uint64_t emptyBytes = 256;

DeviceMemory::~DeviceMemory() {
  if (zeros)
    gpu.driver().MemFree(zeros);
  for (const Segment &segment : segments) {
    if (segment.isPinned)
      gpu.driver().MemHostUnregister(segment.mirror.data());
    if (segment.address)
      gpu.driver().MemFree(segment.address);
  }
}

Status DeviceMemory::allocateZeros(DevicePtr &address, uint64_t bytes) const {
  const Driver &driver = gpu.driver();
  if (Status status =
          driver.check(driver.MemAlloc(&address, bytes), "cuMemAlloc");
      !status)
    return Error{"a segment of " + std::to_string(bytes) +
                 " bytes does not fit: " + status.message()};
  return driver.check(driver.MemsetD8Async(address, 0, bytes, gpu.stream()),
                      "cuMemsetD8Async");
}

Status DeviceMemory::allocateEmpty(const artifact::Artifact &root) {
  return root.extents() ? allocateZeros(zeros, emptyBytes) : Status();
}

Status DeviceMemory::allocate(const artifact::Artifact &root) {
  for (const artifact::Segment *wanted : *root.segments()) {
    Segment &segment = segments.emplace_back();
    if (wanted->kind() == SegmentKind::Host) {
      NSA_ASSIGN_OR_RETURN(segment.mirror,
                           PageMemory::allocate(wanted->size()));
      continue;
    }
    segment.bytes = wanted->size();
    if (segment.bytes == 0)
      continue;
    NSA_RETURN_IF_ERROR(allocateZeros(segment.address, segment.bytes));
    if (wanted->kind() == SegmentKind::Arena ||
        wanted->kind() == SegmentKind::Workspace)
      continue;
    NSA_ASSIGN_OR_RETURN(segment.mirror, PageMemory::allocate(segment.bytes));
  }
  return {};
}

Status DeviceMemory::pin(const artifact::Artifact &root) {
  for (unsigned i = 0; i < segments.size(); ++i)
    if (root.segments()->Get(i)->kind() == SegmentKind::Persistent)
      NSA_RETURN_IF_ERROR(pin(i));
  return {};
}

Status DeviceMemory::pin(unsigned index) {
  Segment &segment = segments[index];
  if (segment.isPinned || segment.mirror.size() == 0)
    return {};
  const Driver &driver = gpu.driver();
  if (Status status = driver.check(driver.MemHostRegister(segment.mirror.data(),
                                                          segment.mirror.size(),
                                                          /*flags=*/0),
                                   "cuMemHostRegister");
      !status)
    return Error{"cannot pin " + std::to_string(segment.mirror.size()) +
                 " bytes of the host: " + status.message()};
  segment.isPinned = true;
  return {};
}

uint64_t DeviceMemory::bytes() const {
  uint64_t bytes = 0;
  for (const Segment &segment : segments)
    bytes += segment.bytes;
  return bytes;
}

Status DeviceMemory::upload(const Slice &slice) const {
  if (slice.size() == 0 || !segments[slice.segment()].address)
    return {};
  const Driver &driver = gpu.driver();
  NSA_RETURN_IF_ERROR(
      driver.check(driver.MemcpyHtoDAsync(address(slice), mirror(slice),
                                          slice.size(), gpu.stream()),
                   "cuMemcpyHtoDAsync"));
  return gpu.wait();
}

Status DeviceMemory::download(const Slice &slice) const {
  if (slice.size() == 0 || !segments[slice.segment()].address)
    return {};
  const Driver &driver = gpu.driver();
  NSA_RETURN_IF_ERROR(
      driver.check(driver.MemcpyDtoHAsync(mirror(slice), address(slice),
                                          slice.size(), gpu.stream()),
                   "cuMemcpyDtoHAsync"));
  return gpu.wait();
}
