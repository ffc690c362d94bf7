//===- MomentRanges.h - whose moments a rank keeps --------------*- C++ -*-===//
//
// Ranks that share the optimizer's state keep their part of the moments in flat
// tensors. Where which parameter lies in them follows from the program's
// buckets of gradients, so checkpoints say it: another program, or another
// number of ranks, finds every element by its parameter's name.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_MOMENTRANGES_H
#define NSA_RUNTIME_TRAIN_MOMENTRANGES_H

#include "nsa/Artifact/Artifact.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Elements of a moment of a parameter, in a flat tensor of moments.
struct MomentRange {
  /// The flat tensor, such as m.decayed, and its first element.
  std::string tensor;
  uint64_t offset = 0;
  std::string parameter;
  /// Elements of the parameter, in the order of memory.
  uint64_t first = 0, count = 0;
};

/// What one of the ranks keeps, by tensor and offset; elements between the
/// ranges are padding. Empty where each rank keeps all moments. An error if the
/// program's commands do not say it for every element.
Result<std::vector<MomentRange>>
findMomentRanges(const artifact::Artifact &program, int rank);

/// Where the metadata of the file of the tensors have them.
inline constexpr const char *rangesMember = "moment_ranges";

/// As text, and back: JSON.
std::string printMomentRanges(const std::vector<MomentRange> &ranges);
Result<std::vector<MomentRange>> parseMomentRanges(const std::string &text);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_MOMENTRANGES_H
