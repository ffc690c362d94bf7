//===- SelectionCheck.h - numbers of blocks in inputs -----------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_SELECTIONCHECK_H
#define NSA_RUNTIME_CPU_SELECTIONCHECK_H

#include "nsa/Artifact/Artifact.h"

#include <string>
#include <vector>

namespace nsa {

/// An input of a command that holds, for each token, numbers of blocks that the
/// token reads: -1 or one up to that of its own block.
struct SelectionInput {
  artifact::Slice slice;
  int64_t tokens, count, block;
  /// In messages: "input 'indices'" or "argument 3".
  std::string name;
};

/// Those of a command of the entry.
std::vector<SelectionInput> selectionInputs(const artifact::Artifact &root,
                                            const artifact::Entry &entry,
                                            const artifact::Command &command);

/// What is wrong with the first element that names no block that its token may
/// read, or nothing. `data` holds what is in the slice of the input.
std::string findBadSelection(const SelectionInput &input, const void *data);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_SELECTIONCHECK_H
