//===- StateRanges.h - whose states a rank keeps ----------------*- C++ -*-===//
//
// Ranks that share the optimizer's states keep their part of them in flat
// tensors. Where which parameter lies in them follows from the program's
// buckets of gradients, so checkpoints say it: another program, or another
// number of ranks, finds every element by its parameter's name.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_STATERANGES_H
#define NSA_RUNTIME_TRAIN_STATERANGES_H

#include "nsa/Artifact/Artifact.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Elements of a state of a parameter, in a flat tensor of states.
struct StateRange {
  /// The flat tensor, such as m.decayed, and its first element.
  std::string tensor;
  uint64_t offset = 0;
  std::string parameter;
  /// Elements of the parameter, in the order of memory.
  uint64_t first = 0, count = 0;

  /// What the flat tensors of these parameters end with, such as decayed.
  std::string stateSuffix() const {
    return tensor.substr(tensor.find('.') + 1);
  }
  /// The name of the whole state, such as m.w: names of states have no dot.
  std::string stateName() const {
    return tensor.substr(0, tensor.find('.')) + "." + parameter;
  }
};

/// What one of the ranks keeps, by tensor and offset; elements between the
/// ranges are padding. Empty where each rank keeps all states. An error if the
/// program's commands do not say it for every element.
Result<std::vector<StateRange>>
findStateRanges(const artifact::Artifact &program, int rank);

/// Where the metadata of the file of the tensors have them; its name is that of
/// the first checkpoints.
inline constexpr const char *rangesMember = "moment_ranges";

/// As text, and back: JSON.
std::string printStateRanges(const std::vector<StateRange> &ranges);
Result<std::vector<StateRange>> parseStateRanges(const std::string &text);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_STATERANGES_H
