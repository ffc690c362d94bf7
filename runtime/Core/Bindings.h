//===- Bindings.h - memory of callers in the place of tensors ---*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_BINDINGS_H
#define NSA_RUNTIME_CORE_BINDINGS_H

#include "nsa/Artifact/Artifact.h"

#include <optional>
#include <vector>

namespace nsa {

/// Slices of named tensors that lie elsewhere while an entry runs.
class Bindings {
public:
  struct Range {
    artifact::Slice slice;
    /// Of the first byte, on the program's device.
    char *address;

    bool operator==(const Range &other) const;
  };

  Bindings() = default;
  explicit Bindings(std::vector<Range> ranges) : ranges(std::move(ranges)) {}

  /// The address of a slice that lies in one of them.
  std::optional<char *> find(const artifact::Slice &slice) const {
    for (const Range &range : ranges)
      if (range.slice.segment() == slice.segment() &&
          range.slice.offset() <= slice.offset() &&
          slice.offset() + slice.size() <=
              range.slice.offset() + range.slice.size())
        return range.address + (slice.offset() - range.slice.offset());
    return std::nullopt;
  }

  /// Whether these are of the same tensors.
  bool coversSame(const Bindings &other) const;

  /// Fails if a command of the entry uses bytes of one of them together with
  /// others, or, if these are all memory there is, bytes of none.
  Status check(const artifact::Artifact &root, const artifact::Entry &entry,
               bool isAllMemory) const;

  bool operator==(const Bindings &other) const {
    return ranges == other.ranges;
  }
  bool operator!=(const Bindings &other) const { return !(*this == other); }

private:
  std::vector<Range> ranges;
};

} // namespace nsa

#endif // NSA_RUNTIME_CORE_BINDINGS_H
