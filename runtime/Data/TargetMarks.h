//===- TargetMarks.h - tokens that a loss counts ----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_TARGETMARKS_H
#define NSA_RUNTIME_DATA_TARGETMARKS_H

#include "runtime/Data/TokenStream.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// The marks of a split of one source or of several: with data.targets: marked,
/// a loss counts the targets that are marked.
class TargetMarks {
public:
  /// A source that has none is an error that names it.
  static Result<TargetMarks> open(const std::vector<DocumentSource> &sources);

  /// Sets to -1 those of `count` targets, the tokens from `position` on, that
  /// are not marked.
  void apply(uint64_t position, int32_t *targets, uint64_t count) const;

  /// Whether any token is marked.
  bool isAnySet() const;

private:
  struct Source {
    uint64_t begin, end;
    std::vector<uint8_t> bits;
  };
  std::vector<Source> sources;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TARGETMARKS_H
