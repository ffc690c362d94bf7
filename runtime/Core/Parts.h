//===- Parts.h - what ranks share of a program ------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_PARTS_H
#define NSA_RUNTIME_CORE_PARTS_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Support/Result.h"

#include <vector>

namespace nsa {

/// Bytes that a copy moves on one rank, and where they begin in its slices.
struct CopyBytes {
  uint64_t sourceOffset = 0, outOffset = 0, count = 0;
};

/// What a copy moves on one rank: one range, or its chunks of sequences.
std::vector<CopyBytes> rangesOf(const artifact::Artifact &root,
                                const artifact::Copy &copy, int rank);

/// An error if the program is for another number of ranks than `size`.
Status checkRanks(const artifact::Artifact &root, int size);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_PARTS_H
