//===- Parts.cpp - what ranks share of a program --------------------------===//

#include "runtime/Core/Parts.h"

#include <algorithm>

using namespace nsa;
using artifact::ChunkPattern;
using artifact::CopyPart;

/// Bytes of a chunk, of which a copy of sequences takes parts.
static uint64_t chunkBytes(const artifact::Copy &copy) {
  bool isSlice = copy.part() == CopyPart::Source;
  const artifact::Slice &rows = isSlice ? *copy.out() : *copy.source();
  uint64_t row = rows.size() / (2 * copy.sequences());
  return copy.pattern() == ChunkPattern::Halo ? row - copy.halo() : row;
}

std::vector<CopyBytes> nsa::rangesOf(const artifact::Artifact &root,
                                     const artifact::Copy &copy, int rank) {
  bool isSlice = copy.part() == CopyPart::Source;
  if (copy.sequences() == 0) {
    uint64_t bytes = std::min(copy.source()->size(), copy.out()->size());
    uint64_t first = copy.part() == CopyPart::None ? 0 : uint64_t(rank) * bytes;
    return {{isSlice ? first : 0, isSlice ? 0 : first, bytes}};
  }
  std::vector<CopyBytes> ranges;
  for (uint64_t row = 0; row < 2 * copy.sequences(); ++row) {
    ChunkRange range =
        chunkRange(copy.pattern(), row, uint64_t(rank), root.sequence_ranks(),
                   chunkBytes(copy), copy.halo());
    ranges.push_back({isSlice ? range.inMemory : range.inRow,
                      isSlice ? range.inRow : range.inMemory, range.count});
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
               " ranks that keep parts of its state; this is a run of " +
               std::to_string(size)};
}
