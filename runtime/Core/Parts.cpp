//===- Parts.cpp - what ranks share of a program --------------------------===//

#include "runtime/Core/Parts.h"

#include <algorithm>

using namespace nsa;
using artifact::CopyPart;

/// Where part or chunk number `row` of this rank begins in the memory of all.
static uint64_t wholeOffset(const artifact::Artifact &root,
                            const artifact::Copy &copy, uint64_t row,
                            uint64_t bytes, int rank) {
  if (copy.sequences() == 0)
    return uint64_t(rank) * bytes;
  uint64_t ranks = root.sequence_ranks();
  return (row / 2 * 2 * ranks + chunkOf(row, uint64_t(rank), ranks)) * bytes;
}

std::vector<CopyBytes> nsa::rangesOf(const artifact::Artifact &root,
                                     const artifact::Copy &copy, int rank) {
  uint64_t rows = std::max<uint64_t>(2 * copy.sequences(), 1);
  uint64_t bytes = std::min(copy.source()->size(), copy.out()->size()) / rows;
  std::vector<CopyBytes> ranges;
  for (uint64_t row = 0; row < rows; ++row) {
    CopyBytes range = {row * bytes, row * bytes, bytes};
    uint64_t inWhole = wholeOffset(root, copy, row, bytes, rank);
    if (copy.part() == CopyPart::Source)
      range.sourceOffset = inWhole;
    if (copy.part() == CopyPart::Out)
      range.outOffset = inWhole;
    ranges.push_back(range);
  }
  return ranges;
}

Status nsa::checkRanks(const artifact::Artifact &root, int size) {
  if (uint64_t(size) % root.sequence_ranks() != 0)
    return Error{"is compiled for sequences that " +
                 std::to_string(root.sequence_ranks()) +
                 " ranks share; this is a run of " + std::to_string(size)};
  if (root.ranks() == 0 || root.ranks() == uint64_t(size))
    return {};
  return Error{"is compiled for " + std::to_string(root.ranks()) +
               " ranks, which share the optimizer's state; this is a run of " +
               std::to_string(size)};
}
