//===- Transfers.cpp - what moves before and after an entry ---------------===//

#include "runtime/CUDA/Transfers.h"
#include "nsa/Artifact/Format.h"

#include <algorithm>
#include <cstring>
#include <tuple>

using namespace nsa;
using namespace nsa::cuda;
using artifact::Slice;

std::vector<Block> nsa::cuda::joinSlices(std::vector<Slice> slices,
                                         uint64_t gap) {
  std::sort(slices.begin(), slices.end(), [](const Slice &a, const Slice &b) {
    return std::tuple(a.segment(), a.offset()) <
           std::tuple(b.segment(), b.offset());
  });
  std::vector<Block> blocks;
  for (const Slice &slice : slices) {
    if (slice.size() == 0)
      continue;
    uint64_t end = slice.offset() + slice.size();
    if (!blocks.empty() && blocks.back().segment == slice.segment() &&
        slice.offset() <= blocks.back().offset + blocks.back().bytes + gap) {
      Block &block = blocks.back();
      block.bytes = std::max(block.bytes, end - block.offset);
      block.parts.push_back(slice);
      continue;
    }
    blocks.push_back({slice.segment(), slice.offset(), slice.size(), {slice}});
  }
  return blocks;
}

/// Takes the slices that are too large for pinned memory out of the list.
static std::vector<Slice> takeLarge(std::vector<Slice> &slices, uint64_t most) {
  auto isSmall = [&](const Slice &slice) { return slice.size() <= most; };
  auto large = std::stable_partition(slices.begin(), slices.end(), isSmall);
  std::vector<Slice> taken(large, slices.end());
  slices.erase(large, slices.end());
  return taken;
}

/// Gives the blocks offsets one after the other; returns the end.
static uint64_t place(std::vector<Block> &blocks) {
  uint64_t bytes = 0;
  for (Block &block : blocks) {
    block.staged = bytes;
    bytes += (block.bytes + artifact::sliceAlignment - 1) /
             artifact::sliceAlignment * artifact::sliceAlignment;
  }
  return bytes;
}

Status Transfers::prepare(const GPU &device, DeviceMemory &segments,
                          const std::vector<Slice> &in,
                          const std::vector<Slice> &out) {
  gpu = &device;
  memory = &segments;
  std::vector<Slice> small = in;
  largeInputs = joinSlices(takeLarge(small, mostPinned), 0);
  // Nothing but padding lies between these: a copy must not change more.
  inputs = joinSlices(small, artifact::sliceAlignment - 1);
  small.clear();
  std::vector<Slice> direct;
  for (const Slice &slice : out) {
    bool isPinned = slice.size() > mostStaged &&
                    segments.bytes(slice.segment()) <= mostPinnedSegment;
    if (isPinned)
      NSA_RETURN_IF_ERROR(segments.pin(slice.segment()));
    (isPinned ? direct : small).push_back(slice);
  }
  std::vector<Slice> large = takeLarge(small, mostPinned);
  direct.insert(direct.end(), large.begin(), large.end());
  largeOutputs = joinSlices(direct, 0);
  outputs = joinSlices(small, outputGap);
  inputBytes = place(inputs);
  uint64_t resultBytes = place(outputs);
  if (inputBytes) {
    NSA_ASSIGN_OR_RETURN(PinnedMemory first,
                         PinnedMemory::allocate(*gpu, inputBytes));
    sent.push_back(std::move(first));
  }
  if (resultBytes) {
    NSA_ASSIGN_OR_RETURN(results, PinnedMemory::allocate(*gpu, resultBytes));
  }
  return {};
}

Status Transfers::send() {
  const Driver &driver = gpu->driver();
  auto copy = [&](const Block &block, const char *from) {
    return driver.check(driver.MemcpyHtoDAsync(memory->address(block.slice()),
                                               from, block.bytes,
                                               gpu->stream()),
                        "cuMemcpyHtoDAsync");
  };
  for (const Block &block : largeInputs)
    NSA_RETURN_IF_ERROR(copy(block, memory->mirror(block.slice())));
  if (inputs.empty())
    return {};
  // A step of more passes than any before it.
  if (used == sent.size()) {
    NSA_ASSIGN_OR_RETURN(PinnedMemory more,
                         PinnedMemory::allocate(*gpu, inputBytes));
    sent.push_back(std::move(more));
  }
  char *pinned = sent[used++].data();
  for (const Block &block : inputs) {
    for (const Slice &part : block.parts)
      std::memcpy(pinned + block.staged + (part.offset() - block.offset),
                  memory->mirror(part), part.size());
    NSA_RETURN_IF_ERROR(copy(block, pinned + block.staged));
  }
  return {};
}

Status Transfers::fetch() {
  const Driver &driver = gpu->driver();
  auto copy = [&](const Block &block, char *to) {
    return driver.check(driver.MemcpyDtoHAsync(to,
                                               memory->address(block.slice()),
                                               block.bytes, gpu->stream()),
                        "cuMemcpyDtoHAsync");
  };
  for (const Block &block : outputs)
    NSA_RETURN_IF_ERROR(copy(block, results.data() + block.staged));
  for (const Block &block : largeOutputs)
    NSA_RETURN_IF_ERROR(copy(block, memory->mirror(block.slice())));
  return {};
}

void Transfers::deliver() {
  for (const Block &block : outputs)
    for (const Slice &part : block.parts)
      std::memcpy(memory->mirror(part),
                  results.data() + block.staged +
                      (part.offset() - block.offset),
                  part.size());
}
