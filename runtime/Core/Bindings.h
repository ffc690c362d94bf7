//===- Bindings.h - memory of callers in the place of tensors ---*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_BINDINGS_H
#define NSA_RUNTIME_CORE_BINDINGS_H

#include "nsa/Artifact/Artifact.h"

#include <optional>
#include <vector>

namespace nsa {

/// The memory that a command reads and writes: operands; lhs, rhs, out, addend
/// and workspace, those that are there; source and out.
std::vector<const artifact::Slice *> slicesOf(const artifact::Artifact &root,
                                              const artifact::Command &command);

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

  /// An address in one of them: the number of the range, and bytes past its
  /// beginning.
  struct Place {
    size_t range;
    uint64_t offset;
  };

  /// Where a slice lies that lies in one of them.
  std::optional<Place> locate(const artifact::Slice &slice) const {
    for (size_t i = 0; i < ranges.size(); ++i) {
      const artifact::Slice &own = ranges[i].slice;
      if (own.segment() == slice.segment() && own.offset() <= slice.offset() &&
          slice.offset() + slice.size() <= own.offset() + own.size())
        return Place{i, slice.offset() - own.offset()};
    }
    return std::nullopt;
  }
  /// The address of such a slice.
  std::optional<char *> find(const artifact::Slice &slice) const {
    std::optional<Place> place = locate(slice);
    return place ? std::optional(address(place->range) + place->offset)
                 : std::nullopt;
  }
  /// Of the first byte of a range.
  char *address(size_t range) const { return ranges[range].address; }

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
